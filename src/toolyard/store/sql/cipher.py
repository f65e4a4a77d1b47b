"""Encryption of what is stored: AES-GCM, each ciphertext bound to its place."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolyard.store.errors import KeyUnusable, Unreadable, WrongKey

__all__ = ["MIN_KEY_CHARACTERS", "Cipher"]

MIN_KEY_CHARACTERS = 16
"""Characters that the text of a key has at least."""

_FORMAT_VERSION = b"\x01"
_NONCE_BYTES = 12


class Cipher:
    """Seals and opens bytes. ``place`` is table, column and row: what was moved elsewhere does not open."""

    def __init__(self, key: str, former_key: str | None = None) -> None:
        """``former`` opens what it sealed, and seals nothing. Raises KeyUnusable where a key is too short."""
        self._aead = _build_aead(key, "the secret key")
        self._former_aead = None if former_key is None else _build_aead(former_key, "the former secret key")
        self._retired = False
        self._derivation_key = HKDF(SHA256(), 32, salt=None, info=b"toolyard derived 1").derive(
            key.encode(errors="surrogatepass")
        )

    def retire(self) -> None:
        """From now on seal nothing: the database has another key."""
        self._retired = True

    def derive_key(self, purpose: str) -> bytes:
        """32 bytes that only those know who have the key: others for each purpose, the same everywhere."""
        return HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(self._derivation_key)

    def encrypt(self, plaintext: bytes, associated_data: str) -> bytes:
        """Encrypt for one place. Raises WrongKey where the key was replaced."""
        if self._retired:
            raise WrongKey(
                "nothing was stored: the database was encrypted with a new secret key",
                hint="restart this process with the new TOOLYARD_SECRET_KEY",
            )
        nonce = os.urandom(_NONCE_BYTES)
        return b"".join(
            (_FORMAT_VERSION, nonce, self._aead.encrypt(nonce, plaintext, associated_data.encode()))
        )

    def decrypt(self, ciphertext: bytes, associated_data: str) -> bytes:
        """Decrypt what was sealed for this place. Raises Unreadable."""
        opened = _try_decrypt(self._aead, ciphertext, associated_data)
        if opened is None and self._former_aead is not None:
            opened = _try_decrypt(self._former_aead, ciphertext, associated_data)
        if opened is not None:
            return opened
        raise Unreadable(
            f"the secret stored at {associated_data} cannot be decrypted",
            hint="it was changed outside of Toolyard; enter it again, or restore a backup",
        )

    def reencrypt(self, ciphertext: bytes, associated_data: str) -> bytes | None:
        """What the former key sealed, sealed by this one; None where it is. Raises Unreadable."""
        if _try_decrypt(self._aead, ciphertext, associated_data) is not None:
            return None
        return self.encrypt(self.decrypt(ciphertext, associated_data), associated_data)

    def encrypt_text(self, plaintext: str | None, associated_data: str) -> bytes | None:
        """Encrypt a text; None stays None."""
        return None if plaintext is None else self.encrypt(plaintext.encode(), associated_data)

    def decrypt_text(self, ciphertext: bytes | None, associated_data: str) -> str | None:
        """Decrypt a text; None stays None. Raises Unreadable."""
        return None if ciphertext is None else self.decrypt(ciphertext, associated_data).decode()


def _build_aead(key: str, label: str) -> AESGCM:
    if len(key) < MIN_KEY_CHARACTERS:
        raise KeyUnusable(
            f"{label} has {len(key)} characters, and needs at least {MIN_KEY_CHARACTERS}",
            hint="make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    kdf = HKDF(SHA256(), 32, salt=None, info=b"toolyard store 1")
    return AESGCM(kdf.derive(key.encode(errors="surrogatepass")))


def _try_decrypt(aead: AESGCM, ciphertext: bytes, associated_data: str) -> bytes | None:
    """None: this key does not open it."""
    if ciphertext[:1] != _FORMAT_VERSION or len(ciphertext) <= _NONCE_BYTES:
        return None
    try:
        return aead.decrypt(
            ciphertext[1 : _NONCE_BYTES + 1], ciphertext[_NONCE_BYTES + 1 :], associated_data.encode()
        )
    except InvalidTag:
        return None
