"""Subscription to a server's list-changed notifications, in either era."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from toolyard.clients.session import McpSession
from toolyard.errors import BadAnswer, RpcError, ServerError
from toolyard.types.call import McpRequest
from toolyard.types.server import Timeouts

__all__ = ["start_listening"]

_NO_TIMEOUTS: Final = Timeouts(silence=10 * 365 * 86400.0, call=10 * 365 * 86400.0)
_MIN_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 60.0

_LIST_CHANGED_NOTIFICATIONS: Final = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}


def start_listening(session: McpSession) -> None:
    """Start to receive the notifications that the server announced. Stops when the session closes."""
    if session.handshake_result is None:
        return
    if not session.handshake_result.era.subscribes_by_request:
        session.transport.start_listening()
        return
    capabilities = session.handshake_result.capabilities
    kinds = [kind for kind in _LIST_CHANGED_NOTIFICATIONS if _has_list_changed(capabilities.get(kind))]
    if kinds:
        session.spawn(_run_subscription(session, kinds))


def _has_list_changed(capability: object) -> bool:
    return isinstance(capability, dict) and cast("dict[str, Any]", capability).get("listChanged") is True


async def _run_subscription(session: McpSession, kinds: list[str]) -> None:
    """Hold one ``subscriptions/listen`` request open; repeat it, with growing pauses, when its stream
    ends."""
    params: dict[str, Any] = {"notifications": {_LIST_CHANGED_NOTIFICATIONS[kind][0]: True for kind in kinds}}
    delay = _MIN_RETRY_SECONDS
    while not session.is_over:
        started = asyncio.get_running_loop().time()
        try:
            await session.request(McpRequest("subscriptions/listen", params), _NO_TIMEOUTS)
        except (RpcError, BadAnswer):
            # The server does not implement subscriptions; asking again would not help.
            return
        except ServerError:
            pass
        lasted = asyncio.get_running_loop().time() - started
        # A stream that lasted longer than the longest pause did work, so the pauses begin anew.
        delay = _MIN_RETRY_SECONDS if lasted > _MAX_RETRY_SECONDS else min(delay * 2, _MAX_RETRY_SECONDS)
        await asyncio.sleep(delay)
        for kind in kinds:
            # A change during the gap was missed: report one for each kind, so that lists are fetched again.
            session.dispatch_notification(_LIST_CHANGED_NOTIFICATIONS[kind][1], {})
