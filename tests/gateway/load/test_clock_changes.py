"""Clocks that are set while the gateway runs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.input_required.request_state import REQUEST_STATE_SECONDS, RequestStateSealer
from toolyard.types.server import HttpSpec, Server

YEAR_SECONDS = 366 * 86_400.0
SERVER = Server("docs", HttpSpec("https://docs.example/mcp"))


def is_fresh(fetched_at: float, changed_at: float = 0.0) -> bool:
    caller: Any = SimpleNamespace(principal=None, agent=None, bundles=(), filters=())
    gateway: Any = SimpleNamespace(tools_changed_at={"docs": changed_at})
    offering = CallerView.__new__(CallerView)
    offering.gateway, offering.caller, offering._last_listed_at = gateway, caller, 0.0
    catalogue = SimpleNamespace(listing=SimpleNamespace(ttl=None), fetched_at=fetched_at)
    roster: Any = SimpleNamespace(catalogues={"docs": catalogue}, failures={})
    return offering._is_fresh(SERVER, roster)


def test_a_listing_fetched_while_the_clock_was_ahead_is_fetched_again() -> None:
    now = time.time()
    assert is_fresh(now - 1)
    assert not is_fresh(now + YEAR_SECONDS)


def test_a_change_announced_while_the_clock_was_ahead_is_not_fetched_for_ever() -> None:
    now = time.time()
    assert not is_fresh(now - 2, changed_at=now - 1)
    assert is_fresh(now - 2, changed_at=now + YEAR_SECONDS)


def test_a_request_state_sealed_while_the_clock_was_ahead_is_refused() -> None:
    now = 1_800_000_000.0 + YEAR_SECONDS
    sealer = RequestStateSealer(clock=lambda: now)
    sealed = sealer.seal({"round": 1}, "ann", "tools/call", {})
    assert sealer.open(sealed, "ann", "tools/call", {}) == {"round": 1}
    now -= YEAR_SECONDS
    with pytest.raises(RpcErrorResponse):
        sealer.open(sealed, "ann", "tools/call", {})
    assert REQUEST_STATE_SECONDS < YEAR_SECONDS
