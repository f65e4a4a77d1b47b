"""Authorization responses: the redirect that ends a sign-in in the browser, and the checks of its parameters
before the code is exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl

from toolyard.auth.errors import AnswerRejected, AuthorizationDenied
from toolyard.auth.oauth_http import sanitize_error_text
from toolyard.auth.records import PendingSignIn

__all__ = ["AuthorizationResponse"]

_SUSPICIOUS_RESPONSE_HINT = "this may be an attack: find the cause before you sign in here again"


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
            raise AnswerRejected("the response contains a parameter more than once", hint="start again")
        return cls(address, params)

    @classmethod
    def parse(cls, url: str) -> AuthorizationResponse:
        """Parse the URL that the browser was redirected to. Raises AnswerRejected."""
        address, _, query = url.partition("#")[0].partition("?")
        return cls.from_query(address, parse_qsl(query, keep_blank_values=True))

    def extract_code(self, pending: PendingSignIn) -> str:
        """Return the code if the response matches the pending sign-in.

        Raises AnswerRejected if it does not match, and AuthorizationDenied for an OAuth error response.
        """
        # Both checks are the defence against mix-up attacks (RFC 9700, section 4.4): a malicious server must
        # not get a code of another one sent to its own token endpoint. They come before ``error``, whose text
        # would otherwise be reported as that of the expected server.
        self._check_address(pending)
        self._check_issuer(pending)
        if "error" in self.params:
            self._raise_denied(pending)
        if not (code := self.params.get("code")):
            raise AnswerRejected("the authorization server returned neither code nor error")
        return code

    def _check_address(self, pending: PendingSignIn) -> None:
        if self.address != pending.client.redirect_uri:
            raise AnswerRejected(
                f"the response to a sign-in at {pending.client.issuer} arrived at the redirect address of"
                " another authorization server",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )

    def _check_issuer(self, pending: PendingSignIn) -> None:
        """Compare ``iss`` exactly (RFC 9207), before any other parameter of the response is used."""
        issuer, stated_issuer = pending.client.issuer, self.params.get("iss")
        # Anyone can use our public metadata document at another authorization server, so with a document
        # the redirect address does not identify the server.
        is_required = pending.iss_promised or pending.client.origin == "document"
        if stated_issuer is None and is_required:
            raise AnswerRejected(
                f"the response lacks the required parameter 'iss', which should be {issuer}",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )
        if stated_issuer is not None and stated_issuer != issuer:
            raise AnswerRejected(
                f"the response comes from another authorization server than {issuer}",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )

    def _raise_denied(self, pending: PendingSignIn) -> NoReturn:
        code = sanitize_error_text(self.params.get("error"), max_characters=60)
        description = sanitize_error_text(self.params.get("error_description"))
        detail = f"{code} ({description})" if description else code
        hint = "sign in again and allow access" if code == "access_denied" else "try again"
        raise AuthorizationDenied(
            f"the authorization server {pending.client.issuer} refused: {detail}", code=code, hint=hint
        )
