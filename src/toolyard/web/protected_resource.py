"""The gateway as an OAuth protected resource (RFC 9728).

In mode ``oidc``, a standard MCP client discovers the identity provider through the metadata document served
here, and then authenticates with an access token from that provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolyard.accounts import AccountService
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.net import OutboundHttp
from toolyard.types.account import RequestUser, Right, TokenScope
from toolyard.web.access.authentication import read_bearer_token
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY
from toolyard.web.public_urls import PublicUrls
from toolyard.web.routes import Routes
from toolyard.web.service_lookup import SERVICE

if TYPE_CHECKING:
    from toolyard.accounts.oidc.sign_in import BearerAuthenticator

__all__ = ["GATEWAY_PREFIX", "RESOURCE_METADATA_PATH", "ResourceServer", "router"]

RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
GATEWAY_PREFIX = "/mcp"
_METADATA_CACHE_SECONDS = 300
_ACCESS_TOKEN_SCOPE = TokenScope(frozenset({Right.CALL}))
"""Rights of an access token: gateway calls only, whatever else its user may do."""

router = Routes(include_in_schema=False)


class ResourceServer:
    """Authenticates gateway requests by access tokens of the identity provider, in mode ``oidc``."""

    def __init__(
        self, settings: Settings, net: OutboundHttp, people: AccountService, urls: PublicUrls
    ) -> None:
        self._settings = settings
        self._net = net
        self._people = people
        self._urls = urls
        self._bearer_authenticator: BearerAuthenticator | None = None

    @property
    def is_enabled(self) -> bool:
        """True in mode ``oidc``, the only one with an identity provider."""
        return self._settings.people_mode is PeopleMode.OIDC

    @property
    def bearer_authenticator(self) -> BearerAuthenticator:
        """The token verifier, created on first use."""
        if self._bearer_authenticator is None:
            # Imported here because the other modes need no cryptography for signatures.
            from toolyard.accounts.oidc.sign_in import BearerAuthenticator

            self._bearer_authenticator = BearerAuthenticator(self._settings, self._net)
        return self._bearer_authenticator

    def build_url(self, request: Request, path: str) -> str:
        """Return the absolute URL of a path of ours, percent-encoded."""
        return self._urls.base_url(request) + quote(path, safe="/")

    async def authenticate(self, request: Request) -> RequestUser | None:
        """Return the user of an access token, or None if the bearer token is not a JWT.

        Raises NotSignedIn, NotAllowed or ProviderFailed.
        """
        # Imported here because the other modes need no cryptography for signatures.
        from toolyard.accounts.oidc.tokens import is_jwt_shaped

        # Our own API tokens are not JWTs, and are handled by the usual authentication.
        token = read_bearer_token(request)
        if token is None or not is_jwt_shaped(token):
            return None
        identity = await self.bearer_authenticator.authenticate(token, self._list_accepted_audiences(request))
        user = await self._people.authenticate_identity(identity)
        return RequestUser(user, _ACCESS_TOKEN_SCOPE, request.scope[REQUEST_CONTEXT_KEY].address)

    def _list_accepted_audiences(self, request: Request) -> set[str]:
        """Return the accepted ``aud`` values: this URL, the whole gateway, or the whole server."""
        requested_url = self.build_url(request, str(request.scope["path"]).rstrip("/"))
        base = self._urls.base_url(request)
        return {requested_url, f"{base}{GATEWAY_PREFIX}", base, f"{base}/"}

    def build_challenge(self, scope: Any, error_description: str) -> dict[str, str]:
        """Return the header of a 401 response, which names the metadata URL in mode ``oidc``."""
        if not self.is_enabled:
            return {"WWW-Authenticate": "Bearer"}
        request = Request(scope)
        metadata_url = self.build_url(
            request, RESOURCE_METADATA_PATH + str(request.scope["path"]).rstrip("/")
        )
        error = (
            ""
            if read_bearer_token(request) is None
            else f', error="invalid_token", error_description="{_strip_unquotable(error_description)}"'
        )
        return {"WWW-Authenticate": f'Bearer resource_metadata="{metadata_url}"{error}'}


@router.get(RESOURCE_METADATA_PATH)
@router.get(RESOURCE_METADATA_PATH + "/{path:path}")
async def show_resource_metadata(request: Request, resource: Annotated[ResourceServer, SERVICE]) -> Response:
    """Return the protected resource metadata for a gateway URL, whether or not that endpoint exists."""
    path = str(request.scope["path"]).removeprefix(RESOURCE_METADATA_PATH).rstrip("/")
    if not resource.is_enabled or (path and not f"{path}/".startswith(f"{GATEWAY_PREFIX}/")):
        raise HTTPException(404)
    document = {
        "resource": resource.build_url(request, path),
        "authorization_servers": [await resource.bearer_authenticator.get_issuer()],
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolyard",
    }
    return JSONResponse(document, headers={"Cache-Control": f"public, max-age={_METADATA_CACHE_SECONDS}"})


def _strip_unquotable(text: str) -> str:
    """Return the first line of a text without the characters that a quoted string must not contain."""
    line = text.partition("\n")[0]
    return "".join(char for char in line if " " <= char <= "~" and char not in '"\\')
