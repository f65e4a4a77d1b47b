"""Encryption of what is stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.store.errors import KeyUnusable, Unreadable
from toolyard.store.sql.cipher import Cipher

KEY = "sixteen letters!"


@given(st.binary(max_size=200), st.text(max_size=40))
def test_encrypted_text_decrypts_only_at_its_place(secret: bytes, place: str) -> None:
    cipher = Cipher(KEY)
    encrypted = cipher.encrypt(secret, place)
    assert cipher.decrypt(encrypted, place) == secret
    assert Cipher(KEY).decrypt(encrypted, place) == secret
    assert len(secret) < 4 or secret not in encrypted


@given(st.binary(max_size=50), st.text(max_size=20), st.text(max_size=20))
def test_nothing_opens_at_another_place(secret: bytes, place: str, other: str) -> None:
    cipher = Cipher(KEY)
    if place != other:
        with pytest.raises(Unreadable, match="cannot be decrypted"):
            cipher.decrypt(cipher.encrypt(secret, place), other)


@given(st.data())
def test_no_changed_byte_goes_unnoticed(data: st.DataObject) -> None:
    cipher = Cipher(KEY)
    encrypted = bytearray(cipher.encrypt(b"a secret", "place"))
    at = data.draw(st.integers(0, len(encrypted) - 1))
    encrypted[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Unreadable):
        cipher.decrypt(bytes(encrypted), "place")


@pytest.mark.parametrize("length", range(30))
def test_truncated_text_does_not_decrypt(length: int) -> None:
    cipher = Cipher(KEY)
    with pytest.raises(Unreadable):
        cipher.decrypt(cipher.encrypt(b"xy", "place")[:length], "place")


def test_the_same_secret_never_looks_the_same() -> None:
    cipher = Cipher(KEY)
    assert len({cipher.encrypt(b"secret", "place") for _ in range(100)}) == 100


def test_another_key_does_not_open() -> None:
    with pytest.raises(Unreadable):
        Cipher(KEY + "x").decrypt(Cipher(KEY).encrypt(b"secret", "place"), "place")


@pytest.mark.parametrize("key", ["", "x", "fifteen letters"])
def test_a_short_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(KeyUnusable, match=f"has {len(key)} characters") as exc_info:
        Cipher(key)
    assert exc_info.value.hint is not None
    assert len(key) < 2 or key not in str(exc_info.value)


def test_any_text_that_is_long_enough_is_a_key() -> None:
    cipher = Cipher("ключ от всех дверей")
    assert cipher.decrypt_text(cipher.encrypt_text("тайна", "place"), "place") == "тайна"
    assert cipher.encrypt_text(None, "place") is None
    assert cipher.decrypt_text(None, "place") is None
