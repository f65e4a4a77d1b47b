"""Encryption of stored secrets with AES-GCM.

A ciphertext is a format version, a random nonce and the AES-GCM output. Its associated data names the table,
column and row that it belongs to, so a ciphertext copied into another row cannot be decrypted there.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolyard.store.errors import KeyUnusable, Unreadable, WrongKey

__all__ = ["MIN_KEY_CHARACTERS", "Cipher"]

MIN_KEY_CHARACTERS = 16
"""Minimum length of a secret key, in characters."""

_FORMAT_VERSION = b"\x01"
_NONCE_BYTES = 12


class Cipher:
    """Encrypts and decrypts values. ``associated_data`` names the table, column and row of a value."""

    def __init__(self, key: str, former_key: str | None = None) -> None:
        """Derive the encryption keys.

        ``former_key`` only decrypts values that it encrypted earlier. Raises KeyUnusable if a key is too
        short.
        """
        self._aead = _build_aead(key, "the secret key")
        self._former_aead = None if former_key is None else _build_aead(former_key, "the former secret key")
        self._retired = False
        # A second derivation with another label, so that derived keys are independent of the encryption key.
        self._derivation_key = HKDF(SHA256(), 32, salt=None, info=b"toolyard derived 1").derive(
            key.encode(errors="surrogatepass")
        )

    def retire(self) -> bool:
        """Refuse to encrypt from now on, because the database uses another key. Return False if it did."""
        was_retired, self._retired = self._retired, True
        return not was_retired

    def derive_key(self, purpose: str) -> bytes:
        """Derive 32 secret bytes for a purpose. Equal in every process that has the same secret key."""
        return HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(self._derivation_key)

    def encrypt(self, plaintext: bytes, associated_data: str) -> bytes:
        """Encrypt a value for one row. Raises WrongKey after ``retire``."""
        if self._retired:
            raise WrongKey(
                "nothing was stored: the database now uses a new secret key",
                hint="restart this process with the new TOOLYARD_SECRET_KEY",
            )
        nonce = os.urandom(_NONCE_BYTES)
        return b"".join(
            (_FORMAT_VERSION, nonce, self._aead.encrypt(nonce, plaintext, associated_data.encode()))
        )

    def decrypt(self, ciphertext: bytes, associated_data: str) -> bytes:
        """Decrypt a value of one row, with the current or the former key. Raises Unreadable."""
        plaintext = _try_decrypt(self._aead, ciphertext, associated_data)
        if plaintext is None and self._former_aead is not None:
            plaintext = _try_decrypt(self._former_aead, ciphertext, associated_data)
        if plaintext is not None:
            return plaintext
        raise Unreadable(
            f"the secret stored at {associated_data} cannot be decrypted",
            hint="it was changed outside Toolyard; enter it again, or restore a backup",
        )

    def uses_current_key(self, ciphertext: bytes, associated_data: str) -> bool:
        """Return whether a value is encrypted with the current key, not the former one."""
        return _try_decrypt(self._aead, ciphertext, associated_data) is not None

    def reencrypt(self, ciphertext: bytes, associated_data: str) -> bytes | None:
        """Encrypt a value with the current key; None if that already was the key. Raises Unreadable."""
        if self.uses_current_key(ciphertext, associated_data):
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
            f"{label} has {len(key)} characters; at least {MIN_KEY_CHARACTERS} are required",
            hint="generate one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    # HKDF turns a text of any length into the 32 bytes of AES-256. It is not a password hash: the hint above
    # asks for a random key, and the minimum length refuses short passwords.
    kdf = HKDF(SHA256(), 32, salt=None, info=b"toolyard store 1")
    return AESGCM(kdf.derive(key.encode(errors="surrogatepass")))


def _try_decrypt(aead: AESGCM, ciphertext: bytes, associated_data: str) -> bytes | None:
    """Return the plaintext, or None if this key cannot decrypt the value."""
    if ciphertext[:1] != _FORMAT_VERSION or len(ciphertext) <= _NONCE_BYTES:
        return None
    try:
        return aead.decrypt(
            ciphertext[1 : _NONCE_BYTES + 1], ciphertext[_NONCE_BYTES + 1 :], associated_data.encode()
        )
    except InvalidTag:
        return None
