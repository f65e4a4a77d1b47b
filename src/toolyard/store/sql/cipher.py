"""Encryption of what is stored: AES-GCM, each ciphertext bound to its place."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolyard.store.errors import KeyUnusable, Unreadable, WrongKey

__all__ = ["MIN_KEY", "Cipher"]

MIN_KEY = 16
"""Characters that the text of a key has at least."""

_VERSION = b"\x01"
_NONCE = 12


class Cipher:
    """Seals and opens bytes. ``place`` is table, column and row: what was moved elsewhere does not open."""

    def __init__(self, key: str, former: str | None = None) -> None:
        """``former`` opens what it sealed, and seals nothing. Raises KeyUnusable where a key is too short."""
        self._aead = _aead(key, "the secret key")
        self._former = None if former is None else _aead(former, "the former secret key")
        self._retired = False
        self._root = HKDF(SHA256(), 32, salt=None, info=b"toolyard derived 1").derive(
            key.encode(errors="surrogatepass")
        )

    def retire(self) -> None:
        """From now on seal nothing: the database has another key."""
        self._retired = True

    def derive(self, purpose: str) -> bytes:
        """32 bytes that only those know who have the key: others for each purpose, the same everywhere."""
        return HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(self._root)

    def seal(self, secret: bytes, place: str) -> bytes:
        """Encrypt for one place. Raises WrongKey where the key was replaced."""
        if self._retired:
            raise WrongKey(
                "nothing was stored: the database was encrypted with a new secret key",
                hint="restart this process with the new TOOLYARD_SECRET_KEY",
            )
        nonce = os.urandom(_NONCE)
        return b"".join((_VERSION, nonce, self._aead.encrypt(nonce, secret, place.encode())))

    def open(self, sealed: bytes, place: str) -> bytes:
        """Decrypt what was sealed for this place. Raises Unreadable."""
        opened = _opened(self._aead, sealed, place)
        if opened is None and self._former is not None:
            opened = _opened(self._former, sealed, place)
        if opened is not None:
            return opened
        raise Unreadable(
            f"the secret stored at {place} cannot be decrypted",
            hint="it was changed outside of Toolyard; enter it again, or restore a backup",
        )

    def reseal(self, sealed: bytes, place: str) -> bytes | None:
        """What the former key sealed, sealed by this one; None where it is. Raises Unreadable."""
        if _opened(self._aead, sealed, place) is not None:
            return None
        return self.seal(self.open(sealed, place), place)

    def seal_text(self, secret: str | None, place: str) -> bytes | None:
        """Encrypt a text; None stays None."""
        return None if secret is None else self.seal(secret.encode(), place)

    def open_text(self, sealed: bytes | None, place: str) -> str | None:
        """Decrypt a text; None stays None. Raises Unreadable."""
        return None if sealed is None else self.open(sealed, place).decode()


def _aead(key: str, what: str) -> AESGCM:
    if len(key) < MIN_KEY:
        raise KeyUnusable(
            f"{what} has {len(key)} characters, and needs at least {MIN_KEY}",
            hint="make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    kdf = HKDF(SHA256(), 32, salt=None, info=b"toolyard store 1")
    return AESGCM(kdf.derive(key.encode(errors="surrogatepass")))


def _opened(aead: AESGCM, sealed: bytes, place: str) -> bytes | None:
    """None: this key does not open it."""
    if sealed[:1] != _VERSION or len(sealed) <= _NONCE:
        return None
    try:
        return aead.decrypt(sealed[1 : _NONCE + 1], sealed[_NONCE + 1 :], place.encode())
    except InvalidTag:
        return None
