"""Tools shown in a chat's tool picker: every known tool, and why a hidden one is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from toolyard.agents.chat.tool_set import ToolSet
from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import ToolRefused
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.tool import Definition, JsonObject

__all__ = ["ToolView", "list_tool_views"]


@dataclass(frozen=True, slots=True)
class ToolView:
    """One tool for display.

    The tools selected for the chat are not considered: the picker edits that selection.
    """

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
    """Reason given by the rule that hides the tool; empty if it is shown."""
    asks: bool
    """Each call needs an approval."""


async def list_tool_views(tool_set: ToolSet) -> list[ToolView]:
    """Return all tools sorted by name. ``tool_set`` must belong to a chat without a selection."""
    listing = await tool_set.fetch_listing()
    views = [*_view_listed_tools(tool_set, listing), *_view_quarantined_tools(tool_set, listing)]
    return sorted(views, key=lambda each: (each.name, each.id))


def _view_listed_tools(tool_set: ToolSet, listing: ToolListing) -> Iterator[ToolView]:
    for name, definition in listing.tools.items():
        try:
            decision = tool_set.explain(name)
        except ToolRefused:
            continue
        shown, decisive = decision.verdict.is_visible, decision.decisive
        why = "" if shown or decisive is None else decisive.reason
        yield _build_tool_view(
            tool_set, name, definition, shown=shown, why=why, asks=shown and decisive is not None
        )


def _view_quarantined_tools(tool_set: ToolSet, listing: ToolListing) -> Iterator[ToolView]:
    """Yield rejected definitions, under their ids because they have no exposed name."""
    for rejected in listing.quarantined():
        if rejected.name is not None:
            definition = Definition(rejected.server_id, rejected.name)
            yield _build_tool_view(
                tool_set, definition.id, definition, shown=False, why=rejected.reason, asks=False
            )


def _build_tool_view(
    tool_set: ToolSet, name: str, definition: Definition, *, shown: bool, why: str, asks: bool
) -> ToolView:
    return ToolView(
        name,
        definition.id,
        definition.server_id,
        tool_set.server_label(definition.server_id),
        definition.server_id == NATIVE_SERVER_ID,
        definition.title,
        definition.description,
        definition.input_schema,
        shown,
        why,
        asks,
    )
