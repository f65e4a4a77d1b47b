"""A protected resource and two authorization servers in one program: ``authorization_server.py PORT``.

The resource listens on PORT at ``/mcp`` and is a small MCP server with the tools ``whoami`` and ``write``, of
which the second needs the scope of its name; the authorization servers listen on ports of their own. They
implement RFC 9728, RFC 8414, OpenID discovery, dynamic registration, PKCE, refresh rotation with reuse
detection, RFC 9207, resource indicators, RFC 7009 and client authentication, and misbehave where they are
told to.

``GET /control`` tells the addresses, ``PUT /control`` resets everything and sets what is in the body,
``PATCH /control`` changes settings and keeps the state, ``GET /log`` tells what was asked.
``POST /forget?what=clients|access|refresh`` loses them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import sys
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from aiohttp import web

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"

DEFAULTS: dict[str, Any] = {
    # The resource.
    "named_in_header": f"{RESOURCE}/mcp",
    "header_as_is": False,
    "header_before": None,
    "resource_places": [f"{RESOURCE}/mcp"],
    "resource_document": {},
    "servers": ["as1"],
    "challenge_scope": None,
    "needs": [],
    "refuse": None,
    "strangers": False,
    "at_origin": False,
    "call_delay": 0,
    # The person who signs in.
    "person": "somebody",
    # The authorization servers.
    "issuer_path": "",
    "metadata_places": [SERVER],
    "metadata": {},
    "metadata_status": 200,
    "iss": "right",
    "authorize_error": None,
    "life": 3600,
    "rotate": True,
    "refresh_tokens": True,
    "token_trouble": [],
    "token_delay": 0,
    "token_waits": False,
    "answer_waits": False,
    "token_answer": {},
    "register_status": 201,
    "register_answer": {},
    "register_scopes": None,
    "entered": {},
    "revoke_status": 200,
}


@dataclass
class ServerState:
    """Everything that the program knows."""

    origins: dict[str, str]
    settings: dict[str, Any] = field(default_factory=lambda: dict(DEFAULTS))
    log: list[dict[str, Any]] = field(default_factory=list)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    access: dict[str, dict[str, Any]] = field(default_factory=dict)
    refresh: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def issuer(self, name: str) -> str:
        origin = self.origins["rs" if self.settings["at_origin"] else name]
        return origin + self.settings["issuer_path"]

    def note(self, name: str, kind: str, /, **facts: Any) -> None:
        self.log.append({"who": name, "what": kind, **facts})


# Control.


def control_routes(server_state: ServerState) -> list[web.RouteDef]:
    async def tell(request: web.Request) -> web.Response:
        return web.json_response(server_state.origins)

    async def reset(request: web.Request) -> web.Response:
        fresh = ServerState(server_state.origins, {**DEFAULTS, **await request.json()})
        server_state.__dict__.update(fresh.__dict__)
        return web.json_response({})

    async def change(request: web.Request) -> web.Response:
        server_state.settings.update(await request.json())
        return web.json_response({})

    async def log(request: web.Request) -> web.Response:
        return web.json_response(server_state.log)

    async def forget(request: web.Request) -> web.Response:
        getattr(server_state, request.query["what"]).clear()
        return web.json_response({})

    return [
        web.get("/control", tell),
        web.put("/control", reset),
        web.patch("/control", change),
        web.get("/log", log),
        web.post("/forget", forget),
    ]


# The resource.


def resource_routes(server_state: ServerState) -> list[web.RouteDef]:
    def document() -> dict[str, Any]:
        resource_metadata = {
            "resource": server_state.origins["rs"] + "/mcp",
            "authorization_servers": [server_state.issuer(name) for name in server_state.settings["servers"]],
            **server_state.settings["resource_document"],
        }
        return {name: value for name, value in resource_metadata.items() if value is not None}

    def refusal(status: int, error: str | None, scope: str | None) -> web.Response:
        params: dict[str, str] = {}
        if error is not None:
            params["error"] = error
        if scope:
            params["scope"] = scope
        settings = server_state.settings
        if (place := settings["named_in_header"]) is not None:
            params["resource_metadata"] = (
                place if settings["header_as_is"] else server_state.origins["rs"] + place
            )
        words = ", ".join(f'{name}="{value}"' for name, value in params.items())
        answer = web.json_response({}, status=status)
        for each in (settings["header_before"], f"Bearer {words}".strip()):
            if each is not None:
                answer.headers.add("WWW-Authenticate", each)
        return answer

    async def mcp(request: web.Request) -> web.Response:
        settings = server_state.settings
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        server_state.note("rs", "call", token=token)
        if settings["refuse"] == 401:
            return refusal(401, "invalid_token", settings["challenge_scope"])
        if settings["strangers"] and not token:
            return web.json_response({"scope": "", "client": "nobody"})
        access_record = server_state.access.get(token)
        issuers = [server_state.issuer(name) for name in settings["servers"]]
        if scheme != "Bearer" or access_record is None or access_record["issuer"] not in issuers:
            return refusal(401, "invalid_token" if token else None, settings["challenge_scope"])
        if settings["refuse"] == 403:
            return refusal(403, "insufficient_scope", " ".join(settings["needs"]))
        if not set(settings["needs"]) <= set(access_record["scope"].split()):
            return refusal(403, "insufficient_scope", " ".join(settings["needs"]))
        body = await request.read()
        message = json.loads(body) if body else {}
        if "method" in message:
            await asyncio.sleep(settings["call_delay"])
            return answer_initialize(message, access_record)
        return web.json_response({"scope": access_record["scope"], "client": access_record["client_id"]})

    def answer_initialize(message: dict[str, Any], known: dict[str, Any]) -> web.Response:
        method, params = message["method"], message.get("params", {})
        if "id" not in message:
            return web.Response(status=202)
        if method == "initialize":
            info = {"name": "guarded", "version": "1"}
            version = params["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            hints = {"readOnlyHint": True}
            schema = {"type": "object", "properties": {}}
            names = ("whoami", "write")
            result = {"tools": [{"name": n, "inputSchema": schema, "annotations": hints} for n in names]}
        elif method == "tools/call":
            if params["name"] == "write" and "write" not in known["scope"].split():
                return refusal(403, "insufficient_scope", "write")
            result = {"content": [{"type": "text", "text": known["person"]}]}
        else:
            error = {"code": -32601, "message": "method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def metadata(request: web.Request) -> web.Response:
        server_state.note("rs", "resource metadata", path=request.path)
        if request.path in server_state.settings["resource_places"]:
            return web.json_response(document())
        return web.json_response({"error": "not found"}, status=404)

    return [
        web.route("*", "/mcp", mcp),
        web.get(RESOURCE, metadata),
        web.get(RESOURCE + "/{rest:.*}", metadata),
        web.get("/elsewhere", metadata),
    ]


# The authorization servers.


class AuthorizationServer:
    """One of them. Its name stands in the log."""

    def __init__(self, server_state: ServerState, name: str) -> None:
        self.server_state = server_state
        self.name = name

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/{base:.*}authorize", self.authorize),
            web.post("/{base:.*}token", self.token),
            web.post("/{base:.*}register", self.register),
            web.post("/{base:.*}revoke", self.revoke),
            web.get("/{rest:.*}", self.metadata),
        ]

    async def metadata(self, request: web.Request) -> web.Response:
        settings = self.server_state.settings
        self.server_state.note(self.name, "metadata", path=request.path)
        if settings["at_origin"] != (self.name == "rs"):
            return web.json_response({}, status=404)
        if request.path not in settings["metadata_places"]:
            return web.json_response({}, status=404)
        base = self.server_state.issuer(self.name)
        issuer_metadata = {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "revocation_endpoint": f"{base}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": settings["iss"] == "right",
            **settings["metadata"],
        }
        issuer_metadata = {name: value for name, value in issuer_metadata.items() if value is not None}
        return web.json_response(issuer_metadata, status=settings["metadata_status"])

    async def register(self, request: web.Request) -> web.Response:
        settings, registration_request = self.server_state.settings, await request.json()
        self.server_state.note(self.name, "register", asked=registration_request)
        if settings["register_status"] != 201:
            registration_error = {"error": "invalid_redirect_uri", "error_description": "not this address"}
            return web.json_response(registration_error, status=settings["register_status"])
        register_scopes = settings["register_scopes"]
        if register_scopes is not None and not set(registration_request.get("scope", "").split()) <= set(
            register_scopes
        ):
            return web.json_response({"error": "invalid_client_metadata"}, status=400)
        client_record = {
            **registration_request,
            "client_id": f"{self.name}-{secrets.token_hex(4)}",
            "server": self.name,
        }
        if registration_request.get("token_endpoint_auth_method") != "none":
            client_record["client_secret"] = secrets.token_urlsafe(16)
        client_record.update(settings["register_answer"])
        self.server_state.clients[client_record["client_id"]] = client_record
        return web.json_response(client_record, status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        settings, query = self.server_state.settings, dict(request.query)
        self.server_state.note(self.name, "authorize" if "resource" in query else "look", query=query)
        client_ids = self.server_state.clients.keys() | settings["entered"].keys()
        if query["client_id"] not in client_ids and not query["client_id"].startswith("https://"):
            # As RFC 6749 wants it: nobody is sent to an address that may be a stranger's.
            return web.Response(status=400, text="unknown client")
        back: dict[str, str] = {"state": query["state"]}
        issuer = self.server_state.issuer(self.name)
        if (iss := {"right": issuer}.get(settings["iss"] or "", settings["iss"])) is not None:
            back["iss"] = iss
        if settings["authorize_error"] is not None:
            back.update(error=settings["authorize_error"], error_description="said no")
        else:
            back["code"] = secrets.token_urlsafe(16)
            self.server_state.codes[back["code"]] = {**query, "issuer": issuer, "person": settings["person"]}
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(back)}")

    async def token(self, request: web.Request) -> web.Response:
        settings, form = self.server_state.settings, dict(await request.post())
        client_id, method, secret = self._credentials(request, form)
        facts = {name: form.get(name) for name in ("grant_type", "resource", "scope", "refresh_token")}
        self.server_state.note(self.name, "token", client_id=client_id, method=method, **facts)
        await asyncio.sleep(settings["token_delay"])
        while self.server_state.settings["token_waits"]:
            await asyncio.sleep(0.01)
        if settings["token_trouble"]:
            trouble = settings["token_trouble"].pop(0)
            if trouble == "drop":
                request.transport.close()
                return web.Response()
            if isinstance(trouble, str):
                echo = f"no good: {form.get('refresh_token') or form.get('code')} {secret}"
                return web.json_response({"error": trouble, "error_description": echo}, status=400)
            return web.Response(status=trouble, text="<html>in trouble</html>", content_type="text/html")
        if (wrong := self._wrong_client(client_id, method, secret)) is not None:
            return web.json_response({"error": "invalid_client", "error_description": wrong}, status=401)
        grant = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh,
            "client_credentials": self._by_client,
        }[form["grant_type"]](form, client_id)
        if isinstance(grant, str):
            return web.json_response({"error": "invalid_grant", "error_description": grant}, status=400)
        answer = self._issue(grant)
        if self.server_state.settings["answer_waits"]:
            self.server_state.note(self.name, "answer held")
        while self.server_state.settings["answer_waits"]:
            await asyncio.sleep(0.01)
        return answer

    async def revoke(self, request: web.Request) -> web.Response:
        """RFC 7009: with a refresh token goes all that came of it."""
        form = dict(await request.post())
        client_id, method, secret = self._credentials(request, form)
        token, kind = str(form["token"]), form.get("token_type_hint")
        self.server_state.note(self.name, "revoke", client_id=client_id, method=method, kind=kind)
        if (status := self.server_state.settings["revoke_status"]) != 200:
            return web.Response(status=status)
        if self._wrong_client(client_id, method, secret) is not None:
            return web.json_response({"error": "invalid_client"}, status=401)
        token_record = self.server_state.refresh.pop(token, None) or self.server_state.access.pop(token, None)
        if token_record is not None:
            family = [
                each
                for each, one in self.server_state.access.items()
                if one["family"] == token_record["family"]
            ]
            for each in family:
                del self.server_state.access[each]
        return web.Response()

    def _credentials(self, request: web.Request, form: dict[str, Any]) -> tuple[str, str, str | None]:
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic "):
            client_id, _, secret = base64.b64decode(header[6:]).decode().partition(":")
            # The official Python SDK's servers want it in both places, and read no plus as a space.
            assert unquote(client_id) == form["client_id"]
            return unquote(client_id), "client_secret_basic", unquote(secret)
        if "client_assertion" in form:
            return form["client_id"], "private_key_jwt", form["client_assertion"]
        if "client_secret" in form:
            return form["client_id"], "client_secret_post", form["client_secret"]
        return form["client_id"], "none", None

    def _wrong_client(self, client_id: str, method: str, secret: str | None) -> str | None:
        entered_clients = self.server_state.settings["entered"]
        if client_id in entered_clients:
            return (
                None
                if method == "private_key_jwt" or entered_clients[client_id] == secret
                else "wrong secret"
            )
        if client_id.startswith("https://"):
            return None
        client_record = self.server_state.clients.get(client_id)
        if client_record is None or client_record["server"] != self.name:
            return "unknown client"
        if client_record.get("token_endpoint_auth_method", "client_secret_basic") != method:
            return f"not registered for {method}"
        return None if client_record.get("client_secret") == secret else "wrong secret"

    def _by_code(self, form: dict[str, Any], client_id: str) -> dict[str, Any] | str:
        code_record = self.server_state.codes.pop(form["code"], None)
        if code_record is None:
            return "unknown code"
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != code_record["code_challenge"]:
            return "wrong verifier"
        same = (code_record["client_id"], code_record["redirect_uri"], code_record.get("resource"))
        if same != (client_id, form["redirect_uri"], form.get("resource")):
            return "another client, redirect URI or resource"
        return {
            "client_id": client_id,
            "scope": code_record.get("scope", ""),
            "family": secrets.token_hex(4),
            "person": code_record["person"],
        }

    def _by_refresh(self, form: dict[str, Any], client_id: str) -> dict[str, Any] | str:
        token = form["refresh_token"]
        refresh_record = self.server_state.refresh.get(token)
        if token in self.server_state.used:
            self.server_state.note(self.name, "reuse")
            self.server_state.refresh.clear()
            return "used twice"
        if refresh_record is None or refresh_record["client_id"] != client_id:
            return "unknown refresh token"
        if self.server_state.settings["rotate"]:
            self.server_state.used.add(token)
        return refresh_record

    def _by_client(self, form: dict[str, Any], client_id: str) -> dict[str, Any] | str:
        return {"client_id": client_id, "scope": form.get("scope", ""), "family": "", "person": client_id}

    def _issue(self, grant: dict[str, Any]) -> web.Response:
        settings = self.server_state.settings
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.server_state.access[access] = {
            **grant,
            "issuer": self.server_state.issuer(self.name),
            "at": time.time(),
        }
        answer: dict[str, Any] = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": settings["life"],
        }
        if settings["refresh_tokens"] and grant["family"]:
            self.server_state.refresh[refresh] = grant
            answer["refresh_token"] = refresh
        answer.update(settings["token_answer"])
        answer = {name: value for name, value in answer.items() if value is not None}
        return web.json_response(answer, headers={"Cache-Control": "no-store"})


async def serve(port: int) -> None:
    server_state = ServerState({})
    for name in ("as1", "as2", "rs"):
        app = web.Application()
        if name == "rs":
            app.add_routes([*control_routes(server_state), *resource_routes(server_state)])
        app.add_routes(AuthorizationServer(server_state, name).routes())
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port if name == "rs" else 0).start()
        server_state.origins[name] = f"http://127.0.0.1:{runner.addresses[0][1]}"
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
