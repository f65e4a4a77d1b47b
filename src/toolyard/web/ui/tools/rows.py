"""Rows of tool lists: definition, estimated tokens, and the policy decision."""

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
"""Maximum number of tools in a list that includes their schemas. Longer lists omit them."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool in a list. ``name`` is the name on its server."""

    name: str
    title: str | None
    description: str
    annotations: JsonObject
    tokens: int
    schema: JsonObject | None
    exposed: str | None = None
    """Name that models see; None in previews."""
    verdict: str | None = None
    reason: str | None = None
    """Reason why it needs approval or cannot be used; None if it can."""
    picked: bool = True
    """True if the tool selection of the instance includes it."""
    href: str | None = None
    review: str | None = None
    """URL of the page where its change can be accepted; None if it has none."""


def build_plain_row(
    definition: Definition,
    tokens: int | None = None,
    *,
    include_schema: bool = True,
    reason: str | None = None,
    review_path: str | None = None,
) -> ToolRow:
    """Return the row of a tool without a policy decision. ``reason`` says why it is in quarantine."""
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
    """Return the rows of all tools of a server, sorted by name.

    ``page_prefix`` plus the name of a tool is the URL of its page. ``tool_filter`` is the selection of the
    instance. ``review_path`` is the page where changed tools are accepted.
    """
    listed = [(name, each) for name, each in tool_listing.tools.items() if each.server_id == server_id]
    listed.sort(key=lambda pair: pair[1].name)
    schemas = len(listed) <= _MAX_TOOLS_WITH_SCHEMAS
    explain: Callable[[str, Caller], Decision] = site.parts.call_path.explain
    catalogue = tool_listing.catalogues.get(server_id)
    quarantined = () if catalogue is None else site.parts.locks.quarantine_reasons(catalogue.contents)
    rows = (
        _build_row(
            name,
            each,
            explain(name, caller),
            f"{page_prefix}{quote(each.name, safe='')}",
            tool_filter,
            schemas,
        )
        for name, each in listed
    )
    return [replace(row, review=review_path) if row.name in quarantined else row for row in rows]


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
