"""The commands ``servers``, ``tools``, ``call`` and ``restart`` on another Toolyard."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from toolyard.cli.input.arguments import CallRequest, coerce_key_values
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import show_error, show_note
from toolyard.cli.output.notices import show_hidden_tools_notice
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.cli.output.safe_text import format_age, one_line, print_json
from toolyard.cli.output.servers import (
    ServerSummary,
    describe_server_info,
    servers_json,
    show_processes,
    show_server_hints,
    show_servers,
)
from toolyard.cli.output.tools import show_tools, tools_json
from toolyard.cli.remote_client import RemoteClient, quote_path_segment
from toolyard.errors import CallTimeout
from toolyard.results import ResultLimits
from toolyard.results.shape import shape_result
from toolyard.types.decision import HiddenTool
from toolyard.types.result import Result
from toolyard.types.server import Trust
from toolyard.types.status import ServerProcess
from toolyard.types.tool import Definition, Tool

__all__ = ["call_remotely", "restart_remotely", "show_remote_servers", "show_remote_tools"]

_UNREACHABLE_EXIT_CODE = 3
_UNLIMITED_RESULT_CHARACTERS = 2**31
"""People and pipes get the whole result: the limit is for models."""
_WORKING_STATES = ("ready", "idle", "connecting", "disabled")


async def show_remote_servers(options: Options, *, fail: bool, connect: bool) -> int:
    """Print the remote's servers and the caller's instances."""
    async with RemoteClient.from_options(options) as remote:
        listed: dict[str, Any] = {}
        async with ProgressIndicator("connecting", quiet=options.json):
            if connect:
                listed = await remote.get("/tools", fresh="true")
            found = await remote.get("/status")
    lines = [_summarize_record(record, listed, connect) for record in found["items"]]
    if options.json:
        print_json(servers_json(lines))
    else:
        show_servers(lines)
        show_processes(lines)
        for text in listed.get("set_aside", ()):
            show_note(text)
        if problem := found.get("config_problem"):
            show_note(f"the latest edit of the remote configuration was not applied: {one_line(problem)}")
        show_server_hints(lines)
    return _UNREACHABLE_EXIT_CODE if fail and any(line.is_broken for line in lines) else 0


async def show_remote_tools(
    options: Options,
    agent: str | None,
    server: str | None,
    bundles: tuple[str, ...],
    *,
    show_hidden: bool,
    fresh: bool,
    provider: Any,
) -> int:
    """Print the remote's tools that the caller may use."""
    async with (
        RemoteClient.from_options(options) as remote,
        ProgressIndicator("listing", quiet=options.json or provider is not None),
    ):
        found = await remote.get(
            "/tools", agent=agent, server=server, bundle=list(bundles), fresh="true" if fresh else None
        )
    tools = [Tool(**each) for each in found["items"]]
    failures = {each["server"]: each["problem"]["detail"] for each in found["failures"]}
    # A remote of an earlier version sends none.
    hidden = [HiddenTool(**each) for each in found.get("hidden", ())]
    if provider is not None:
        print_json([_format_for_provider(tool, provider) for tool in tools])
    elif options.json:
        told = {name: found[name] for name in ("listed_seconds_ago", "set_aside")}
        print_json(
            {
                "tools": tools_json(tools),
                "failures": failures,
                **told,
                "hidden": [asdict(each) for each in hidden],
            }
        )
    else:
        show_tools(tools, hidden if show_hidden else ())
    if not options.json:
        for text in found["set_aside"]:
            show_note(text)
        for server_id, cause in failures.items():
            show_error(f"server '{server_id}': {one_line(cause)}")
        show_hidden_tools_notice(hidden, are_shown=show_hidden or provider is not None)
    return _UNREACHABLE_EXIT_CODE if failures and (not tools or server is not None) else 0


async def call_remotely(
    options: Options, request: CallRequest, arguments: dict[str, Any] | None, *, quiet: bool
) -> Result:
    """Call a tool remotely. Raises what the remote call raised."""
    bundles = list(request.bundles)
    name = quote_path_segment(request.name)
    try:
        async with (
            RemoteClient.from_options(options) as remote,
            ProgressIndicator(request.name, quiet=quiet),
            asyncio.timeout(request.timeout),
        ):
            if arguments is None:
                tool = await remote.get(f"/tools/{name}", agent=request.agent, bundle=bundles)
                arguments = coerce_key_values(request.argument_words, tool["input_schema"])
            body = {"arguments": arguments, "agent": request.agent, "bundles": bundles}
            found = await remote.post(f"/tools/{name}/call", body)
    except TimeoutError:
        raise CallTimeout(f"'{request.name}' took longer than {request.timeout:g} s") from None
    whole = shape_result(found["raw"], ResultLimits(_UNLIMITED_RESULT_CHARACTERS), Trust.TRUSTED)
    text = whole.text if found["truncated"] else found["text"]
    return Result(
        found["raw"], text, found["is_error"], whole.blocks, tuple(found["warnings"]), cause=whole.cause
    )


async def restart_remotely(options: Options, server: str) -> int:
    """Restart one of the remote's servers, and print its state."""
    async with (
        RemoteClient.from_options(options) as remote,
        ProgressIndicator(f"restarting {server}", quiet=options.json),
    ):
        record = await remote.post(f"/servers/{quote_path_segment(server)}/restart")
    line = _summarize_record(record, {}, True)
    if options.json:
        print_json(servers_json([line])[0])
    else:
        show_servers([line])
        show_server_hints([line])
    return _UNREACHABLE_EXIT_CODE if line.is_broken else 0


def _summarize_record(
    record: dict[str, Any], tools_response: dict[str, Any], has_connected: bool
) -> ServerSummary:
    """Return a record of the API as a summary line. An instance is named by its slug."""
    server = record["slug"] or record["id"]
    core_id = f"/{server}" if record["slug"] else server
    ages: dict[str, float] = tools_response.get("listed_seconds_ago", {})
    age = next((each for name, each in ages.items() if name == server or name.endswith(core_id)), None)
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


def _format_for_provider(tool: Tool, provider: Any) -> dict[str, Any]:
    from toolyard.catalog.schemas.provider_schema import (  # loaded by those who talk to a model
        ProviderApi,
        build_provider_tool,
    )

    definition = Definition(
        tool.server,
        tool.id.rpartition("/")[2],
        tool.title,
        tool.description,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
    )
    return build_provider_tool(definition, tool.name, ProviderApi(provider)).tool
