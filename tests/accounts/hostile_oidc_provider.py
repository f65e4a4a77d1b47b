"""An identity provider that sends wrong values on request of a test."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from yarl import URL

CLIENT, SECRET = "toolyard", "a secret of toolyard"

__all__ = ["CLIENT", "SECRET", "HostileOidcProvider"]


@dataclass
class HostileOidcProvider:
    """An OIDC provider. It behaves correctly unless a test changes one of its attributes."""

    issuer: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256", "kid": "one"})
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims that replace the correct ones; None removes a claim."""
    userinfo: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    sign_with: Any = None
    token: Any = None
    """A response of the token endpoint that replaces the correct one."""
    token_status: int = 200
    published: list[Any] | None = None
    asked: list[str] = field(default_factory=list)
    nonce: str = ""
    silent: asyncio.Event | None = None
    """If present, no request is answered before this event is set."""

    def redirected(self, url: str) -> dict[str, str]:
        """Return the parameters with which the provider would redirect the browser back."""
        query = URL(url, encoded=True).query
        self.nonce = query["nonce"]
        assert query["code_challenge_method"] == "S256"
        return {"code": "a code", "state": query["state"]}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.silent is not None:
            await self.silent.wait()
        match request.path:
            case "/.well-known/openid-configuration":
                return web.json_response(self._about())
            case "/jwks":
                keys = [self.key] if self.published is None else self.published
                return web.json_response({"keys": [key.as_dict(private=False) for key in keys]})
            case "/token":
                return await self._tokens(request)
            case "/me":
                assert request.headers["Authorization"] == "Bearer an access token"
                return web.json_response({"sub": "1", **(self.userinfo or {})})
            case _:
                return web.Response(status=404)

    def _about(self) -> dict[str, Any]:
        about = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
        }
        if self.userinfo is not None:
            about["userinfo_endpoint"] = f"{self.issuer}/me"
        return about | self.metadata

    async def _tokens(self, request: web.BaseRequest) -> web.StreamResponse:
        form = await request.post()
        assert form["grant_type"] == "authorization_code"
        assert form["code_verifier"]
        credentials = base64.b64encode(f"{CLIENT}:{SECRET.replace(' ', '%20')}".encode()).decode()
        assert request.headers["Authorization"] == f"Basic {credentials}"
        if self.token is not None:
            return web.json_response(self.token, status=self.token_status)
        now = int(time.time())
        right = {
            "iss": self.issuer,
            "sub": "1",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": self.nonce,
        }
        claims = {name: value for name, value in (right | self.claims).items() if value is not None}
        token = self._signed(claims)
        return web.json_response(
            {"id_token": token, "access_token": "an access token", "token_type": "Bearer"}
        )

    def _signed(self, claims: dict[str, Any]) -> str:
        if self.header["alg"] == "none":
            parts = (json.dumps(part).encode() for part in (self.header, claims))
            return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
        key = self.sign_with or self.key
        if isinstance(key, bytes):
            key = OctKey.import_key(key)
        return jwt.encode(self.header, claims, key, algorithms=[self.header["alg"]])
