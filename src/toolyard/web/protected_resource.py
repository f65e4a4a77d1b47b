"""The gateway as a protected resource of OAuth (RFC 9728): in the mode oidc a standard MCP client finds the
identity provider by itself, and comes back with an access token of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolyard.config.settings.choices import PeopleMode
from toolyard.types.account import Right, TokenScope
from toolyard.web.access.dependencies import RequestUser, read_bearer_token
from toolyard.web.access.request_context import get_request_context

if TYPE_CHECKING:
    from toolyard.accounts.oidc.bearer_auth import BearerAuthenticator
    from toolyard.web.services import Services

__all__ = ["RESOURCE_METADATA_PATH", "ResourceServer", "router"]

RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
_GATEWAY_PREFIX = "/mcp"
_METADATA_CACHE_SECONDS = 300
_ACCESS_TOKEN_SCOPE = TokenScope(frozenset({Right.CALL}))
"""What an access token is good for: calls at the gateway, whatever else its person may do."""

router = APIRouter(include_in_schema=False)


@router.get(RESOURCE_METADATA_PATH)
@router.get(RESOURCE_METADATA_PATH + "/{path:path}")
async def show_resource_metadata(request: Request) -> Response:
    """Which authorization server gives tokens for an address of the gateway. Says nothing of what is
    there."""
    resource: ResourceServer = request.app.state.site.mcp.resource
    path = str(request.scope["path"]).removeprefix(RESOURCE_METADATA_PATH).rstrip("/")
    if not resource.is_enabled or (path and not _is_gateway_path(path)):
        raise HTTPException(404)
    document = {
        "resource": resource.address(request, path),
        "authorization_servers": [await resource.bearer_authenticator.issuer()],
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolyard",
    }
    return JSONResponse(document, headers={"Cache-Control": f"public, max-age={_METADATA_CACHE_SECONDS}"})


class ResourceServer:
    """Whom the tokens of the identity provider let in. Only in the mode oidc is there one."""

    def __init__(self, site: Services) -> None:
        self._services = site
        self._bearer_authenticator: BearerAuthenticator | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether an identity provider gives tokens for us."""
        return self._services.settings.people_mode is PeopleMode.OIDC

    @property
    def bearer_authenticator(self) -> BearerAuthenticator:
        """The identity provider, asked when somebody comes."""
        if self._bearer_authenticator is None:
            from toolyard.accounts.oidc.bearer_auth import (
                BearerAuthenticator,  # the other modes check no signatures
            )

            self._bearer_authenticator = BearerAuthenticator(self._services.settings, self._services.net)
        return self._bearer_authenticator

    def address(self, request: Request, path: str) -> str:
        """An address of ours, as others write it."""
        return self._services.base_url(request) + quote(path, safe="/")

    async def authenticate(self, request: Request) -> RequestUser | None:
        """Who comes with an access token; None where it is none, and something else may be said by it.

        Raises NotSignedIn, NotAllowed or ProviderFailed.
        """
        from toolyard.accounts.oidc.bearer_auth import is_jwt_shaped  # the other modes check no signatures

        token = read_bearer_token(request)
        if token is None or not is_jwt_shaped(token):
            return None
        identity = await self.bearer_authenticator.authenticate(token, self._list_accepted_audiences(request))
        user = await self._services.people.authenticate_identity(identity)
        return RequestUser(user, _ACCESS_TOKEN_SCOPE, "", "", get_request_context(request.scope).address)

    def _list_accepted_audiences(self, request: Request) -> set[str]:
        """For whom a token may be that opens this address: for it, for all of the gateway, for all of us."""
        here = self.address(request, str(request.scope["path"]).rstrip("/"))
        base = self._services.base_url(request)
        return {here, f"{base}{_GATEWAY_PREFIX}", base, f"{base}/"}

    def build_challenge(self, scope: Any, error_description: str) -> dict[str, str]:
        """The header of an answer 401: where to find out who gives tokens."""
        if not self.is_enabled:
            return {"WWW-Authenticate": "Bearer"}
        request = Request(scope)
        where = self.address(request, RESOURCE_METADATA_PATH + str(request.scope["path"]).rstrip("/"))
        fault = (
            ""
            if read_bearer_token(request) is None
            else f', error="invalid_token", error_description="{_strip_unquotable(error_description)}"'
        )
        return {"WWW-Authenticate": f'Bearer resource_metadata="{where}"{fault}'}


def _is_gateway_path(path: str) -> bool:
    return path == _GATEWAY_PREFIX or path.startswith(f"{_GATEWAY_PREFIX}/")


def _strip_unquotable(text: str) -> str:
    """What may stand between quotes in a header."""
    line = text.partition("\n")[0]
    return "".join(char for char in line if " " <= char <= "~" and char not in '"\\')
