"""Encryption of what is stored: AES-GCM, each ciphertext bound to its place."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolyard.store.errors import KeyUnusable, Unreadable

__all__ = ["MIN_KEY", "Cipher"]

MIN_KEY = 16
"""Characters that the text of a key has at least."""

_VERSION = b"\x01"
_NONCE = 12


class Cipher:
    """Seals and opens bytes. ``place`` is table, column and row: what was moved elsewhere does not open."""

    def __init__(self, key: str) -> None:
        """Raises KeyUnusable where the key is too short."""
        if len(key) < MIN_KEY:
            raise KeyUnusable(
                f"the secret key has {len(key)} characters, and needs at least {MIN_KEY}",
                hint="make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        derived = HKDF(SHA256(), 32, salt=None, info=b"toolyard store 1").derive(
            key.encode(errors="surrogatepass")
        )
        self._aead = AESGCM(derived)
        self._root = HKDF(SHA256(), 32, salt=None, info=b"toolyard derived 1").derive(
            key.encode(errors="surrogatepass")
        )

    def derive(self, purpose: str) -> bytes:
        """32 bytes that only those know who have the key: others for each purpose, the same everywhere."""
        return HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(self._root)

    def seal(self, secret: bytes, place: str) -> bytes:
        """Encrypt for one place."""
        nonce = os.urandom(_NONCE)
        return b"".join((_VERSION, nonce, self._aead.encrypt(nonce, secret, place.encode())))

    def open(self, sealed: bytes, place: str) -> bytes:
        """Decrypt what was sealed for this place. Raises Unreadable."""
        if sealed[:1] == _VERSION and len(sealed) > _NONCE:
            try:
                return self._aead.decrypt(sealed[1 : _NONCE + 1], sealed[_NONCE + 1 :], place.encode())
            except InvalidTag:
                pass
        raise Unreadable(
            f"the secret stored at {place} cannot be decrypted",
            hint="it was changed outside of Toolyard; enter it again, or restore a backup",
        )

    def seal_text(self, secret: str | None, place: str) -> bytes | None:
        """Encrypt a text; None stays None."""
        return None if secret is None else self.seal(secret.encode(), place)

    def open_text(self, sealed: bytes | None, place: str) -> str | None:
        """Decrypt a text; None stays None. Raises Unreadable."""
        return None if sealed is None else self.open(sealed, place).decode()
