"""Callbacks of the program that fail: the server is answered all the same, and the call ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from toolyard import Callbacks, ServerError, Toolyard

OpenYard = Callable[..., Toolyard]
Recorders = Callable[..., Any]


async def raises(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    raise ValueError("a mistake")


async def gives_up(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """As a dialog does that somebody closes."""
    dialog = asyncio.get_running_loop().create_future()
    dialog.cancel()
    return await dialog


async def gives_no_json(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": object()}}


async def gives_nothing(server: str, params: Mapping[str, Any]) -> Any:
    return None


FAILING: dict[str, tuple[Callable[..., Awaitable[Any]], str]] = {
    "raises": (raises, "ValueError: a mistake"),
    "gives up": (gives_up, "CancelledError"),
    "no JSON": (gives_no_json, "TypeError: object is not JSON serializable"),
    "nothing": (gives_nothing, "TypeError: 'NoneType' object is not iterable"),
}


def playground(protocol: str) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-m", "toolyard.cli.playground_server"],
        "protocol": protocol,
    }


@pytest.mark.parametrize("how", FAILING)
async def test_a_legacy_server_gets_the_missing_answer(open_yard: OpenYard, how: str) -> None:
    callbacks = Callbacks(elicitation=FAILING[how][0])
    async with open_yard({"p": playground("legacy")}, callbacks=callbacks) as yard, asyncio.timeout(60):
        assert (await yard.call("p_greet")).text == "Hello, stranger!"


@pytest.mark.parametrize("how", FAILING)
async def test_a_call_of_a_modern_server_fails_and_names_the_callback(open_yard: OpenYard, how: str) -> None:
    ask, words = FAILING[how]
    callbacks = Callbacks(elicitation=ask)
    async with open_yard({"p": playground("modern")}, callbacks=callbacks) as yard, asyncio.timeout(60):
        with pytest.raises(ServerError) as exc_info:
            await yard.call("p_greet")
        assert exc_info.value.cause == f"the callback for elicitation/create failed: {words}"
        answer = await yard.answer("p_greet")
        assert answer.is_error
        assert words in answer.text


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_a_caller_cancelled_during_a_question_leaves_nothing(
    open_yard: OpenYard, protocol: str
) -> None:
    request_received, left = asyncio.Event(), asyncio.Event()

    async def waits(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        request_received.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            left.set()

    callbacks = Callbacks(elicitation=waits)
    async with open_yard({"p": playground(protocol)}, callbacks=callbacks) as yard, asyncio.timeout(60):
        call = asyncio.ensure_future(yard.call("p_greet"))
        await request_received.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert left.is_set()


async def test_a_fault_in_the_recording_loses_no_result_and_hides_no_error(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    def record(_: object) -> None:
        raise ValueError("a mistake")

    async with open_yard({"one": recorder()}, record=record) as yard:
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"
        with pytest.raises(ServerError, match="no"):
            await yard.call("one_refuse")
