"""The picture of the packages, docs/packages.svg, drawn from the package order of the architecture test."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tests.conftest import ROOT
from tests.test_architecture import PACKAGES

FILE = ROOT / "docs/packages.svg"
LAYERS = {
    "ground": ("errors", "types", "concurrency", "tracing", "config"),
    "domain": ("policy", "results", "catalog", "net", "auth", "store"),
    "connections": ("protocol", "transports", "workers", "clients", "meta_tools"),
    "services": ("agents", "accounts", "registry"),
    "composition": ("core",),
    "interfaces": ("library", "adapters", "gateway", "web", "background", "cli"),
}
"""The packages in their order, one row of the picture each."""
SUMMARIES = {
    "errors": "every exception class",
    "types": "frozen dataclasses",
    "concurrency": "tasks, bounded caches",
    "tracing": "OpenTelemetry",
    "config": "files and settings",
    "policy": "tool visibility",
    "results": "result shaping",
    "catalog": "tools, search",
    "net": "HTTP, guard",
    "auth": "OAuth 2.1 client",
    "protocol": "MCP messages",
    "transports": "stdio, HTTP, SSE",
    "workers": "untrusted work",
    "clients": "connections, call path",
    "meta_tools": "tool search for agents",
    "agents": "AGENTS.md, models, chat",
    "accounts": "users, sessions, tokens",
    "registry": "servers, instances",
    "store": "database",
    "core": "builds the services",
    "library": "class Toolyard",
    "adapters": "frameworks",
    "gateway": "MCP endpoint",
    "web": "API, pages",
    "background": "shared process",
    "cli": "commands",
}
STYLE = """
    .row { fill: #f4f6f9; stroke: #d9dee5; } .box { fill: #fff; stroke: #c9ced6; }
    .interface { fill: #eef4ff; stroke: #4a7bd0; }
    text { fill: #1f2933; } .name { font-weight: 600; } .small { fill: #5b6773; font-size: 11px; }
    .line { stroke: #5b6773; fill: none; } .head { fill: #5b6773; }
    @media (prefers-color-scheme: dark) {
      .row { fill: #12181f; stroke: #2a333d; } .box { fill: #1c232b; stroke: #3a4653; }
      .interface { fill: #17263f; stroke: #5d8fe6; } text { fill: #e6ebf0; } .small { fill: #9aa7b4; }
      .line { stroke: #9aa7b4; } .head { fill: #9aa7b4; }
    }"""
CAPTION = (
    "A package imports packages in the rows below it and those to its left; "
    "library and adapters may import each other."
)
WIDTH, LEFT_EDGE, RIGHT, TOP, HEIGHT, GAP = 900, 150, 865, 12, 54, 10


def picture() -> str:
    """Return the SVG."""
    assert [package for packages in LAYERS.values() for package in packages] == PACKAGES, (
        "LAYERS and PACKAGES differ"
    )
    bottom = TOP + len(LAYERS) * (HEIGHT + GAP)
    names = "; ".join(f"{title}: {', '.join(packages)}" for title, packages in reversed(LAYERS.items()))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 26}" role="img" '
            f'aria-label="{escape(CAPTION)} From the top: {escape(names)}." '
            'font-family="system-ui, sans-serif" font-size="13">',
            "  <!-- Written by `make reference` from tests/test_architecture.py. -->",
            f"  <style>{STYLE}\n  </style>",
            *(line for number, title in enumerate(reversed(LAYERS)) for line in _layer(number, title)),
            f'  <path class="line" d="M882 {TOP + 4} V{bottom - GAP - 8}"/>',
            f'  <path class="head" d="M877 {bottom - GAP - 10} h10 l-5 9 z"/>',
            f'  <text class="small" x="22" y="{bottom + 12}">{escape(CAPTION)}</text>',
            "</svg>",
            "",
        ]
    )


def _layer(number: int, title: str) -> Iterator[str]:
    top, packages = TOP + number * (HEIGHT + GAP), LAYERS[title]
    yield f'  <rect class="row" x="10" y="{top}" width="{RIGHT - 10}" height="{HEIGHT}" rx="8"/>'
    yield f'  <text class="small" x="22" y="{top + 31}">{title}</text>'
    width = (RIGHT - LEFT_EDGE - 8 * len(packages)) / len(packages)
    kind = "interface" if title == "interfaces" else "box"
    for position, package in enumerate(packages):
        left = LEFT_EDGE + position * (width + 8)
        yield (
            f'  <rect class="{kind}" x="{left:.1f}" y="{top + 6}" width="{width:.1f}" height="{HEIGHT - 12}" '
            f'rx="6"/><text class="name" x="{left + 10:.1f}" y="{top + 25}">{package}</text>'
            f'<text class="small" x="{left + 10:.1f}" y="{top + 40}">{SUMMARIES[package]}</text>'
        )
