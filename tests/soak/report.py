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
        "shapes": [_shape(found) for found in founds],
    }


def _shape(found: SoakResult) -> dict[str, Any]:
    tally = found.tally
    return {
        "shape": found.shape,
        "seconds": round(found.seconds, 1),
        "restarted": found.restarted,
        "counts": {
            kind: {str(outcome): count for outcome, count in sorted(each.items())}
            for kind, each in sorted(tally.outcomes.items())
        },
        "told": dict(tally.told),
        "events": dict(tally.events),
        "latencies": tally.latencies(),
        "verdicts": [{"what": each.what, "met": each.met, "told": each.told} for each in found.verdicts],
        "wrong": tally.wrong,
        "samples": [each.as_dict() for each in found.samples],
    }


def machine() -> dict[str, str]:
    """Where it ran."""
    return describe()


def lines(found: SoakResult) -> list[str]:
    """What to print."""
    told = {True: "ok", False: "NOT MET", None: "too short"}
    tally = found.tally
    return [
        f"{SHAPES[found.shape]}: {_counts(found)}",
        *(f"  {told[each.met]:9} {each.what}: {each.told}" for each in found.verdicts),
        *(f"  interrupted: {why}: {count}" for why, count in tally.told.most_common()),
        *(f"  {each}" for each in tally.wrong[:30]),
    ]


def _counts(found: SoakResult) -> str:
    tally = found.tally
    counts = ", ".join(f"{tally.count(each):,} {each}" for each in RequestOutcome)
    rate = tally.total / found.seconds
    streamed = tally.events["streamed"]
    return (
        f"{tally.total:,} requests in {found.seconds:.0f} s ({rate:.0f} per second): {counts};"
        f" {streamed:,} chat events"
    )


def page(founds: Sequence[SoakResult], plan: Plan, where: dict[str, str]) -> str:
    """The part of the documentation."""
    about = "; ".join(f"{key} {value}" for key, value in where.items())
    parts = [
        f"{datetime.datetime.now(datetime.UTC).date()}: {plan.users} users for {plan.minutes:g} minutes in"
        f" each setup, seed {plan.seed}. {about}.",
        "![Memory of each process and requests per second over time](soak.svg)",
    ]
    for found in founds:
        title = SHAPES[found.shape]
        parts += [f"### {title[0].upper()}{title[1:]}", f"{_counts(found)}.", _verdicts(found), _table(found)]
    return "\n\n".join(parts)


def _verdicts(found: SoakResult) -> str:
    words = {True: "met", False: "not met", None: "run too short to judge"}
    rows = [f"- {each.what}: {words[each.met]} ({each.told})" for each in found.verdicts]
    if found.tally.told:
        why = ", ".join(f"{count} × {each}" for each, count in found.tally.told.most_common())
        rows.append(f"- interrupted by the restart of a replica: {why}")
    return "\n".join(rows)


def _table(found: SoakResult) -> str:
    rows = ["| request | count | p50, ms | p95, ms | p99, ms |", "|---|--:|--:|--:|--:|"]
    for kind, each in found.tally.latencies().items():
        count = sum(found.tally.outcomes[kind].values())
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
