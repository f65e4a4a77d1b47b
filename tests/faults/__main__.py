"""``python -m tests.faults [--write-docs] [--only WORDS]``: every fault, then the table."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time

from tests.conftest import ROOT, ProgramStarter, ResourceSnapshot
from tests.faults import http_faults, protocol_faults, stdio_faults, store_faults  # noqa: F401 - their cases
from tests.faults.suite import CASES, CaseOutcome, find_leaks, memory, run_case

DOCS = ROOT / "docs/reliability.md"
MARK = "<!-- The rest is written by `make faults`. -->"


async def run(only: str) -> tuple[list[CaseOutcome], str, bool]:
    programs = ProgramStarter()
    bad = programs(sys.executable, "-I", ROOT / "tests/hostile/http_server.py", "{port}")
    wanted_cases = [each for each in CASES if only in f"{each.group}: {each.fault}"]
    await run_case(wanted_cases[0], bad)  # Modules that are loaded once are not a leak.
    before, memory_before, start = ResourceSnapshot.take(), memory(), time.monotonic()
    outcomes: list[CaseOutcome] = []
    for each in wanted_cases:
        outcome = await run_case(each, bad)
        outcomes.append(outcome)
        print(f"{'WRONG' if outcome.wrong else 'ok':5} {outcome.seconds:6.1f} s  {each.group}: {each.fault}")
        for line in (*outcome.wrong, *([outcome.seen] if outcome.seen else [])):
            print(f"      {line[:200]}")
    more = await find_leaks(before)
    programs.stop()
    others = sum(outcome.others for outcome in outcomes)
    seconds = time.monotonic() - start
    summary = (
        f"{len(outcomes)} faults in {seconds:.0f} s; meanwhile {others:,} calls to a healthy server, all"
        f" answered correctly. At the end: {len(more)} more tasks, descriptors and processes than at the"
        f" start; memory {memory_before / 1e6:.0f} MB before, {memory() / 1e6:.0f} MB after."
    )
    return outcomes, summary, not more and not any(outcome.wrong for outcome in outcomes)


def table(outcomes: list[CaseOutcome], summary: str) -> str:
    lines = [summary, ""]
    for group in dict.fromkeys(outcome.case.group for outcome in outcomes):
        lines += [f"### {group}", "", "| fault | what the caller sees |", "|---|---|"]
        for outcome in (each for each in outcomes if each.case.group == group):
            text = re.sub(r":\d{4,5}\b", ":PORT", "; ".join(outcome.wrong) or outcome.seen)
            lines.append(f"| {outcome.case.fault} | {' '.join(text.replace('|', '/').split())} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    outcomes, summary, well = asyncio.run(run(options.only))
    print(summary)
    if options.write_docs and not options.only:
        head, _, _ = DOCS.read_text().partition(MARK)
        DOCS.write_text(f"{head}{MARK}\n\n{table(outcomes, summary)}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
