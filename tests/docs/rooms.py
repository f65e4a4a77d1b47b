"""The picture of the rooms, docs/rooms.svg, from the table that the test of the architecture goes by."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tests.conftest import ROOT
from tests.test_architecture import ROOMS

FILE = ROOT / "docs/rooms.svg"
LAYERS = {
    "what all speak of": ("errors", "model", "config"),
    "know, decide, shape": ("catalog", "policy", "content"),
    "reach a server": ("net", "auth", "wire", "transports"),
    "call a tool": ("clients", "meta"),
    "for whom": ("agents", "people", "registry"),
    "keep, put together": ("store", "wiring"),
    "doors": ("yard", "yard_sync", "adapters", "gateway", "web", "cli"),
}
"""The rooms in their order, cut into what is drawn as one row."""
JOBS = {
    "errors": "the whole tree",
    "model": "frozen data",
    "config": "files and settings",
    "catalog": "which tools there are",
    "policy": "may it be seen, called",
    "content": "results for models",
    "net": "HTTP, guard",
    "auth": "who we are",
    "wire": "MCP, both eras",
    "transports": "bytes",
    "clients": "connections, the one call path",
    "meta": "five tools for all",
    "agents": "AGENTS.md, chat",
    "people": "who is calling",
    "registry": "servers, instances",
    "store": "SQL, encryption",
    "wiring": "builds every room",
    "yard": "library",
    "yard_sync": "no loop",
    "adapters": "frameworks",
    "gateway": "we, as server",
    "web": "API, pages",
    "cli": "commands",
}
STYLE = """
    .row { fill: #f4f6f9; stroke: #d9dee5; } .box { fill: #fff; stroke: #c9ced6; }
    .door { fill: #eef4ff; stroke: #4a7bd0; }
    text { fill: #1f2933; } .name { font-weight: 600; } .small { fill: #5b6773; font-size: 11px; }
    .line { stroke: #5b6773; fill: none; } .head { fill: #5b6773; }
    @media (prefers-color-scheme: dark) {
      .row { fill: #12181f; stroke: #2a333d; } .box { fill: #1c232b; stroke: #3a4653; }
      .door { fill: #17263f; stroke: #5d8fe6; } text { fill: #e6ebf0; } .small { fill: #9aa7b4; }
      .line { stroke: #9aa7b4; } .head { fill: #9aa7b4; }
    }"""
SAID = (
    "A room may import the rooms in the rows below it, and those to its left in its own row; "
    "yard, yard_sync and adapters count as one room."
)
WIDTH, LEFT, RIGHT, TOP, TALL, GAP = 900, 150, 865, 12, 54, 10


def picture() -> str:
    assert [room for rooms in LAYERS.values() for room in rooms] == ROOMS, "the layers are not the table's"
    bottom = TOP + len(LAYERS) * (TALL + GAP)
    names = "; ".join(f"{title}: {', '.join(rooms)}" for title, rooms in reversed(LAYERS.items()))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 26}" role="img" '
            f'aria-label="{escape(SAID)} From the top: {escape(names)}." '
            'font-family="system-ui, sans-serif" font-size="13">',
            "  <!-- Written by `make reference` from tests/test_architecture.py. -->",
            f"  <style>{STYLE}\n  </style>",
            *(line for number, title in enumerate(reversed(LAYERS)) for line in _layer(number, title)),
            f'  <path class="line" d="M882 {TOP + 4} V{bottom - GAP - 8}"/>',
            f'  <path class="head" d="M877 {bottom - GAP - 10} h10 l-5 9 z"/>',
            f'  <text class="small" x="22" y="{bottom + 12}">{escape(SAID)}</text>',
            "</svg>",
            "",
        ]
    )


def _layer(number: int, title: str) -> Iterator[str]:
    top, rooms = TOP + number * (TALL + GAP), LAYERS[title]
    yield f'  <rect class="row" x="10" y="{top}" width="{RIGHT - 10}" height="{TALL}" rx="8"/>'
    yield f'  <text class="small" x="22" y="{top + 31}">{title}</text>'
    width = (RIGHT - LEFT - 8 * len(rooms)) / len(rooms)
    kind = "door" if title == "doors" else "box"
    for place, room in enumerate(rooms):
        left = LEFT + place * (width + 8)
        yield (
            f'  <rect class="{kind}" x="{left:.1f}" y="{top + 6}" width="{width:.1f}" height="{TALL - 12}" '
            f'rx="6"/><text class="name" x="{left + 10:.1f}" y="{top + 25}">{room}</text>'
            f'<text class="small" x="{left + 10:.1f}" y="{top + 40}">{JOBS[room]}</text>'
        )
