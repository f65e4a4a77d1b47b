"""The encrypted state that a client carries between two rounds of one request.

It is bound to the caller and the request, and expires. A state that was changed, is too old or belongs to
another request is rejected.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.types.timestamps import is_recent

__all__ = ["REQUEST_STATE_SECONDS", "RequestStateSealer"]

REQUEST_STATE_SECONDS = 900.0
"""Lifetime of a state, long enough for a person to fill in a form."""
_NONCE_BYTES = 12
_ROUND_PARAMS = ("_meta", "inputResponses", "requestState")
"""Parameters that differ between the rounds of one request."""


class RequestStateSealer:
    """Encrypts states with one key. Replicas that share the key accept each other's states."""

    def __init__(self, key: bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        """``key`` has 32 bytes; without one, states are valid in this process only."""
        self._key = key or os.urandom(32)
        self._clock = clock

    def seal(
        self, content: Mapping[str, Any], principal_id: str, method: str, params: Mapping[str, Any]
    ) -> str:
        """Encrypt ``content`` for the next round of this request."""
        nonce = os.urandom(_NONCE_BYTES)
        text = encode({"until": self._clock() + REQUEST_STATE_SECONDS, "content": content})
        sealed = nonce + self._make_cipher().encrypt(
            nonce, text, _request_digest(principal_id, method, params)
        )
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, sealed: object, principal_id: str, method: str, params: Mapping[str, Any]) -> Any:
        """Decrypt a state. Raises RpcErrorResponse if it was not made for this request, or has expired."""
        from cryptography.exceptions import InvalidTag  # only for requests of several rounds

        try:
            text = cast("str", sealed).encode("ascii")
            data = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
            # Decoding skips characters that are not base64, so a changed text could otherwise be accepted.
            if base64.urlsafe_b64encode(data).rstrip(b"=") != text:
                raise ValueError("requestState was modified")
            opened = self._make_cipher().decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], _request_digest(principal_id, method, params)
            )
        except (InvalidTag, ValueError, AttributeError, binascii.Error):
            raise RpcErrorResponse(INVALID_PARAMS, "requestState does not belong to this request") from None
        found = decode(opened)
        if not is_recent(found["until"] - REQUEST_STATE_SECONDS, self._clock(), REQUEST_STATE_SECONDS):
            raise RpcErrorResponse(INVALID_PARAMS, "requestState has expired; send the request again")
        return found["content"]

    def _make_cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only for requests of several rounds

        return AESGCM(self._key)


def _request_digest(principal_id: str, method: str, params: Mapping[str, Any]) -> bytes:
    """Return the digest that identifies a request in all its rounds."""
    own = {key: params[key] for key in sorted(params) if key not in _ROUND_PARAMS}
    words = encode([principal_id, method, own])
    return hashlib.sha256(words).digest()
