"""The state that a modern client carries for us between two rounds of one request.

It is encrypted, bound to who asked and what, and expires: whoever changes it, keeps it too long or brings it
with another request is turned away.
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
from toolyard.types.clock import is_recent

__all__ = ["REQUEST_STATE_SECONDS", "RequestStateSealer"]

REQUEST_STATE_SECONDS = 900.0
"""Seconds for which a state is good: a person may be filling in a form."""
_NONCE_BYTES = 12
_ROUND_PARAMS = ("_meta", "inputResponses", "requestState")
"""Parameters that differ from round to round of one request."""


class RequestStateSealer:
    """Seals states with one key. Replicas that share the key open each other's."""

    def __init__(self, key: bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        """``key`` has 32 bytes; without one, states are good in this process only."""
        self._key = key or os.urandom(32)
        self._clock = clock

    def seal(
        self, content: Mapping[str, Any], principal_id: str, method: str, params: Mapping[str, Any]
    ) -> str:
        """The text that stands for ``content`` in the next round of this request."""
        nonce = os.urandom(_NONCE_BYTES)
        text = encode({"until": self._clock() + REQUEST_STATE_SECONDS, "content": content})
        sealed = nonce + self._make_cipher().encrypt(
            nonce, text, _request_digest(principal_id, method, params)
        )
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, sealed: object, principal_id: str, method: str, params: Mapping[str, Any]) -> Any:
        """What was sealed. Raises Refusal for what we did not seal for this request, or too long ago."""
        from cryptography.exceptions import InvalidTag  # only for requests of several rounds

        try:
            text = cast("str", sealed).encode("ascii")
            data = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
            # Decoding skips what is no base64; what was changed must not pass for what was sealed.
            if base64.urlsafe_b64encode(data).rstrip(b"=") != text:
                raise ValueError("not as it was sealed")
            opened = self._make_cipher().decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], _request_digest(principal_id, method, params)
            )
        except (InvalidTag, ValueError, AttributeError, binascii.Error):
            raise RpcErrorResponse(
                INVALID_PARAMS, "requestState is not what was given for this request"
            ) from None
        found = decode(opened)
        if not is_recent(found["until"] - REQUEST_STATE_SECONDS, self._clock(), REQUEST_STATE_SECONDS):
            raise RpcErrorResponse(INVALID_PARAMS, "requestState has expired; make the request anew")
        return found["content"]

    def _make_cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only for requests of several rounds

        return AESGCM(self._key)


def _request_digest(principal_id: str, method: str, params: Mapping[str, Any]) -> bytes:
    """What names a request in all its rounds."""
    own = {key: params[key] for key in sorted(params) if key not in _ROUND_PARAMS}
    words = encode([principal_id, method, own])
    return hashlib.sha256(words).digest()
