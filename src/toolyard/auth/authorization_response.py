"""The authorization response: the redirect with which a browser returns, and the checks before its code is
redeemed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl

from toolyard.auth.errors import AnswerRejected, AuthorizationDenied
from toolyard.auth.oauth_http import sanitize_error_text
from toolyard.auth.records import PendingSignIn

__all__ = ["AuthorizationResponse"]

_SUSPICIOUS_RESPONSE_HINT = "do not sign in here again before you know why"


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """Query parameters, and the redirect address at which they arrived."""

    address: str
    """Without query and fragment."""
    params: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_query(cls, address: str, pairs: Iterable[tuple[str, str]]) -> AuthorizationResponse:
        """Read the query of a request. Raises AnswerRejected for a repeated parameter (RFC 6749, 3.1)."""
        pairs = list(pairs)
        params = dict(pairs)
        if len(params) < len(pairs):
            raise AnswerRejected("the answer has a parameter more than once", hint="begin it again")
        return cls(address, params)

    @classmethod
    def parse(cls, url: str) -> AuthorizationResponse:
        """Read the URL that a browser ended on. Raises AnswerRejected."""
        address, _, query = url.partition("#")[0].partition("?")
        return cls.from_query(address, parse_qsl(query, keep_blank_values=True))

    def extract_code(self, pending: PendingSignIn) -> str:
        """Return the code, if this response can be the one to a pending sign-in.

        Raises AnswerRejected, or AuthorizationDenied where the authorization server answered with an error.
        """
        self._check_address(pending)
        self._check_issuer(pending)
        if "error" in self.params:
            self._raise_denied(pending)
        if not (code := self.params.get("code")):
            raise AnswerRejected("the authorization server sent back neither code nor error")
        return code

    def _check_address(self, pending: PendingSignIn) -> None:
        if self.address != pending.client.redirect_uri:
            raise AnswerRejected(
                f"the answer to a sign-in at {pending.client.issuer} arrived at the redirect address of"
                " another authorization server",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )

    def _check_issuer(self, pending: PendingSignIn) -> None:
        """Compare ``iss`` as it is (RFC 9207), before anything else of the response is used."""
        issuer, named = pending.client.issuer, self.params.get("iss")
        # Anybody may present our metadata document elsewhere, so its redirect address proves nothing.
        required = pending.iss_promised or pending.client.origin == "document"
        if named is None and required:
            raise AnswerRejected(
                f"the answer does not say that it comes from {issuer}, as it should",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )
        if named is not None and named != issuer:
            raise AnswerRejected(
                f"the answer comes from another authorization server than {issuer}",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )

    def _raise_denied(self, pending: PendingSignIn) -> NoReturn:
        code = sanitize_error_text(self.params.get("error"), max_characters=60)
        words = sanitize_error_text(self.params.get("error_description"))
        said = f"{code} ({words})" if words else code
        hint = "sign in again and allow it" if code == "access_denied" else "try again"
        raise AuthorizationDenied(
            f"the authorization server {pending.client.issuer} refused: {said}", code=code, hint=hint
        )
