"""URLs of this server as users, clients and authorization servers see them."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request

from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.config.settings.table import RegistrationPreference, Settings
from toolyard.core.interface_links import InterfaceLinks
from toolyard.types.server import Server
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY

__all__ = ["CLIENT_DOCUMENT_PATH", "OAUTH_CALLBACK_PATH", "PublicUrls", "build_changes_path"]

OAUTH_CALLBACK_PATH = "/ui/auth/mcp/callback"
"""Path of the redirect URI that authorization servers send the browser back to."""
CLIENT_DOCUMENT_PATH = "/oauth/client.json"
"""Path of our OAuth client ID metadata document."""


class PublicUrls:
    """Builds URLs from the setting ``public_url``, or from the address under which a request reached us."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def base_url(self, request: Request) -> str:
        """Return the URL under which users reach this server, without a trailing slash."""
        return (self._settings.public_url or request.scope[REQUEST_CONTEXT_KEY].origin).rstrip("/")

    def build_client_identity(self, base_url: str) -> ClientIdentity:
        """Return our OAuth client identity for a user who reached us under ``base_url``."""
        public = self._settings.public_url
        # Authorization servers fetch the document, and the client id must be an https URL.
        document = (
            f"{public.rstrip('/')}{CLIENT_DOCUMENT_PATH}"
            if public and public.startswith("https://")
            else None
        )
        return ClientIdentity(
            redirect_uri=base_url + OAUTH_CALLBACK_PATH,
            client_uri=public,
            document_url=document,
            dynamic_first=self._settings.oauth_registration is RegistrationPreference.DYNAMIC,
        )

    def build_links(self, address: str) -> InterfaceLinks:
        """Return the links sent outside of a page; ``address`` is used if no public URL is configured."""
        base_url = self._settings.public_url or address
        page_url = base_url.rstrip("/")
        return InterfaceLinks(
            self.build_client_identity(base_url),
            f"{page_url}/ui/approvals",
            lambda server: page_url + build_changes_path(server),
        )


def build_changes_path(server: Server) -> str:
    """Return the path of the page where changes of a server are reviewed and accepted."""
    if server.instance is not None:
        return f"/ui/mcp/{quote(server.instance.id, safe='')}/changes"
    return f"/ui/admin/mcp/files/{quote(server.id, safe='')}/changes"
