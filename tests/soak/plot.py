"""A picture of soaks: memory of each process and requests per second over time, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tests.soak.process_samples import Sample
from tests.soak.runner import SHAPES, SoakResult

_WIDTH, _LEFT_EDGE, _RIGHT = 760, 64, 16
_HEIGHT, _HEAD, _FOOT = 130, 34, 24
_LABEL = "Memory of each process and requests per second over time"
_STYLE = """<style>
text { fill: #1f2933; font: 12px system-ui, sans-serif; } .title { font-weight: 600; }
.small { fill: #5b6773; font-size: 11px; } .grid { stroke: #dde2e8; }
.mark { stroke: #8b97a5; stroke-dasharray: 4 4; } polyline { fill: none; stroke-width: 1.5; }
.a { stroke: #2f6fd0; } .b { stroke: #c2571a; } .c { stroke: #2c8a57; } .rate { stroke: #7a4fc0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6ebf0; } .small { fill: #9aa7b4; } .grid { stroke: #2b343e; } .mark { stroke: #6b7885; }
  .a { stroke: #6ea3f5; } .b { stroke: #f0955c; } .c { stroke: #62c58f; } .rate { stroke: #b193ee; }
}
</style>"""


@dataclass(frozen=True)
class PlotLine:
    """Points over time, drawn in one colour."""

    colour: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One diagram: where it begins, and what it shows."""

    title: str
    lines: Sequence[PlotLine]
    seconds: float
    restarted: float | None
    top: int

    @property
    def base(self) -> int:
        return self.top + _HEAD + _HEIGHT

    @property
    def step(self) -> float:
        """Between lines of the grid: a round number, so that there are no more than six."""
        most = max((value for line in self.lines for _, value in line.points), default=1.0)
        size = 10 ** math.floor(math.log10(max(most, 1.0)))
        return next(size * n for n in (0.2, 0.5, 1, 2) if most / (size * n) <= 5)

    @property
    def high(self) -> float:
        most = max((value for line in self.lines for _, value in line.points), default=1.0)
        return self.step * max(1, math.ceil(most / self.step))

    def x(self, at: float) -> float:
        return _LEFT_EDGE + (_WIDTH - _LEFT_EDGE - _RIGHT) * min(at / self.seconds, 1.0)

    def y(self, value: float) -> float:
        return self.base - _HEIGHT * value / self.high

    def drawn(self) -> Iterator[str]:
        yield f'<text class="title" x="{_LEFT_EDGE}" y="{self.top + 22}">{escape(self.title)}</text>'
        for n in range(round(self.high / self.step) + 1):
            y = self.y(n * self.step)
            yield f'<path class="grid" d="M{_LEFT_EDGE} {y:.1f}H{_WIDTH - _RIGHT}"/>'
            yield _text(_LEFT_EDGE - 8, y + 4, f"{n * self.step:g}", "end")
        for n, anchor in enumerate(("start", "middle", "middle", "middle", "end")):
            at = self.seconds * n / 4
            yield _text(self.x(at), self.base + 16, f"{at / 60:.1f} min", anchor)
        if self.restarted is not None:
            x = self.x(self.restarted)
            yield f'<path class="mark" d="M{x:.1f} {self.top + _HEAD}V{self.base}"/>'
            yield _text(x + 4, self.base - 6, "replica restarts", "start")
        for line in self.lines:
            points = " ".join(f"{self.x(at):.1f},{self.y(value):.1f}" for at, value in line.points)
            yield f'<polyline class="{line.colour}" points="{points}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def picture(founds: Sequence[SoakResult]) -> str:
    """All of them, one below the other, as SVG."""
    panels = list[Panel]()
    for result in founds:
        for name, lines in (("memory, MB", _memory(result)), ("requests per second", _rate(result))):
            title, top = f"{SHAPES[result.shape]}: {name}", len(panels) * (_HEAD + _HEIGHT + _FOOT)
            panels.append(Panel(title, lines, result.seconds, result.restarted, top))
    size = f"0 0 {_WIDTH} {len(panels) * (_HEAD + _HEIGHT + _FOOT)}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-label="{_LABEL}">'
    return "\n".join([head, _STYLE, *(each for panel in panels for each in panel.drawn()), "</svg>\n"])


def _memory(result: SoakResult) -> list[PlotLine]:
    """A line for each process that lived."""
    lives: dict[tuple[int, int], list[Sample]] = {}
    for each in result.samples:
        lives.setdefault((each.replica, each.pid), []).append(each)
    return [
        PlotLine("abc"[replica % 3], [(each.at, each.rss / 1e6) for each in life])
        for (replica, _), life in sorted(lives.items())
    ]


def _rate(result: SoakResult) -> list[PlotLine]:
    """Over five samples at a time: single ones jump."""
    first = [each for each in result.samples if each.replica == 0]
    pairs = zip(first, first[5:], strict=False)
    return [PlotLine("rate", [(b.at, (b.requests - a.requests) / (b.at - a.at)) for a, b in pairs])]
