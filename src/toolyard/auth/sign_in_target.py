"""Configuration of a sign-in: the server to sign in to, and our identity as an OAuth client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from toolyard.auth.oauth_http import AddressPolicy
from toolyard.auth.storage import OAuthClient, issuer_digest, same_issuer
from toolyard.types.registry import RegistrationMethod
from toolyard.types.server import OAuthSpec

__all__ = ["ClientIdentity", "SignInTarget", "with_current_secret"]


@dataclass(frozen=True, slots=True)
class SignInTarget:
    """A server to sign in to, with its OAuth configuration."""

    url: str
    oauth: OAuthSpec = field(default_factory=OAuthSpec)
    private_addresses: bool | None = None
    private_key: str | None = field(default=None, repr=False)
    """Contents of ``oauth.private_key_file``, in PEM; this package reads no files."""
    registration: RegistrationMethod = RegistrationMethod.AUTO
    """The way to obtain a client id."""

    @property
    def has_secret(self) -> bool:
        """True if a client secret or a private key is configured."""
        oauth = self.oauth
        return bool(oauth.client_secret or oauth.private_key_file or self.private_key)

    def trusts(self, issuer: str) -> bool:
        """Return whether an issuer may receive the configured client secret.

        True for any issuer if the server's entry names none.
        """
        return self.oauth.issuer is None or same_issuer(self.oauth.issuer, issuer)

    @property
    def address_policy(self) -> AddressPolicy:
        """The policy for addresses contacted during the sign-in."""
        return AddressPolicy(self.url, self.private_addresses)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Our identity as a client of authorization servers."""

    redirect_uri: str
    """The shared redirect URI, for clients that an operator registered manually. All other clients use
    ``redirect_uri_for``."""
    client_name: str = "Toolyard"
    client_uri: str | None = None
    document_url: str | None = None
    """Base of the addresses of client id metadata documents. None for a deployment without a public
    address."""
    dynamic_first: bool = False
    """Prefer dynamic registration over a client id metadata document if the server supports both."""

    def redirect_uri_for(self, issuer: str) -> str:
        """Return the redirect URI that is used for one issuer only.

        A hostile authorization server can forward the browser to an honest one, which then returns its code
        with the state of the hostile one (mix-up attack). Distinct redirect URIs detect that (RFC 9700,
        section 4.4.2), because the honest server redirects only to the address registered with it.
        """
        return f"{self.redirect_uri}/{issuer_digest(issuer)}"

    def document_url_for(self, issuer: str) -> str | None:
        """Return the address of the client id metadata document for one issuer, or None."""
        if self.document_url is None:
            return None
        return f"{self.document_url.removesuffix('.json')}/{issuer_digest(issuer)}.json"


def with_current_secret(client: OAuthClient, target: SignInTarget) -> OAuthClient:
    """Return the client with the currently configured secret, which may have changed since it was stored.

    Unchanged if the client is not the configured one or its issuer may not receive the secret.
    """
    is_configured_client = client.origin == "entered" and client.client_id == target.oauth.client_id
    if is_configured_client and target.trusts(client.issuer):
        return replace(client, secret=target.oauth.client_secret)
    return client
