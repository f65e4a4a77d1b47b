"""What a soak found: as JSON, in a few lines, and in the documentation."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from bench.harness.machine import describe
from tests.soak.request_outcomes import RequestOutcome
from tests.soak.runner import SHAPES, Plan, SoakResult

START, END = "<!-- Written by `make soak`: start -->", "<!-- Written by `make soak`: end -->"


def as_json(founds: Sequence[SoakResult], plan: Plan, machine: dict[str, str]) -> dict[str, Any]:
    """All of it."""
    return {
        "date": str(datetime.datetime.now(datetime.UTC).date()),
        "machine": machine,
        "minutes": plan.minutes,
        "users": plan.users,
        "seed": plan.seed,
        "deadline": plan.deadline,
        "shapes": [_shape(result) for result in founds],
    }


def _shape(result: SoakResult) -> dict[str, Any]:
    tally = result.tally
    return {
        "shape": result.shape,
        "seconds": round(result.seconds, 1),
        "restarted": result.restarted,
        "counts": {
            kind: {str(outcome): count for outcome, count in sorted(each.items())}
            for kind, each in sorted(tally.outcomes.items())
        },
        "told": dict(tally.told),
        "events": dict(tally.events),
        "latencies": tally.latencies(),
        "verdicts": [{"what": each.what, "met": each.met, "told": each.told} for each in result.verdicts],
        "wrong": tally.wrong,
        "samples": [each.as_dict() for each in result.samples],
    }


def machine() -> dict[str, str]:
    """Where it ran."""
    return describe()


def lines(result: SoakResult) -> list[str]:
    """What to print."""
    verdict_texts = {True: "ok", False: "NOT MET", None: "too short"}
    tally = result.tally
    return [
        f"{SHAPES[result.shape]}: {_counts(result)}",
        *(f"  {verdict_texts[each.met]:9} {each.what}: {each.told}" for each in result.verdicts),
        *(f"  interrupted: {why}: {count}" for why, count in tally.told.most_common()),
        *(f"  {each}" for each in tally.wrong[:30]),
    ]


def _counts(result: SoakResult) -> str:
    tally = result.tally
    counts = ", ".join(f"{tally.count(each):,} {each}" for each in RequestOutcome)
    rate = tally.total / result.seconds
    streamed_count = tally.events["streamed"]
    return (
        f"{tally.total:,} requests in {result.seconds:.0f} s ({rate:.0f} per second): {counts};"
        f" {streamed_count:,} chat events"
    )


def page(founds: Sequence[SoakResult], plan: Plan, where: dict[str, str]) -> str:
    """The part of the documentation."""
    about = "; ".join(f"{key} {value}" for key, value in where.items())
    parts = [
        f"{datetime.datetime.now(datetime.UTC).date()}: {plan.users} users for {plan.minutes:g} minutes in"
        f" each setup, seed {plan.seed}. {about}.",
        "![Memory of each process and requests per second over time](soak.svg)",
    ]
    for result in founds:
        title = SHAPES[result.shape]
        parts += [
            f"### {title[0].upper()}{title[1:]}",
            f"{_counts(result)}.",
            _verdicts(result),
            _table(result),
        ]
    return "\n\n".join(parts)


def _verdicts(result: SoakResult) -> str:
    words = {True: "met", False: "not met", None: "run too short to judge"}
    rows = [f"- {each.what}: {words[each.met]} ({each.told})" for each in result.verdicts]
    if result.tally.told:
        why = ", ".join(f"{count} × {each}" for each, count in result.tally.told.most_common())
        rows.append(f"- interrupted by the restart of a replica: {why}")
    return "\n".join(rows)


def _table(result: SoakResult) -> str:
    rows = ["| request | count | p50, ms | p95, ms | p99, ms |", "|---|--:|--:|--:|--:|"]
    for kind, each in result.tally.latencies().items():
        count = sum(result.tally.outcomes[kind].values())
        numbers = " | ".join(f"{1000 * each[key]:,.0f}" for key in ("p50", "p95", "p99"))
        rows.append(f"| {kind} | {count:,} | {numbers} |")
    return "\n".join(rows)


def put(text: str, part: str) -> str:
    """A page with the part between the marks replaced."""
    head, start, rest = text.partition(START)
    _, end, tail = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the marks are missing: {START} {END}")
    return f"{head}{START}\n\n{part}\n\n{END}{tail}"
