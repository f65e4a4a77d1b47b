"""The bar that shows how full a model's context window is, and of what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.types.chat import ModelUsage
from toolyard.web.ui.components.render import render_macro

__all__ = ["CONTEXT_ELEMENT_ID", "find_context_usage", "render_context_bar"]

CONTEXT_ELEMENT_ID = "context"

_LABEL_BY_KIND = {
    "definitions": "Tool definitions and instructions",
    "history": "Messages",
    "results": "Tool results",
}


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of the context."""

    kind: str
    label: str
    tokens: int
    start: float
    """Position on the bar, in percent of the window."""
    percent: float


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Content of the bar."""

    window: int
    used: int
    parts: Sequence[ContextPart]

    @property
    def percent(self) -> int:
        return min(round(100 * self.used / self.window), 100)

    @classmethod
    def from_usage(cls, usage: ModelUsage) -> ContextUse:
        """Return the parts, scaled to the number of tokens that the provider counted, if it did."""
        estimates = {
            "definitions": usage.definitions,
            "history": usage.history,
            "results": usage.results,
        }
        estimated = sum(estimates.values())
        used = usage.input or estimated
        parts: list[ContextPart] = []
        start = 0.0
        for kind, estimate in estimates.items():
            tokens = round(estimate * used / max(estimated, 1))
            percent = min(100 * tokens / usage.window, 100 - start)
            parts.append(ContextPart(kind, _LABEL_BY_KIND[kind], tokens, round(start, 2), round(percent, 2)))
            start += percent
        return cls(usage.window, used, parts)


def find_context_usage(turns: Iterable[TurnSnapshot]) -> ModelUsage | None:
    """Return the usage of the last request whose context was recorded."""
    usages = [turn.usage.last for turn in turns if turn.usage.last is not None]
    return usages[-1] if usages else None


def render_context_bar(usage: ModelUsage | None) -> Markup:
    """Render the bar; without a usage, an empty element to be replaced later."""
    return render_macro(
        "chat_context.html", "context_bar", None if usage is None else ContextUse.from_usage(usage)
    )
