"""The two sides of a sign-in as the operator knows them: the server, and who we are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from toolyard.auth.address_policy import AddressPolicy
from toolyard.auth.records import OAuthClient, issuer_digest, same_issuer
from toolyard.types.registry import RegistrationMethod
from toolyard.types.server import OAuthSpec

__all__ = ["ClientIdentity", "SignInTarget", "with_current_secret"]


@dataclass(frozen=True, slots=True)
class SignInTarget:
    """A server to sign in to, and what the operator entered about it."""

    url: str
    oauth: OAuthSpec = field(default_factory=OAuthSpec)
    private_addresses: bool | None = None
    private_key: str | None = field(default=None, repr=False)
    """The text of ``oauth.private_key_file``, in PEM; this room reads no files."""
    registration: RegistrationMethod = RegistrationMethod.AUTO
    """How the operator wants us to get a client id."""

    @property
    def has_secret(self) -> bool:
        """Whether the operator entered something that proves who we are: a client secret or a private key."""
        oauth = self.oauth
        return bool(oauth.client_secret or oauth.private_key_file or self.private_key)

    def trusts(self, issuer: str) -> bool:
        """Return whether the entry lets an issuer have its client secret; one that names none does."""
        return self.oauth.issuer is None or same_issuer(self.oauth.issuer, issuer)

    @property
    def address_policy(self) -> AddressPolicy:
        """Which addresses may be asked."""
        return AddressPolicy(self.url, self.private_addresses)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who we are to authorization servers."""

    redirect_uri: str
    """The shared redirect address, for clients that an operator registered with it by hand. All others use
    ``redirect_for``."""
    client_name: str = "Toolyard"
    client_uri: str | None = None
    document_url: str | None = None
    """The address from which those of the client id metadata documents are derived; only a deployment with a
    public address has one."""
    dynamic_first: bool = False
    """Register dynamically where that is offered, even if a document would do."""

    def redirect_uri_for(self, issuer: str) -> str:
        """Return the redirect address that belongs to one issuer alone.

        A hostile authorization server can send the browser on to an honest one, which then returns its code
        with the hostile one's state. The address that the browser returns to tells them apart (RFC 9700,
        section 4.4.2), because the honest one redirects only to the address registered there.
        """
        return f"{self.redirect_uri}/{issuer_digest(issuer)}"

    def document_url_for(self, issuer: str) -> str | None:
        """Return the address of the client id metadata document that one issuer alone is given."""
        if self.document_url is None:
            return None
        return f"{self.document_url.removesuffix('.json')}/{issuer_digest(issuer)}.json"


def with_current_secret(client: OAuthClient, target: SignInTarget) -> OAuthClient:
    """The operator may have entered another secret since; it is not for an issuer that the entry does not
    name."""
    ours = client.origin == "entered" and client.client_id == target.oauth.client_id
    if ours and target.trusts(client.issuer):
        return replace(client, secret=target.oauth.client_secret)
    return client
