"""Tools of one server: a fresh listing, and the rows and details that pages show."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends

from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.concurrency.tasks import iterate_in_steps
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import ServerError, Unreachable
from toolyard.registry.errors import NotFound
from toolyard.types.account import Principal, RequestUser
from toolyard.types.call import Decision, Verdict
from toolyard.types.server import Server
from toolyard.types.tool import Catalogue, Definition, JsonObject
from toolyard.web import service_dependencies as deps
from toolyard.web.ui.components.rule_texts import describe_step

__all__ = [
    "FoundTool",
    "ServerListing",
    "ServerTools",
    "ServerToolsDep",
    "ToolRow",
    "build_plain_row",
    "find_file_server",
]

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
    """Why it needs approval or cannot be used, in words; None if it can."""
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
        reason=reason,
        review=review_path if reason else None,
    )


@dataclass(frozen=True, slots=True)
class ServerListing:
    """Result of a listing: a catalogue or an error."""

    tool_listing: ToolListing
    catalogue: Catalogue | None
    error: ServerError | None
    seconds: float


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A tool under its exposed name, with the decision about it."""

    exposed: str
    definition: Definition
    decision: Decision
    quarantined: bool


@dataclass(frozen=True, slots=True)
class ServerTools:
    """Lists and explains the tools of single servers."""

    callers: deps.CallersDep
    tool_directory: deps.ToolDirectoryDep
    call_path: deps.CallPathDep
    locks: deps.LocksDep

    async def fetch(self, principal: Principal, server: Server) -> ServerListing:
        """Connect if necessary and list the tools. A ServerError is returned in ``error``, not raised."""
        began = time.perf_counter()
        if not server.enabled:
            cause = server.disabled_reason or "the server is disabled in its entry"
            hint = server.problem_hint if server.problems else None
            known = self.tool_directory.known_listing(principal)
            return ServerListing(known, None, Unreachable(cause, server=server.id, hint=hint), 0.0)
        tool_listing = await self.tool_directory.refresh(principal, fresh=True, only=[server.id])
        error = tool_listing.failures.get(server.id)
        if error is not None:
            # Errors may quote headers or URLs with credentials of the server.
            self.call_path.redact_error(error)
        catalogue = None if error is not None else tool_listing.catalogues.get(server.id)
        return ServerListing(tool_listing, catalogue, error, time.perf_counter() - began)

    async def find(self, me: RequestUser, server: Server, name: str) -> FoundTool:
        """Return the tool that a server calls ``name``. Raise NotFound or a ServerError."""
        listing = self.tool_directory.known_listing(me.principal)
        found = _find_tool(listing, server.id, name)
        if found is None:
            # This process has not listed the server yet, or the tool was added since: fetch a new listing.
            fetched = await self.fetch(me.principal, server)
            if fetched.error is not None:
                raise fetched.error
            listing = fetched.tool_listing
            found = _find_tool(listing, server.id, name)
        if found is None:
            raise NotFound(
                "the server has no such tool", hint="it may have changed; check the list of its tools"
            )
        exposed, definition = found
        decision = self.call_path.explain(exposed, self.callers.get(me))
        return FoundTool(
            exposed, definition, decision, definition.name in self._quarantined(listing, server.id)
        )

    async def build_rows(
        self,
        me: RequestUser,
        tool_listing: ToolListing,
        server_id: str,
        page: str,
        tool_filter: tuple[str, ...] | None = None,
    ) -> list[ToolRow]:
        """Return the rows of all tools of a server, sorted by name.

        ``page`` is the path of the server's or instance's page, ``tool_filter`` the selection of the
        instance.
        """
        caller = self.callers.get(me)
        listed = [(name, each) for name, each in tool_listing.tools.items() if each.server_id == server_id]
        listed.sort(key=lambda pair: pair[1].name)
        schemas = len(listed) <= _MAX_TOOLS_WITH_SCHEMAS
        quarantined = self._quarantined(tool_listing, server_id)
        rows = [
            _build_row(
                name,
                each,
                self.call_path.explain(name, caller),
                f"{page}/tool?name={quote(each.name, safe='')}",
                tool_filter,
                schemas,
            )
            async for name, each in iterate_in_steps(listed)
        ]
        return [replace(row, review=f"{page}/changes") if row.name in quarantined else row for row in rows]

    def _quarantined(self, listing: ToolListing, server_id: str) -> Iterable[str]:
        catalogue = listing.catalogues.get(server_id)
        return () if catalogue is None else self.locks.quarantine_reasons(catalogue.contents)


ServerToolsDep = Annotated[ServerTools, Depends()]


def find_file_server(config: CurrentConfig, server_id: str) -> Server:
    """Return a server of the configuration. Raises NotFound."""
    server = config.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("server not found", hint="it may have been removed from its file")
    return server


def _find_tool(tool_listing: ToolListing, server_id: str, name: str) -> tuple[str, Definition] | None:
    for exposed, definition in tool_listing.tools.items():
        if definition.server_id == server_id and definition.name == name:
            return exposed, definition
    return None


def _build_row(
    exposed: str,
    definition: Definition,
    decision: Decision,
    href: str,
    tool_filter: Iterable[str] | None,
    include_schema: bool,
) -> ToolRow:
    step = decision.decisive
    return replace(
        build_plain_row(definition, include_schema=include_schema),
        exposed=exposed,
        verdict=decision.verdict.value,
        reason=None if step is None or decision.verdict is Verdict.ALLOW else describe_step(step).text,
        picked=tool_filter is None or definition.name in tool_filter,
        href=href,
    )
