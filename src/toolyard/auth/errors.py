"""Errors of signing in to a server.

SignInNeeded
└── AuthError                    sign-in failed or is needed; nothing of a failed attempt is stored
    ├── NeverSignedIn            there was no sign-in yet
    ├── SignInEnded              the sign-in expired or was revoked
    ├── ScopeNeeded              signed in, but more scopes are needed (``scopes``)
    ├── DiscoveryFailed          the authorization server cannot be found: not MCP-compliant
    │   ├── ResourceMismatch     the metadata belongs to another server
    │   ├── IssuerMismatch       an authorization server's metadata names another issuer
    │   └── AddressNotAllowed    the metadata contains an address that may not be used
    ├── PkceMissing              the authorization server does not offer PKCE with S256
    ├── RegistrationFailed       no client id could be obtained
    │   ├── WrongAuthorizationServer   the configured client id belongs to another one
    │   └── IssuerUnconfirmed    the issuer is not confirmed to receive the client secret (``issuer``)
    ├── SignInNotNeeded          the server answers without credentials and names no authorization server
    ├── AnswerRejected           the authorization response cannot be trusted or matched
    ├── AuthorizationDenied      the authorization server or the user denied the request (``code``)
    ├── TokenRefused             the token endpoint returned an error (``code``)
    │   └── ClientForgotten      our registration no longer exists; the next sign-in creates a new one
    └── TooManyAttempts          further sign-ins do not help
Unreachable
└── AuthUnavailable              network error, HTTP 5xx or unreadable response; nothing is lost, retry later
"""

from __future__ import annotations

from toolyard.errors import SignInNeeded, Unreachable

__all__ = [
    "AddressNotAllowed",
    "AnswerRejected",
    "AuthError",
    "AuthUnavailable",
    "AuthorizationDenied",
    "ClientForgotten",
    "DiscoveryFailed",
    "IssuerMismatch",
    "IssuerUnconfirmed",
    "NeverSignedIn",
    "PkceMissing",
    "RegistrationFailed",
    "ResourceMismatch",
    "ScopeNeeded",
    "SignInEnded",
    "SignInNotNeeded",
    "TokenRefused",
    "TooManyAttempts",
    "WrongAuthorizationServer",
]


class AuthUnavailable(Unreachable):
    """The authorization server cannot be reached or does not respond properly. Stored tokens are kept."""

    kind = "auth_unavailable"


class AuthError(SignInNeeded):
    """A sign-in failed or is needed."""

    kind = "sign_in_failed"


class NeverSignedIn(AuthError):
    """The server requires a sign-in, and there was none yet."""

    kind = "never_signed_in"


class SignInEnded(AuthError):
    """The sign-in expired or was revoked, and cannot be refreshed."""

    kind = "sign_in_ended"


class ScopeNeeded(AuthError):
    """The request needs scopes that the sign-in does not have."""

    kind = "scope_needed"

    def __init__(self, cause: str, *, scopes: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(cause, status=403, hint=hint)
        self.scopes = scopes


class DiscoveryFailed(AuthError):
    """The server does not publish its authorization server in the way that MCP prescribes."""

    kind = "discovery_failed"


class ResourceMismatch(DiscoveryFailed):
    """The metadata that the server refers to belongs to another server."""

    kind = "resource_mismatch"


class IssuerMismatch(DiscoveryFailed):
    """The metadata of an authorization server names another issuer than the requested one."""

    kind = "issuer_mismatch"


class AddressNotAllowed(DiscoveryFailed):
    """An address of the server or its metadata is private, not encrypted, or not a valid http(s) URL.

    ``is_private`` is true if allowing private addresses for the server would allow it.
    """

    kind = "address_not_allowed"

    def __init__(self, cause: str, *, hint: str | None = None, is_private: bool = False) -> None:
        super().__init__(cause, hint=hint)
        self.is_private = is_private


class PkceMissing(AuthError):
    """The authorization server does not offer PKCE with S256."""

    kind = "pkce_missing"


class RegistrationFailed(AuthError):
    """No client id could be obtained from the authorization server."""

    kind = "registration_failed"


class WrongAuthorizationServer(RegistrationFailed):
    """The configured client id belongs to another authorization server."""

    kind = "wrong_authorization_server"


class IssuerUnconfirmed(RegistrationFailed):
    """A client secret or key is configured, and the server's issuer is not confirmed to receive it."""

    kind = "issuer_unconfirmed"

    def __init__(self, cause: str, *, issuer: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.issuer = issuer


class SignInNotNeeded(AuthError):
    """The server answers without credentials and does not name an authorization server."""

    kind = "sign_in_not_needed"


class AnswerRejected(AuthError):
    """The authorization response has an unknown state, a wrong issuer or a wrong redirect URI."""

    kind = "answer_rejected"


class AuthorizationDenied(AuthError):
    """The authorization response is an error; ``code`` is the OAuth error code."""

    kind = "authorization_denied"

    def __init__(self, cause: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.code = code


class TokenRefused(AuthError):
    """The token endpoint returned an error; ``code`` is the OAuth error code."""

    kind = "token_refused"

    def __init__(self, cause: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.code = code


class ClientForgotten(TokenRefused):
    """The authorization server no longer has our dynamic registration."""

    kind = "client_forgotten"


class TooManyAttempts(AuthError):
    """The server still refuses access after the maximum number of sign-ins."""

    kind = "too_many_attempts"
