"""Tools as pages list them: what a server says of them, what they cost, and whether they may be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote

from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.types.call import Caller
from toolyard.types.decision import Decision, Verdict
from toolyard.types.tool import Definition, JsonObject
from toolyard.web.services import Services

__all__ = ["ToolRow", "build_plain_row", "build_tool_rows"]

_MAX_TOOLS_WITH_SCHEMAS = 300
"""Tools. Of longer lists the schemas are on the tools' own pages."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool of one server. ``name`` is the server's own."""

    name: str
    title: str | None
    description: str
    annotations: JsonObject
    tokens: int
    schema: JsonObject | None
    exposed: str | None = None
    """What models call it; None where nobody has it."""
    verdict: str | None = None
    reason: str | None = None
    """What keeps it from being used."""
    picked: bool = True
    """Whether the instance's filter has it."""
    href: str | None = None
    review: str | None = None
    """The page where it can be accepted, where it was not."""


def build_plain_row(
    definition: Definition,
    tokens: int | None = None,
    *,
    include_schema: bool = True,
    reason: str | None = None,
    review_path: str | None = None,
) -> ToolRow:
    """A tool as its server published it, with nobody's policy. ``reason``: why it is not accepted."""
    return ToolRow(
        definition.name,
        definition.title,
        definition.description,
        definition.annotations,
        estimate_definition_tokens(definition) if tokens is None else tokens,
        definition.input_schema if include_schema else None,
        reason=reason and f"in quarantine: {reason}",
        review=review_path if reason else None,
    )


def build_tool_rows(
    site: Services,
    caller: Caller,
    tool_listing: ToolListing,
    server_id: str,
    page_prefix: str,
    tool_filter: tuple[str, ...] | None = None,
    *,
    review_path: str,
) -> list[ToolRow]:
    """All tools of one server, sorted by name. ``page`` is the address of a tool's own page, to be followed
    by its name; ``picked`` the instance's filter; ``review`` the page where changed tools are accepted."""
    found = [(name, each) for name, each in tool_listing.tools.items() if each.server_id == server_id]
    found.sort(key=lambda pair: pair[1].name)
    schemas = len(found) <= _MAX_TOOLS_WITH_SCHEMAS
    explain: Callable[[str, Caller], Decision] = site.parts.call_path.explain
    catalogue = tool_listing.catalogues.get(server_id)
    aside = () if catalogue is None else site.parts.locks.quarantine_reasons(catalogue.contents)
    rows = (
        _build_row(
            name,
            each,
            explain(name, caller),
            f"{page_prefix}{quote(each.name, safe='')}",
            tool_filter,
            schemas,
        )
        for name, each in found
    )
    return [replace(row, review=review_path) if row.name in aside else row for row in rows]


def _build_row(
    exposed: str,
    definition: Definition,
    decision: Decision,
    href: str,
    tool_filter: Iterable[str] | None,
    include_schema: bool,
) -> ToolRow:
    decisive = decision.decisive
    return ToolRow(
        definition.name,
        definition.title,
        definition.description,
        definition.annotations,
        estimate_definition_tokens(definition),
        definition.input_schema if include_schema else None,
        exposed,
        decision.verdict.value,
        None if decisive is None or decision.verdict is Verdict.ALLOW else decisive.reason,
        tool_filter is None or definition.name in tool_filter,
        href,
    )
