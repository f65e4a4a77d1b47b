"""Toolyard as the client that the official conformance suite tests: ``client_driver.py URL``.

It does what a curious user would: connects, lists the tools, calls each of them with arguments made from
its schema, answers elicitations. The suite's own variables name the revision and carry the
context that a scenario gives.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
from yarl import URL

from toolyard import Callbacks, RpcError, Toolyard, ToolyardError
from toolyard.auth.errors import IssuerUnconfirmed
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.provider import Challenge
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import MemoryAuthStorage
from toolyard.net import OutboundHttp
from toolyard.types.server import OAuthSpec

REDIRECT = "http://localhost:3000/callback"


async def authorize(url: str) -> AuthorizationResponse:
    """Return the redirect of the suite's authorization server, which needs no browser."""
    address = URL(url, encoded=True)
    async with aiohttp.ClientSession() as session, session.get(address, allow_redirects=False) as response:
        return AuthorizationResponse.parse(response.headers["Location"])


class Operator(OAuthProvider):
    """Confirms the issuer of the scenario's client, as the operator would."""

    async def challenged(self, challenge: Challenge) -> bool:
        try:
            return await super().challenged(challenge)
        except IssuerUnconfirmed as error:
            self._target = replace(self._target, oauth=replace(self._target.oauth, issuer=error.issuer))
            return await super().challenged(challenge)


class OneDocument(ClientIdentity):
    """The suite expects one fixed document."""

    def document_for(self, issuer: str) -> str | None:
        return self.document_url


def provider(url: str, context: Mapping[str, Any], net: OutboundHttp) -> OAuthProvider:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    oauth = OAuthSpec(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        legacy_discovery="2025-03-26" in scenario,
        grant="client_credentials" if "client-credentials" in scenario else "authorization_code",
    )
    ourselves = OneDocument(REDIRECT, document_url="https://conformance-test.local/client-metadata.json")
    target = SignInTarget(url, oauth, private_key=context.get("private_key_pem"))
    storage = MemoryAuthStorage()
    return Operator(target, net=net, storage=storage, client_identity=ourselves, authorize=authorize)


def example(schema: Mapping[str, Any]) -> Any:
    """Return a value that fits a schema: its default, its first choice, or a plain value of its type."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or "properties" in schema:
        return {name: example(inner) for name, inner in schema.get("properties", {}).items()}
    return {"integer": 5, "number": 3, "boolean": True, "array": [], "null": None}.get(kind or "", "test")


async def accept(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": example(params.get("requestedSchema", {}))}


async def sample(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    content = {"type": "text", "text": "a sampled answer"}
    return {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}


async def roots(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"roots": [{"uri": "file:///tmp", "name": "tmp"}]}


def calls(tools: list[Any], context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the calls: those of the context, else every tool once."""
    if isinstance(tool_calls := context.get("toolCalls"), list):
        return [(f"s_{call['name']}", call.get("arguments", {})) for call in tool_calls]
    example_arguments = {tool.name: example({"type": "object", **tool.input_schema}) for tool in tools}
    for name, arguments in example_arguments.items():
        if "schema" in arguments:
            # A tool that requires a schema gets one of the known schemas.
            arguments["schema"] = next(tool.input_schema for tool in tools if tool.name != name)
    return list(example_arguments.items())


async def main(url: str) -> int:
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    protocol = {"": "auto", "2026-07-28": "modern", "draft": "modern"}.get(version, "legacy")
    server = {"url": url, "type": "http", "protocol": protocol, "authProviderId": "oauth"}
    failures = 0
    net = OutboundHttp()
    oauth = provider(url, context, net)
    with tempfile.TemporaryDirectory() as folder:
        async with Toolyard.open(
            {"mcpServers": {"s": server}},
            data_dir=folder,
            settings={"write_tools": "allow"},
            auth_providers={"oauth": oauth},
            callbacks=Callbacks(elicitation=accept, sampling=sample, roots=roots),
        ) as yard:
            tools = await yard.tools()
            for status in yard.servers():
                if status.cause:
                    print(status.cause, file=sys.stderr)
                    failures += 1
            for name, arguments in calls(tools, context):
                try:
                    result = await yard.call(name, arguments)
                    print(name, result.text[:200], file=sys.stderr)
                except RpcError as error:
                    print(name, error, file=sys.stderr)
                except ToolyardError as error:
                    failures += 1
                    print(name, error, file=sys.stderr)
    await oauth.close()
    await net.close()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
