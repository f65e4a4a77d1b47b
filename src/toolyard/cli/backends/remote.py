"""The backend on the API of another Toolyard, for ``--remote``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from toolyard.cli.backends.backend import (
    Approve,
    CommandCall,
    EarlyServersReport,
    OnCallProgress,
    PartialTools,
    SearchReport,
    SearchRequest,
    ServersReport,
    ServersRequest,
    ToolsReport,
    ToolsRequest,
)
from toolyard.cli.backends.remote_client import RemoteClient, quote_path_segment
from toolyard.cli.input.arguments import coerce_key_values
from toolyard.cli.output.console import Notice, format_age, one_line
from toolyard.cli.output.notices import describe_hidden_tools, hidden_tools_notices
from toolyard.cli.output.servers import ServerSummary, describe_server_info
from toolyard.errors import CallTimeout
from toolyard.results import ResultLimits
from toolyard.results.model_result import shape_result
from toolyard.types.call import HiddenTool
from toolyard.types.server import ServerProcess, Trust
from toolyard.types.tool import Definition, Result, Tool

__all__ = ["RemoteBackend"]

_WORKING_STATES = ("ready", "idle", "connecting", "disabled")


class RemoteBackend:
    """Works on the servers, instances and tools that the token may use."""

    outlives_command = True

    def __init__(self, client: RemoteClient) -> None:
        self._client = client

    async def list_tools(
        self, request: ToolsRequest, on_early: Callable[[PartialTools], None] | None = None
    ) -> ToolsReport:
        """Return the remote's tools that the caller may use."""
        found = await self._client.get(
            "/tools",
            agent=request.agent,
            server=request.server,
            bundle=list(request.bundles),
            fresh="true" if request.fresh else None,
        )
        tools = [Tool(**each) for each in found["items"]]
        failures = {each["server"]: each["problem"]["detail"] for each in found["failures"]}
        # A remote of an earlier version sends none.
        hidden = [HiddenTool(**each) for each in found.get("hidden", ())]
        provider = request.provider
        return ToolsReport(
            tools if provider is None else [],
            None if provider is None else [_format_for_provider(tool, provider) for tool in tools],
            found["listed_seconds_ago"],
            failures,
            found["set_aside"],
            hidden,
            [
                *map(Notice, found["set_aside"]),
                *(Notice(f"server '{id}': {one_line(cause)}", None, True) for id, cause in failures.items()),
                *hidden_tools_notices(hidden, are_shown=request.shows_hidden or provider is not None),
            ],
        )

    async def list_servers(
        self, request: ServersRequest, on_early: Callable[[EarlyServersReport], None] | None = None
    ) -> ServersReport:
        """Return the states of the remote's servers and of the caller's instances."""
        listed: dict[str, Any] = {}
        if request.connects:
            listed = await self._client.get("/tools", fresh="true")
        found = await self._client.get("/status")
        notices = [Notice(text) for text in listed.get("set_aside", ())]
        if problem := found.get("config_problem"):
            text = f"the latest edit of the remote configuration was not applied: {one_line(problem)}"
            notices.append(Notice(text))
        servers: list[ServerSummary] = []
        for record in found["items"]:
            line = _summarize_record(record, listed, request.connects)
            rules = [each["rule"] for each in listed.get("hidden", ()) if _is_about(each["server"], record)]
            servers.append(replace(line, hidden_count=len(rules)))
            if rules and len(rules) >= (line.tool_count or 0):
                text, hint = describe_hidden_tools(line.server, Trust(line.trust), rules)
                notices.append(Notice(f"server '{one_line(line.server)}' {text}", hint))
        return ServersReport(servers, notices)

    async def search(self, request: SearchRequest) -> SearchReport:
        """Search among the remote's tools that the caller may use.

        The API has no search: its list is searched here, with the index that the remote uses, too. What the
        servers say of themselves is not in the list, so the order may differ.
        """
        found = await self._client.get("/tools", agent=request.agent, bundle=list(request.bundles))
        tools = {each["name"]: Tool(**each) for each in found["items"]}
        if request.query.strip():
            names = await asyncio.to_thread(_find_best_names, tools, request.query, request.limit)
        else:
            names = sorted(tools, key=lambda name: (tools[name].server, name))[: request.limit]
        failures = {each["server"]: each["problem"]["detail"] for each in found["failures"]}
        notices = (Notice(f"server '{id}': {one_line(cause)}") for id, cause in failures.items())
        return SearchReport([tools[name] for name in names], notices=list(notices))

    async def call(
        self, request: CommandCall, on_progress: OnCallProgress, approve: Approve | None = None
    ) -> Result:
        """Call a tool. The remote asks for approvals on its pages, and reports no progress."""
        bundles, name, arguments = list(request.bundles), quote_path_segment(request.name), request.arguments
        try:
            async with asyncio.timeout(request.timeout):
                if arguments is None:
                    tool = await self._client.get(f"/tools/{name}", agent=request.agent, bundle=bundles)
                    arguments = coerce_key_values(request.argument_words, tool["input_schema"])
                body = {"arguments": arguments, "agent": request.agent, "bundles": bundles}
                found = await self._client.post(f"/tools/{name}/call", body)
        except TimeoutError:
            raise CallTimeout(f"'{request.name}' took longer than {request.timeout:g} s") from None
        limits = ResultLimits(ResultLimits.UNLIMITED_CHARACTERS)
        whole = shape_result(found["raw"], limits, Trust.TRUSTED)
        text = whole.text if found["truncated"] else found["text"]
        return Result(
            found["raw"], text, found["is_error"], whole.blocks, tuple(found["warnings"]), cause=whole.cause
        )

    async def restart(self, server: str) -> ServerSummary:
        """Restart one of the remote's servers."""
        record = await self._client.post(f"/servers/{quote_path_segment(server)}/restart")
        return _summarize_record(record, {}, True)


def _summarize_record(
    record: dict[str, Any], tools_response: dict[str, Any], has_connected: bool
) -> ServerSummary:
    """Return a record of the API as a summary line. An instance is named by its slug."""
    server = record["slug"] or record["id"]
    ages: dict[str, float] = tools_response.get("listed_seconds_ago", {})
    age = next((each for name, each in ages.items() if _is_about(name, record)), None)
    info = {"name": record["server_name"], "version": record["server_version"]}
    about = (
        describe_server_info(info)
        if has_connected
        else "never listed"
        if record["tool_count"] is None
        else ""
    )
    return ServerSummary(
        server=server,
        state=record["state"],
        enabled=record["enabled"],
        transport=record["transport"],
        trust=record["trust"],
        origin=record["provenance"] or "",
        about=about if has_connected or age is None else f"listed {format_age(age)}",
        is_broken=record["enabled"] and record["state"] not in _WORKING_STATES,
        cause=None if record["cause"] is None else one_line(record["cause"]),
        hint=record["hint"],
        protocol_version=record["protocol_version"],
        server_info=info,
        tool_count=record["tool_count"],
        token_count=record["token_cost"],
        quarantined_tools=(),
        listed_seconds_ago=age,
        stderr_lines=tuple(one_line(each) for each in record["stderr"]),
        # A remote of an earlier version does not report them.
        processes=tuple(
            ServerProcess(each["pid"], tuple(each["users"]), each["launch"])
            for each in record.get("processes", ())
        ),
    )


def _is_about(server: str, record: dict[str, Any]) -> bool:
    """Return whether a server's id in a listing is that of a record. An instance has ``@person/slug``."""
    if record["slug"]:
        return server.startswith("@") and server.endswith(f"/{record['slug']}")
    return server == record["id"]


def _find_best_names(tools: Mapping[str, Tool], query: str, limit: int) -> list[str]:
    from toolyard.catalog.search import SearchIndex  # only for searches

    index = SearchIndex()
    servers: dict[str, dict[str, Definition]] = {}
    for name, tool in tools.items():
        servers.setdefault(tool.server, {})[name] = _make_definition(tool)
    for server, definitions in servers.items():
        index.put(server, definitions)
    return [hit.name for hit in index.search(query, limit)]


def _format_for_provider(tool: Tool, provider: Any) -> dict[str, Any]:
    from toolyard.catalog.schemas.provider_schema import (  # loaded by those who talk to a model
        ProviderApi,
        build_provider_tool,
    )

    return build_provider_tool(_make_definition(tool), tool.name, ProviderApi(provider)).tool


def _make_definition(tool: Tool) -> Definition:
    return Definition(
        tool.server,
        tool.id.rpartition("/")[2],
        tool.title,
        tool.description,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
    )
