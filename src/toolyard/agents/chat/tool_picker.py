"""What a chat's tool picker shows: every tool that is known, and for one that is hidden, why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from toolyard.agents.chat.tool_set import Toolbox
from toolyard.catalog.tool_listing import Roster
from toolyard.errors import ToolRefused
from toolyard.types.server import NATIVE
from toolyard.types.tool import Definition, JsonObject

__all__ = ["ToolView", "tool_views"]


@dataclass(frozen=True, slots=True)
class ToolView:
    """One tool for people. What they ticked in the chat is not looked at: it is theirs to change."""

    name: str
    id: str
    server: str
    server_label: str
    native: bool
    title: str | None
    description: str
    input_schema: JsonObject
    shown: bool
    why: str
    """The words of the rule that hides it; empty where it is shown."""
    asks: bool
    """Each call needs an approval."""


async def tool_views(toolbox: Toolbox) -> list[ToolView]:
    """All tools, sorted by name. ``toolbox`` is that of a chat without a choice."""
    roster = await toolbox.roster()
    found = [*_known(toolbox, roster), *_set_aside(toolbox, roster)]
    return sorted(found, key=lambda each: (each.name, each.id))


def _known(toolbox: Toolbox, roster: Roster) -> Iterator[ToolView]:
    for name, definition in roster.tools.items():
        try:
            decision = toolbox.explain(name)
        except ToolRefused:
            continue
        shown, decisive = decision.verdict.shown, decision.decisive
        why = "" if shown or decisive is None else decisive.reason
        yield _view(toolbox, name, definition, shown=shown, why=why, asks=shown and decisive is not None)


def _set_aside(toolbox: Toolbox, roster: Roster) -> Iterator[ToolView]:
    """Definitions that cannot be used, under the only name that they have."""
    for one in roster.quarantined():
        if one.name is not None:
            definition = Definition(one.server_id, one.name)
            yield _view(toolbox, definition.id, definition, shown=False, why=one.reason, asks=False)


def _view(
    toolbox: Toolbox, name: str, definition: Definition, *, shown: bool, why: str, asks: bool
) -> ToolView:
    return ToolView(
        name,
        definition.id,
        definition.server_id,
        toolbox.label(definition.server_id),
        definition.server_id == NATIVE,
        definition.title,
        definition.description,
        definition.input_schema,
        shown,
        why,
        asks,
    )
