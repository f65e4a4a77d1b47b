"""Messages to the gateway, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.soak.balanced_requests import BalancedClient, events
from tests.soak.replicas import SoakReplica
from tests.soak.request_outcomes import ExpectedFailure, ExpectedRefusal, Wrong

from toolyard.gateway.endpoint import MISSING_SERVERS_META_KEY

MODERN, LEGACY = "2026-07-28", "2025-11-25"
INFO = {"name": "soak", "version": "1"}
WAIT: dict[str, Any] = {"name": "desk_wait", "arguments": {}}
"""A call that never ends by itself."""
_HEAD = {"Accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class ExpectedReply:
    """What a right answer has."""

    text: str = ""
    refused: str = ""
    """A word of the refusal that is right."""
    progress: bool = False
    tools: frozenset[str] = frozenset()

    def check(self, messages: list[Any]) -> Any:
        """The result of the last message. Raises Wrong or Refused."""
        if not messages:
            raise Wrong("the stream ended without an answer")
        answer = messages[-1]
        result = answer.get("result")
        if self.refused and self.refused in str(answer):
            raise ExpectedRefusal
        if result is None or result.get("isError"):
            raise Wrong(str(answer)[:400])
        if self.text and result["content"][0].get("text") != self.text:
            raise Wrong(f"{self.text!r} expected: {str(result)[:400]}")
        if self.progress and not any(each.get("method") == "notifications/progress" for each in messages):
            raise Wrong("it did not tell how far it was")
        if self.tools:
            self._check_tools(result)
        return result

    def _check_tools(self, result: Any) -> None:
        """All are there, but for those of servers that are slow, which the answer names."""
        absent = self.tools - {tool["name"] for tool in result["tools"]}
        slow = result.get("_meta", {}).get(MISSING_SERVERS_META_KEY, {})
        if wrong := [name for name in sorted(absent) if name.partition("_")[0] not in slow]:
            raise Wrong(f"tools are missing: {wrong}; {slow}")


def request(id: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """One message that wants an answer."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def send(
    line: BalancedClient,
    message: Mapping[str, Any],
    head: Mapping[str, str],
    at: SoakReplica | None = None,
    under_way: asyncio.Event | None = None,
) -> tuple[list[Any], Mapping[str, str]]:
    """The messages that come back, the answer last, and the headers; ``under_way`` is set with these."""
    request = line.opened("POST", "/mcp", message, at=at, headers={**_HEAD, **head})
    async with request as (response, replica, exchange):
        if under_way is not None:
            under_way.set()
        if response.content_type == "text/event-stream":
            return [each async for each in events(response)], response.headers
        text = await response.text()
        if response.status == 202:
            return [], response.headers
        if response.status != 200:
            raise line.odd(response.status, text, replica, exchange)
        answer = await response.json()
        if replica.disturbed(exchange) and says_closed(answer):
            raise ExpectedFailure("the replica reported that it is closed")
        return [answer], response.headers


def says_closed(answer: Any) -> bool:
    """Whether a replica that goes answers that there are no servers any more."""
    error_data = answer.get("error", {}).get("data") or {}
    is_gone = error_data.get("kind") in ("unreachable", "outcome_unknown")
    return is_gone and str(error_data.get("cause")).endswith("is closed")
