"""Clocks that are set while the gateway runs."""

from __future__ import annotations

import pytest

from toolyard.gateway.caller_view import is_current
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.input_required.request_state import REQUEST_STATE_SECONDS, RequestStateSealer

YEAR_SECONDS = 366 * 86_400.0
NOW = 1_800_000_000.0


def test_a_listing_fetched_while_the_clock_was_ahead_is_fetched_again() -> None:
    assert is_current(NOW - 1, 60.0, changed_at=0.0, now=NOW)
    assert not is_current(NOW + YEAR_SECONDS, 60.0, changed_at=0.0, now=NOW)


def test_a_change_announced_while_the_clock_was_ahead_is_not_fetched_for_ever() -> None:
    assert not is_current(NOW - 2, 60.0, changed_at=NOW - 1, now=NOW)
    assert is_current(NOW - 2, 60.0, changed_at=NOW + YEAR_SECONDS, now=NOW)


def test_a_request_state_sealed_while_the_clock_was_ahead_is_refused() -> None:
    now = NOW + YEAR_SECONDS
    sealer = RequestStateSealer(clock=lambda: now)
    sealed_text = sealer.seal({"round": 1}, "ann", "tools/call", {})
    assert sealer.open(sealed_text, "ann", "tools/call", {}) == {"round": 1}
    now -= YEAR_SECONDS
    with pytest.raises(RpcErrorResponse):
        sealer.open(sealed_text, "ann", "tools/call", {})
    assert REQUEST_STATE_SECONDS < YEAR_SECONDS
