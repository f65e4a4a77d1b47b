"""Bar charts as SVG geometry. Templates draw it with attributes and classes, as the content security policy
forbids inline styles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Bar", "BarChart"]

_WIDTH = 720.0
_HEIGHT = 150.0
_GAP_SHARE = 0.25
"""Part of the width of a bar's slot that stays empty."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its whole height, and the height of the highlighted part at its foot."""

    x: float
    width: float
    height: float
    part_height: float
    label: str
    """Text for the tooltip."""

    @property
    def y(self) -> float:
        """Top of the bar."""
        return round(_HEIGHT - self.height, 2)

    @property
    def part_y(self) -> float:
        """Top of the highlighted part."""
        return round(_HEIGHT - self.part_height, 2)


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars of equal width, the highest as high as the chart."""

    title: str
    bars: Sequence[Bar]
    highest: float
    width = _WIDTH
    height = _HEIGHT

    @classmethod
    def build(cls, title: str, bars: Sequence[tuple[str, float, float]]) -> BarChart:
        """Build a chart of bars given as label, value and highlighted part of the value."""
        highest = max((value for _, value, _ in bars), default=0.0)
        slot = _WIDTH / max(len(bars), 1)
        scale = _HEIGHT / highest if highest else 0.0
        return cls(
            title,
            [
                Bar(
                    round((index + _GAP_SHARE / 2) * slot, 2),
                    round(slot * (1 - _GAP_SHARE), 2),
                    round(value * scale, 2),
                    round(part * scale, 2),
                    label,
                )
                for index, (label, value, part) in enumerate(bars)
            ],
            highest,
        )
