"""The suite of `make faults` itself: a few of its cases run, and it notices what is wrong."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import ListeningProgram
from tests.faults import http_faults, protocol_faults, stdio_faults, suite  # noqa: F401 - their cases
from tests.faults.suite import CASES, CaseContext, FaultCase, call, child, open_with_good_server, run_case

QUICK = [
    "killed in the middle of a call",
    "reset in the middle of an answer",
    "a certificate that nobody vouches for",
    "a certificate of another host",
    "cancellations that cross answers",
]


@pytest.mark.parametrize("fault", QUICK)
async def test_a_fault_is_reported_in_one_sentence_and_disturbs_no_other_call(
    fault: str, hostile_http: ListeningProgram
) -> None:
    (one,) = [each for each in CASES if each.fault == fault]
    outcome = await run_case(one, hostile_http)
    assert outcome.wrong == []
    assert outcome.seen
    assert outcome.others > 0


async def test_a_case_that_leaves_a_task_behind_is_wrong(
    hostile_http: ListeningProgram,
) -> None:
    async def run(room: CaseContext) -> str:
        run.task = asyncio.create_task(asyncio.sleep(60), name="forgotten")  # type: ignore[attr-defined]
        return "all well"

    outcome = await run_case(FaultCase("Test", "forgets", run, 5), hostile_http, cleanup_seconds=0.5)
    run.task.cancel()  # type: ignore[attr-defined]
    assert any("forgotten" in each for each in outcome.wrong)


async def test_a_case_that_does_not_end_is_wrong(hostile_http: ListeningProgram) -> None:
    async def run(room: CaseContext) -> str:
        async with open_with_good_server(room, child("good")) as yard:
            await call(yard)
            await asyncio.Event().wait()
        return "never"

    outcome = await run_case(FaultCase("Test", "hangs", run, 2), hostile_http)
    assert outcome.wrong == ["did not end within 2 s"]
