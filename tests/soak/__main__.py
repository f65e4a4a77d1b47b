"""``python -m tests.soak``: many people for some minutes, in one shape or both, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.soak.plot import picture
from tests.soak.report import as_json, lines, machine, page, put
from tests.soak.runner import Plan, SoakResult, soak

DOCS, PLOT = ROOT / "docs/reliability.md", ROOT / "docs/soak.svg"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each shape")
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--shape", choices=["one", "three", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--think", type=float, default=0.5, help="seconds between two things of one person")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds for each request")
    parser.add_argument("--report", type=Path, help="write every number there, as JSON")
    parser.add_argument("--plot", type=Path, help="draw it there, as SVG")
    parser.add_argument(
        "--write-docs", action="store_true", help="into docs/reliability.md and docs/soak.svg"
    )
    options = parser.parse_args()
    plan = Plan(options.minutes, options.users, options.seed, options.think, options.deadline)
    # Whoever ends it ends all that it started.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    where, founds = machine(), list[SoakResult]()
    for shape in ("one", "three") if options.shape == "both" else (options.shape,):
        founds.append(asyncio.run(soak(shape, plan)))
        print("\n".join(lines(founds[-1])), flush=True)
    if options.report:
        options.report.write_text(json.dumps(as_json(founds, plan, where), indent=1) + "\n")
    if options.plot:
        options.plot.write_text(picture(founds))
    if options.write_docs:
        DOCS.write_text(put(DOCS.read_text(), page(founds, plan, where)))
        PLOT.write_text(picture(founds))
    return 0 if all(soak_result.well for soak_result in founds) else 1


if __name__ == "__main__":
    sys.exit(main())
