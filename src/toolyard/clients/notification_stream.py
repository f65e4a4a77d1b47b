"""Hearing of changes: the stream of its own on which a server speaks unasked, in either era."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from toolyard.clients.session import Link, Patience
from toolyard.errors import BadAnswer, RpcError, ServerError

__all__ = ["listen"]

_FOREVER: Final = Patience(silence=10 * 365 * 86400.0, cap=10 * 365 * 86400.0)
_PAUSE = 1.0
_PAUSE_MOST = 60.0

_CHANGES: Final = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}


def listen(link: Link) -> None:
    """Begin to listen for what this server says that it announces. Ends with the link."""
    if link.facts is None:
        return
    if not link.facts.modern:
        link.transport.listen()
        return
    offers = link.facts.capabilities
    wanted = [kind for kind in _CHANGES if _announces(offers.get(kind))]
    if wanted:
        link.spawn(_subscribe(link, wanted))


def _announces(offer: object) -> bool:
    return isinstance(offer, dict) and cast("dict[str, Any]", offer).get("listChanged") is True


async def _subscribe(link: Link, kinds: list[str]) -> None:
    """One subscription, made again whenever its stream ends."""
    params: dict[str, Any] = {"notifications": {_CHANGES[kind][0]: True for kind in kinds}}
    pause = _PAUSE
    while not link.over:
        started = asyncio.get_running_loop().time()
        try:
            await link.request("subscriptions/listen", params, _FOREVER)
        except (RpcError, BadAnswer):
            return
        except ServerError:
            pass
        lasted = asyncio.get_running_loop().time() - started
        pause = _PAUSE if lasted > _PAUSE_MOST else min(pause * 2, _PAUSE_MOST)
        await asyncio.sleep(pause)
        for kind in kinds:
            # Whatever changed while nobody listened was not heard.
            link.tell_owner(_CHANGES[kind][1], {})
