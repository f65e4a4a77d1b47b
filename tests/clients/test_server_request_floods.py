"""Servers that send requests without end, with every kind of handler."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from toolyard import Callbacks, Toolyard
from toolyard.clients.input_required import InputRequiredLoop
from toolyard.errors import BadAnswer
from toolyard.types.call import McpRequest
from toolyard.types.server import Timeouts

SERVER = Path(__file__).parents[1] / "servers" / "elicitation_flood_server.py"
PER_MINUTE = 120


async def test_a_server_that_asks_in_a_loop_is_refused_after_its_share_of_a_minute(tmp_path: Path) -> None:
    methods: list[str] = []

    async def elicit(server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        methods.append(server)
        return {"action": "decline"}

    entry = {"command": sys.executable, "args": ["-I", "-S", str(SERVER)]}
    yard = Toolyard.open(
        {"mcpServers": {"s": entry}}, data_dir=tmp_path, callbacks=Callbacks(elicitation=elicit)
    )
    async with yard:
        result = await yard.call("s_flood", {"times": PER_MINUTE + 80})
    assert PER_MINUTE <= len(methods) < PER_MINUTE + 80
    assert result.text == str(len(methods))


async def test_a_round_that_asks_for_very_many_inputs_is_not_answered() -> None:
    methods: list[str] = []

    async def elicit(server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        methods.append(server)
        return {"action": "decline"}

    one = {"method": "elicitation/create", "params": {}}
    result = {"resultType": "input_required", "inputRequests": {str(n): one for n in range(1000)}}
    rounds = InputRequiredLoop("s", Callbacks(elicitation=elicit))
    with pytest.raises(BadAnswer, match="1000 inputs at once"):
        await rounds.complete(cast("Any", None), McpRequest("tools/call"), result, Timeouts(), None)
    assert methods == []
