"""The program of `make soak` itself: a short one runs through, and it notices what is wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.conftest import NODE, ROOT
from tests.soak.gateway_messages import says_closed
from tests.soak.plot import picture
from tests.soak.process_samples import Sample
from tests.soak.received_events import ReceivedEvents
from tests.soak.report import END, START, put
from tests.soak.request_outcomes import (
    ExpectedFailure,
    ExpectedRefusal,
    RequestFailure,
    RequestOutcome,
    Tally,
)
from tests.soak.runner import SoakResult
from tests.soak.verdicts import FinalState, Verdict, judge, memory_of

SVG = "{http://www.w3.org/2000/svg}"
MEGABYTE_BYTES = 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.skipif(not (NODE / "mcp-server-everything").exists(), reason="make unit installs the servers")
def test_a_short_soak_loses_nothing_and_says_so(tmp_path: Path) -> None:
    report, plot = tmp_path / "report.json", tmp_path / "plot.svg"
    words = ["--minutes", "0.25", "--users", "8", "--shape", "one", "--report", report, "--plot", plot]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak", *map(str, words)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=230)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
    assert process.returncode == 0, output
    (shape,) = json.loads(report.read_text())["shapes"]
    assert [each["what"] for each in shape["verdicts"] if each["met"] is False] == []
    assert {"chat: turn", "gateway: tools/call", "api: look", "page"} <= set(shape["latencies"])
    assert shape["events"]["streamed"] > 0
    assert len(shape["samples"]) > 5
    assert len(ElementTree.parse(plot).findall(f"{SVG}polyline")) == 2


# What is counted.


async def test_every_end_of_a_request_is_counted() -> None:
    tally = Tally(deadline=0.01)

    async def end(error: Exception | None) -> None:
        if error is not None:
            raise error

    await tally.counted("k", end(None))
    for work in (
        end(ExpectedRefusal()),
        end(ExpectedFailure("gone")),
        end(ValueError("odd")),
        asyncio.sleep(30),
    ):
        with pytest.raises(RequestFailure):
            await tally.counted("k", work)
    assert {outcome: tally.count(outcome) for outcome in RequestOutcome} == dict.fromkeys(RequestOutcome, 1)
    assert tally.told == {"gone": 1}
    assert len(tally.wrong) == 2


def test_a_replica_that_goes_tells_so_in_an_answer_too() -> None:
    unreachable_error = {"kind": "unreachable", "server": "", "cause": "Toolyard is closed"}
    for kind in ("unreachable", "outcome_unknown"):
        assert says_closed(
            {"error": {"code": -32603, "message": "", "data": {**unreachable_error, "kind": kind}}}
        )
    for other in (
        {"result": {}},
        {"error": {"code": -32603, "message": "Toolyard is closed"}},
        {"error": {"code": -32603, "data": {**unreachable_error, "cause": "did not answer"}}},
        {"error": {"code": -32603, "data": {**unreachable_error, "kind": "bad_answer"}}},
    ):
        assert not says_closed(other)


def event(seq: int, kind: str = "note", text: str = "") -> Any:
    return {"seq": seq, "kind": kind, "body": {"text": text}}


def compare_events(*streamed_events: Any, stored_events: list[Any]) -> dict[str, int]:
    tally, one = Tally(1.0), ReceivedEvents()
    for each in streamed_events:
        one.hear(each, tally)
    one.compare(stored_events, tally, "c")
    return {kind: count for kind, count in tally.events.items() if count and kind != "streamed"}


def test_folded_pieces_do_not_count_as_lost() -> None:
    whole = [event(1, "user"), event(4, "said"), event(5, "end")]
    assert compare_events(whole[0], event(2, "text"), *whole[1:], stored_events=whole) == {"folded": 1}


def test_an_event_that_is_missing_repeated_or_changed_is_seen() -> None:
    one, two = event(1), event(2)
    assert compare_events(two, stored_events=[one, two]) == {"lost": 1}
    assert compare_events(one, two, stored_events=[one]) == {"lost": 1}
    assert compare_events(one, one, stored_events=[one]) == {"twice": 1}
    assert compare_events(one, stored_events=[event(1, text="other")]) == {"changed": 1}


# What is judged.

FIRST = Sample(0.0, 0, 7, 100 * MEGABYTE_BYTES, 90 * MEGABYTE_BYTES, 40, 3, 0)


def life(grows: int) -> Iterator[Sample]:
    """Ten minutes, with so many bytes more after each second."""
    for second in range(600):
        yield replace(FIRST, at=float(second), rss=FIRST.rss + grows * second, requests=100 * second)


def verdicts(tally: Tally, samples: list[Sample], ending: FinalState | None = None) -> list[str]:
    """Those that are not met."""
    verdicts = judge(tally, samples, [FIRST], ending or FinalState([FIRST]))
    return [each.what for each in verdicts if each.met is False]


def test_a_run_that_is_as_it_should_be_passes() -> None:
    assert verdicts(Tally(1.0), list(life(1_000))) == []


def test_memory_that_grows_is_seen_and_a_short_run_tells_nothing() -> None:
    growing = list(life(30_000))
    assert verdicts(Tally(1.0), growing) == ["memory steady"]
    (memory,) = [
        each for each in judge(Tally(1.0), growing, [], FinalState([])) if each.what == "memory steady"
    ]
    assert "grew by 1.80 MB a minute" in memory.told
    assert "0.30 MB per 1,000 requests" in memory.told
    short = judge(Tally(1.0), growing[:30], [], FinalState([]))
    assert Verdict("memory steady", None, "") in [replace(each, told="") for each in short]


def test_of_three_replicas_each_is_judged_by_its_share_of_the_requests() -> None:
    samples = [replace(each, replica=replica, pid=replica) for each in life(12_000) for replica in range(3)]
    assert [f"{each.per_thousand:.0f}" for each in memory_of(samples)] == ["360000"] * 3
    assert verdicts(Tally(1.0), samples) == ["memory steady"]


def test_warming_up_slows_down_and_a_leak_does_not() -> None:
    warming = [
        replace(each, rss=int(FIRST.rss + 60 * MEGABYTE_BYTES * (1 - 0.995**each.at))) for each in life(0)
    ]
    assert verdicts(Tally(1.0), warming) == []
    leaking = [replace(each, rss=each.rss + 30_000 * int(each.at)) for each in warming]
    assert verdicts(Tally(1.0), leaking) == ["memory steady"]


def test_one_step_does_not_count_as_growth() -> None:
    stepping = [replace(each, rss=FIRST.rss + (MEGABYTE_BYTES if each.at > 500 else 0)) for each in life(0)]
    assert verdicts(Tally(1.0), stepping) == []


def test_a_process_that_was_restarted_is_judged_by_its_own_life() -> None:
    before = [replace(each, rss=50 * MEGABYTE_BYTES) for each in life(0)]
    after = [replace(each, pid=8, at=each.at + 600, rss=200 * MEGABYTE_BYTES) for each in life(0)]
    assert [each.steady for each in memory_of([*before, *after])] == [True, True]


def test_one_that_lived_too_short_to_tell_leaves_the_verdict_to_the_others() -> None:
    others, short = list(life(0)), [replace(each, replica=1, pid=8) for each in life(30_000)][:300]
    assert [each.steady for each in memory_of([*others, *short])] == [True, None]
    assert judge(Tally(1.0), [*others, *short], [], FinalState([]))[3].met is True


def test_a_leak_is_detected() -> None:
    tally = Tally(1.0)
    tally.outcomes["k"][RequestOutcome.UNANSWERED] += 1
    tally.event("lost")
    ending = FinalState([replace(FIRST, descriptors=400, children=4)], still_open=1, tracebacks=1)
    assert verdicts(tally, list(life(0)), ending) == [
        "unanswered requests",
        "events lost, repeated or changed",
        "descriptors closed",
        "child processes ended",
        "requests still open at the end",
        "tracebacks in the logs",
    ]


# What is told.


def test_the_picture_has_a_line_for_each_process_and_one_for_the_rate() -> None:
    samples = [*life(0), *(replace(each, replica=1, pid=9) for each in life(0))]
    soak_result = SoakResult("three", 600.0, Tally(1.0), samples, (), 300.0)
    drawing = ElementTree.fromstring(picture([soak_result]))
    assert [line.get("class") for line in drawing.iter(f"{SVG}polyline")] == ["a", "b", "rate"]


def test_the_documentation_is_replaced_between_its_marks_alone() -> None:
    page = f"before {START} old {END} after"
    assert put(put(page, "one"), "two") == f"before {START}\n\ntwo\n\n{END} after"
    with pytest.raises(ValueError, match="marks"):
        put("nothing", "part")
