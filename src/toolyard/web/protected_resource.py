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
from toolyard.web.access.dependencies import Visitor, bearer
from toolyard.web.access.request_context import passage_of

if TYPE_CHECKING:
    from toolyard.accounts.oidc.bearer_auth import Bearers
    from toolyard.web.services import Site

__all__ = ["WELL_KNOWN", "ResourceServer", "router"]

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_GATEWAY = "/mcp"
_SECONDS = 300
_CALLING = TokenScope(frozenset({Right.CALL}))
"""What an access token is good for: calls at the gateway, whatever else its person may do."""

router = APIRouter(include_in_schema=False)


@router.get(WELL_KNOWN)
@router.get(WELL_KNOWN + "/{path:path}")
async def describe(request: Request) -> Response:
    """Which authorization server gives tokens for an address of the gateway. Says nothing of what is
    there."""
    resource: ResourceServer = request.app.state.site.mcp.resource
    path = str(request.scope["path"]).removeprefix(WELL_KNOWN).rstrip("/")
    if not resource.is_one or (path and not _is_gateway(path)):
        raise HTTPException(404)
    document = {
        "resource": resource.address(request, path),
        "authorization_servers": [await resource.bearers.issuer()],
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolyard",
    }
    return JSONResponse(document, headers={"Cache-Control": f"public, max-age={_SECONDS}"})


class ResourceServer:
    """Whom the tokens of the identity provider let in. Only in the mode oidc is there one."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bearers: Bearers | None = None

    @property
    def is_one(self) -> bool:
        """Whether an identity provider gives tokens for us."""
        return self._site.settings.people_mode is PeopleMode.OIDC

    @property
    def bearers(self) -> Bearers:
        """The identity provider, asked when somebody comes."""
        if self._bearers is None:
            from toolyard.accounts.oidc.bearer_auth import Bearers  # the other modes check no signatures

            self._bearers = Bearers(self._site.settings, self._site.net)
        return self._bearers

    def address(self, request: Request, path: str) -> str:
        """An address of ours, as others write it."""
        return self._site.base_url(request) + quote(path, safe="/")

    async def visitor(self, request: Request) -> Visitor | None:
        """Who comes with an access token; None where it is none, and something else may be said by it.

        Raises NotSignedIn, NotAllowed or ProviderFailed.
        """
        from toolyard.accounts.oidc.access_token import looks_signed  # the other modes check no signatures

        token = bearer(request)
        if token is None or not looks_signed(token):
            return None
        identity = await self.bearers.identity(token, self._audiences(request))
        user = await self._site.people.from_provider(identity)
        return Visitor(user, _CALLING, "", "", passage_of(request.scope).address)

    def _audiences(self, request: Request) -> set[str]:
        """For whom a token may be that opens this address: for it, for all of the gateway, for all of us."""
        here = self.address(request, str(request.scope["path"]).rstrip("/"))
        base = self._site.base_url(request)
        return {here, f"{base}{_GATEWAY}", base, f"{base}/"}

    def challenge(self, scope: Any, said: str) -> dict[str, str]:
        """The header of an answer 401: where to find out who gives tokens."""
        if not self.is_one:
            return {"WWW-Authenticate": "Bearer"}
        request = Request(scope)
        where = self.address(request, WELL_KNOWN + str(request.scope["path"]).rstrip("/"))
        fault = (
            "" if bearer(request) is None else f', error="invalid_token", error_description="{_quoted(said)}"'
        )
        return {"WWW-Authenticate": f'Bearer resource_metadata="{where}"{fault}'}


def _is_gateway(path: str) -> bool:
    return path == _GATEWAY or path.startswith(f"{_GATEWAY}/")


def _quoted(text: str) -> str:
    """What may stand between quotes in a header."""
    line = text.partition("\n")[0]
    return "".join(char for char in line if " " <= char <= "~" and char not in '"\\')
