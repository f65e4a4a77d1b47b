"""Run every client scenario of the official suite against Toolyard, each alone, and print the table.

``client_scenarios.py --modules FOLDER [--only WORD] [--write-docs]``. A run passes only if the suite
says so and its process exits with 0 before the deadline. Exits with 1 after any unexpected failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "conformance.md"
SUITES = {"0.1.16": "conformance-0.1", "0.2.0-alpha.12": "conformance-0.2"}
SCENARIO_DEADLINE_SECONDS = 90.0
MAX_PARALLEL_SCENARIOS = 2

OUT_OF_SCOPE = re.compile(r"sep-2640|dpop|wif-|cross-app|enterprise-managed")
"""Extensions that Toolyard does not have: skills, DPoP, workload identity, cross-app access."""

EXPECTED = {
    ("0.1.16", "auth/2025-03-26-oauth-metadata-backcompat"): (
        "the issuer in the metadata of the suite's server differs from the server's address, and RFC 8414 "
        "section 3.3 forbids using such metadata; 0.2.0-alpha.12 corrects the scenario, and Toolyard "
        "passes it"
    ),
    **{
        (suite, "auth/basic-cimd"): (
            "a warning: Toolyard uses a client ID document only with authorization servers that promise iss, "
            "as anybody can present it elsewhere, and the suite's server does not promise it (decision 0033)"
        )
        for suite in SUITES
    },
}
"""Failures for which the suite or a decision of ours is the reason, with the evidence."""

_SCENARIO_LINE = re.compile(r"^\s+- (\S+) \[([^\]]*)\]")
_COUNTS = re.compile(r"Passed: (\d+)/(\d+), (\d+) failed, (\d+) warnings")


@dataclass(frozen=True)
class ClientScenarioRun:
    suite: str
    scenario: str
    revision: str | None


@dataclass(frozen=True)
class ClientScenarioOutcome:
    run: ClientScenarioRun
    passed: bool
    checks: str
    output: str

    @property
    def expected(self) -> str | None:
        return EXPECTED.get((self.run.suite, self.run.scenario))


class Suites:
    def __init__(self, modules: Path) -> None:
        self._modules = modules

    async def ask(self, suite: str, *words: str) -> tuple[int | None, str]:
        """Run the suite's own program; return its exit code (None after the deadline) and its output."""
        program = self._modules / SUITES[suite] / "dist" / "index.js"
        process = await asyncio.create_subprocess_exec(
            str(self._modules / "node" / "bin" / "node"),
            str(program),
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            stdout, _ = await asyncio.wait_for(process.communicate(), SCENARIO_DEADLINE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            return None, f"not finished after {SCENARIO_DEADLINE_SECONDS:.0f} s"
        return process.returncode, stdout.decode("utf-8", "replace")

    async def runs(self, only: str) -> list[ClientScenarioRun]:
        scenario_runs: list[ClientScenarioRun] = []
        for suite in SUITES:
            _, scenario_list = await self.ask(suite, "list", "--client")
            scenario_runs += _runs(suite, scenario_list)
        return [run for run in scenario_runs if only in run.scenario]

    async def run(self, run: ClientScenarioRun) -> ClientScenarioOutcome:
        driver = f"{sys.executable} {HERE / 'client_driver.py'}"
        words = ["client", "--command", driver, "--scenario", run.scenario]
        if run.revision is not None:
            words += ["--spec-version", run.revision]
        code, stdout = await self.ask(run.suite, *words)
        counts = _COUNTS.search(stdout)
        is_passed = code == 0 and counts is not None and counts[1] == counts[2] and counts[3] == "0"
        return ClientScenarioOutcome(
            run, is_passed, f"{counts[1]}/{counts[2]}" if counts else f"exit {code}", stdout
        )


def _runs(suite: str, scenario_list: str) -> Iterator[ClientScenarioRun]:
    """Return one run for each revision of a scenario; the first version of the suite knows only one era."""
    for line in scenario_list.splitlines():
        match = _SCENARIO_LINE.match(line)
        if match is None or OUT_OF_SCOPE.search(match[1]):
            continue
        revisions = [word for word in match[2].split(",") if re.fullmatch(r"\d{4}-\d\d-\d\d", word)]
        if suite == "0.1.16" or not revisions:
            yield ClientScenarioRun(suite, match[1], None)
        else:
            yield from (ClientScenarioRun(suite, match[1], revision) for revision in revisions)


def table(outcomes: list[ClientScenarioOutcome]) -> str:
    """Return one line per scenario, with one column for each suite and revision."""
    columns = sorted({(o.run.suite, o.run.revision or "") for o in outcomes})
    cells = {(o.run.scenario, o.run.suite, o.run.revision or ""): o for o in outcomes}
    titles = [f"{suite} {revision}".strip() for suite, revision in columns]
    lines = ["| scenario | " + " | ".join(titles) + " |", "|---|" + "---|" * len(columns)]
    for scenario in dict.fromkeys(o.run.scenario for o in outcomes):
        row = [_cell(cells.get((scenario, *column))) for column in columns]
        lines.append(f"| {scenario} | " + " | ".join(row) + " |")
    for suite in SUITES:
        ours = [o for o in outcomes if o.run.suite == suite]
        good = sum(o.passed for o in ours)
        lines += ["", f"{suite}: {good} of {len(ours)} runs passed."]
    for outcome in outcomes:
        reason = f"`{outcome.run.scenario}` of {outcome.run.suite}: {outcome.expected}."
        if not outcome.passed and outcome.expected and reason not in lines:
            lines += ["", reason]
    return "\n".join(lines)


def _cell(outcome: ClientScenarioOutcome | None) -> str:
    if outcome is None:
        return ""
    if outcome.passed:
        return outcome.checks
    return f"expected ({outcome.checks})" if outcome.expected else f"**failed** ({outcome.checks})"


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True, help="node_modules with both versions")
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    suites = Suites(options.modules)
    gate = asyncio.Semaphore(MAX_PARALLEL_SCENARIOS)

    async def one(run: ClientScenarioRun) -> ClientScenarioOutcome:
        async with gate:
            return await suites.run(run)

    outcomes = await asyncio.gather(*map(one, await suites.runs(options.only)))
    print(table(list(outcomes)))
    failed_outcomes = [outcome for outcome in outcomes if not outcome.passed and not outcome.expected]
    for outcome in failed_outcomes:
        print(f"\n== {outcome.run}\n{outcome.output[-3000:]}", file=sys.stderr)
    if options.write_docs:
        head, mark, _ = DOCS.read_text().partition("<!-- client -->\n")
        DOCS.write_text(f"{head}{mark}{table(list(outcomes))}\n")
    print(json.dumps({"runs": len(outcomes), "failed": len(failed_outcomes)}))
    return 1 if failed_outcomes else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
