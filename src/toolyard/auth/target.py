"""The two sides of a sign-in as the operator knows them: the server, and who we are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from toolyard.auth.reach import Reach
from toolyard.auth.records import Client
from toolyard.model.registry import Registration
from toolyard.model.server import OAuthSpec

__all__ = ["Ourselves", "Target", "up_to_date"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server to sign in to, and what the operator entered about it."""

    url: str
    oauth: OAuthSpec = field(default_factory=OAuthSpec)
    private_addresses: bool | None = None
    private_key: str | None = field(default=None, repr=False)
    """The text of ``oauth.private_key_file``, in PEM; this room reads no files."""
    registration: Registration = Registration.AUTO
    """How the operator wants us to get a client id."""

    @property
    def reach(self) -> Reach:
        """Which addresses may be asked."""
        return Reach(self.url, self.private_addresses)


@dataclass(frozen=True, slots=True)
class Ourselves:
    """Who we are to authorization servers."""

    redirect_uri: str
    client_name: str = "Toolyard"
    client_uri: str | None = None
    document_url: str | None = None
    """Where our client id metadata document is served; only a deployment with a public address has one."""
    dynamic_first: bool = False
    """Register dynamically where that is offered, even if a document would do."""


def up_to_date(client: Client, target: Target) -> Client:
    """The operator may have entered another secret since."""
    if client.origin == "entered" and client.client_id == target.oauth.client_id:
        return replace(client, secret=target.oauth.client_secret)
    return client
