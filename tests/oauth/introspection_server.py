"""An MCP server by the official SDK that introspects tokens at their issuer.

Started as ``introspection_server.py PORT ISSUER``.
"""

from __future__ import annotations

import sys

import aiohttp
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations


class Introspection:
    """Asks the issuer whether a token is good, each time (RFC 7662)."""

    def __init__(self, issuer: str) -> None:
        self._endpoint = f"{issuer}/token/introspection"

    async def verify_token(self, token: str) -> AccessToken | None:
        auth = aiohttp.BasicAuth("resource", "resource-secret")
        async with (
            aiohttp.ClientSession(auth=auth) as session,
            session.post(self._endpoint, data={"token": token}) as response,
        ):
            introspection = await response.json()
        if not introspection.get("active"):
            return None
        scopes = introspection.get("scope", "").split()
        return AccessToken(
            token=token,
            client_id=introspection["client_id"],
            scopes=scopes,
            subject=introspection["sub"],
            resource=introspection["aud"],
        )


def serve(port: int, issuer: str) -> None:
    server = MCPServer(
        "guarded",
        token_verifier=Introspection(issuer),
        auth=AuthSettings(
            issuer_url=issuer,
            resource_server_url=f"http://127.0.0.1:{port}/mcp",
            required_scopes=["read"],
            validate_token_resource=True,
        ),
    )

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def whoami() -> str:
        """Who is signed in."""
        token = get_access_token()
        return "nobody" if token is None else f"you are {token.subject}"

    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
