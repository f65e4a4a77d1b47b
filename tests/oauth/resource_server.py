"""An MCP server that accepts tokens of another authorization server: ``resource_server.py PORT ISSUER``.

Its one tool ``whoami`` answers with the subject of the token. It believes the token's own words: whether the
authorization server signed them is not what is tested with it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from typing import Any

from aiohttp import web

RESOURCE = "/.well-known/oauth-protected-resource"


def claims_of(request: web.Request, issuer: str, url: str) -> dict[str, Any] | None:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if token.count(".") != 2:
        return None
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    right = (claims["iss"], claims["aud"]) == (issuer, url) and claims["exp"] > time.time()
    return claims if right else None


def answer(message: dict[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        info = {"name": "guarded", "version": "1"}
        capabilities = {"tools": {}}
        version = params["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
    if method == "tools/list":
        tool = {"name": "whoami", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        return {"result": {"tools": [tool]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": claims["sub"]}]}}
    return {"error": {"code": -32601, "message": "method not found"}}


async def serve(port: int, issuer: str) -> None:
    url = f"http://127.0.0.1:{port}/mcp"

    async def mcp(request: web.Request) -> web.Response:
        claims = claims_of(request, issuer, url)
        if claims is None:
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **answer(message, claims)})

    async def metadata(request: web.Request) -> web.Response:
        return web.json_response(
            {"resource": url, "authorization_servers": [issuer], "scopes_supported": ["read"]}
        )

    app = web.Application()
    app.add_routes([web.post("/mcp", mcp), web.get(f"{RESOURCE}/mcp", metadata)])
    app.add_routes([web.get("/mcp", lambda _: web.Response(status=401))])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
