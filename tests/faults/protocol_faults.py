"""Servers that violate the protocol."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.faults.suite import CaseContext, call, case, child, describe_outcome, open_with_good_server

GROUP = "Protocol"


def plain(fault: str, mode: str, expected: str, *more: str, arguments: dict[str, Any] | None = None) -> None:
    @case(GROUP, fault)
    async def run(room: CaseContext) -> str:
        async with open_with_good_server(room, child(mode, *more)) as yard:
            outcome = await describe_outcome(yard.call("bad_echo", {"text": "hello", **(arguments or {})}))
            assert expected in outcome, outcome
            return outcome


plain("answers with unknown ids", "unknown-ids", "works: hello")
plain("every answer twice", "twice", "works: hello")
plain("ids as texts", "string-ids", "works: hello")
plain("cursors that loop", "repeated-cursor", "works: hello")
plain("cursors without end", "endless-cursors", "ToolRefused")
plain("a handshake of another version", "wrong-handshake", "BadAnswer")
plain("20,000 notifications in one call", "notification-flood", "1,000 unsolicited messages within 10 s")
plain("echoes whatever it is sent", "cat", "Unreachable")

RESULTS: dict[str, Any] = {
    "nothing": {},
    "a text": {"result": "tea"},
    "a list": {"result": []},
    "content that is a number": {"result": {"content": 5}},
    "blocks that are no objects": {"result": {"content": [1, None, "x"]}},
    "a block of an unknown type": {"result": {"content": [{"type": "hologram"}]}},
    "both a result and an error": {"result": {"content": []}, "error": {"code": 1, "message": "no"}},
    "an error that is a text": {"error": "no"},
    "the result of another method": {"result": {"tools": []}},
}


def wrong_shape(kind: str, message: dict[str, Any]) -> None:
    @case(GROUP, f"an answer with {kind}")
    async def run(room: CaseContext) -> str:
        async with open_with_good_server(room, child("raw-echo")) as yard:
            outcome = await describe_outcome(yard.call("bad_echo", {"message": message}))
            assert await call(yard) == "works: hello"
            return outcome


for what, message in RESULTS.items():
    wrong_shape(what, message)


@case(GROUP, "answers out of order")
async def out_of_order(room: CaseContext) -> str:
    async with open_with_good_server(room, child("steps-tool")) as yard:
        slow = asyncio.create_task(describe_outcome(yard.call("bad_steps", {"count": 3, "every": 1})))
        quick = [await call(yard, f"quick {n}") for n in range(5)]
        assert quick == [f"works: quick {n}" for n in range(5)], quick
        assert not slow.done()
        return f"each call gets its own answer; the slow one {await slow}"


@case(GROUP, "cancellations that cross answers", 60)
async def crossing(room: CaseContext) -> str:
    dice = random.Random(7)
    async with open_with_good_server(room, child("good")) as yard:
        answer_count = cancellation_count = 0
        for number in range(400):
            task = asyncio.create_task(yard.call("bad_echo", {"text": str(number)}))
            for _ in range(dice.randrange(12)):
                await asyncio.sleep(0)
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() * 0.002)
            task.cancel()
            try:
                assert (await task).text == str(number)
                answer_count += 1
            except asyncio.CancelledError:
                cancellation_count += 1
        error_text = await call(yard, "after all that")
        assert error_text == "works: after all that", error_text
        assert cancellation_count > 20
        return (
            f"of 400 calls {cancellation_count} were cancelled, {answer_count} answered, each with its own;"
            " then it works"
        )


@case(GROUP, "notifications again and again")
async def flood_again(room: CaseContext) -> str:
    async with open_with_good_server(room, child("notification-flood")) as yard:
        first, second = await call(yard), await call(yard)
        assert first.startswith("OutcomeUnknown: was disconnected"), first
        assert second.startswith("Unreachable: was disconnected"), second
        return f"first {first}; the next call {second}"


plain(
    "a million values in an answer",
    "value-bomb",
    "BadAnswer: sent a response that has more than 200,000 values",
)
