"""What can go wrong while signing in to a server, each with one sentence and a hint.

SignInNeeded
└── AuthError                    signing in did not work, or is needed; nothing half-done is kept
    ├── NeverSignedIn            nobody has signed in yet
    ├── SignInEnded              somebody had; it ran out or was taken back
    ├── ScopeNeeded              signed in, but this needs more (``scopes``)
    ├── DiscoveryFailed          the server does not say where to sign in: not MCP-compliant
    │   ├── ResourceMismatch     its metadata speaks for another server
    │   ├── IssuerMismatch       an authorization server's metadata names another issuer
    │   └── AddressNotAllowed    an address that it names may not be used
    ├── PkceMissing              the authorization server does not offer PKCE with S256
    ├── RegistrationFailed       we got no client id
    │   ├── WrongAuthorizationServer   the client id that was entered belongs to another one
    │   └── IssuerUnconfirmed    nobody confirmed that the entered secret may be sent there (``issuer``)
    ├── AnswerRejected           the answer to the sign-in cannot be trusted or matched
    ├── AuthorizationDenied      the authorization server or the person said no (``code``)
    ├── TokenRefused             the token endpoint said no (``code``)
    │   └── ClientForgotten      it no longer knows our registration; the next sign-in makes a new one
    └── TooManyAttempts          signing in again does not help
Unreachable
└── AuthUnavailable              a network fault, a 5xx or nonsense: nothing was lost, try again later
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
    "TokenRefused",
    "TooManyAttempts",
    "WrongAuthorizationServer",
]


class AuthUnavailable(Unreachable):
    """The authorization server could not be asked. What we hold stays as it was."""

    kind = "auth_unavailable"


class AuthError(SignInNeeded):
    """Signing in did not work, or is needed."""

    kind = "sign_in_failed"


class NeverSignedIn(AuthError):
    """The server wants a sign-in, and there was none yet."""

    kind = "never_signed_in"


class SignInEnded(AuthError):
    """The sign-in ran out or was taken back, and cannot be refreshed."""

    kind = "sign_in_ended"


class ScopeNeeded(AuthError):
    """What was asked of the server needs scopes that the sign-in does not have."""

    kind = "scope_needed"

    def __init__(self, cause: str, *, scopes: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(cause, status=403, hint=hint)
        self.scopes = scopes


class DiscoveryFailed(AuthError):
    """The server does not say, in the way that MCP prescribes, where to sign in."""

    kind = "discovery_failed"


class ResourceMismatch(DiscoveryFailed):
    """The metadata that the server points to is that of another server."""

    kind = "resource_mismatch"


class IssuerMismatch(DiscoveryFailed):
    """The metadata of an authorization server names another issuer than the one that was asked."""

    kind = "issuer_mismatch"


class AddressNotAllowed(DiscoveryFailed):
    """An address that the server's words name is private, not encrypted, or no web address."""

    kind = "address_not_allowed"


class PkceMissing(AuthError):
    """The authorization server does not offer PKCE with S256."""

    kind = "pkce_missing"


class RegistrationFailed(AuthError):
    """There is no client id for us at the authorization server."""

    kind = "registration_failed"


class WrongAuthorizationServer(RegistrationFailed):
    """The client id that the operator entered belongs to another authorization server."""

    kind = "wrong_authorization_server"


class IssuerUnconfirmed(RegistrationFailed):
    """A client secret or key was entered, and nobody confirmed the issuer that the server names."""

    kind = "issuer_unconfirmed"

    def __init__(self, cause: str, *, issuer: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.issuer = issuer


class AnswerRejected(AuthError):
    """The answer to a sign-in has an unknown state, a wrong issuer, or comes from elsewhere."""

    kind = "answer_rejected"


class AuthorizationDenied(AuthError):
    """The authorization server answered the sign-in with an error; ``code`` is its OAuth name."""

    kind = "authorization_denied"

    def __init__(self, cause: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.code = code


class TokenRefused(AuthError):
    """The token endpoint refused; ``code`` is the OAuth name of the error."""

    kind = "token_refused"

    def __init__(self, cause: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.code = code


class ClientForgotten(TokenRefused):
    """The authorization server no longer knows the client that we had registered there."""

    kind = "client_forgotten"


class TooManyAttempts(AuthError):
    """The server still refuses after as many sign-ins as make sense."""

    kind = "too_many_attempts"
