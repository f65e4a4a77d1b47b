"""``servers``, ``tools``, ``call`` and ``restart`` on a Toolyard that runs elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from toolyard.cli.input.arguments import coerce_words
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import note, show_error
from toolyard.cli.output.progress import Busy
from toolyard.cli.output.safe_text import ago, one_line, print_json
from toolyard.cli.output.servers import ServerLine, named, servers_json, show_servers, tell_more
from toolyard.cli.output.tools import show_tools, tools_json
from toolyard.cli.remote_client import Remote, escaped
from toolyard.errors import CallTimeout
from toolyard.results import Limits
from toolyard.results.shape import shape
from toolyard.types.result import Result
from toolyard.types.server import Trust
from toolyard.types.tool import Definition, Tool

if TYPE_CHECKING:
    from toolyard.cli.commands.call import Wanted

__all__ = ["call_remotely", "restart_remotely", "show_remote_servers", "show_remote_tools"]

_UNREACHABLE = 3
_WHOLE = 2**31
"""A person, or a pipe, gets all of a result: the limit is for models."""
_FINE = ("ready", "idle", "connecting", "disabled")


async def show_remote_servers(options: Options, *, fail: bool, connect: bool) -> int:
    """The servers there, and the instances of whoever asks."""
    async with Remote.of(options) as remote:
        listed: dict[str, Any] = {}
        async with Busy("connecting", quiet=options.json):
            if connect:
                listed = await remote.get("/tools", fresh="true")
            found = await remote.get("/status")
    lines = [_line(record, listed, connect) for record in found["items"]]
    if options.json:
        print_json(servers_json(lines))
    else:
        show_servers(lines)
        for text in listed.get("set_aside", ()):
            note(text)
        if problem := found.get("config_problem"):
            note(f"the last edit of the configuration there is not in force: {one_line(problem)}")
        tell_more(lines)
    return _UNREACHABLE if fail and any(line.broken for line in lines) else 0


async def show_remote_tools(
    options: Options,
    agent: str | None,
    server: str | None,
    bundles: tuple[str, ...],
    *,
    fresh: bool,
    provider: Any,
) -> int:
    """The tools there that whoever asks may use."""
    async with Remote.of(options) as remote, Busy("listing", quiet=options.json or provider is not None):
        found = await remote.get(
            "/tools", agent=agent, server=server, bundle=list(bundles), fresh="true" if fresh else None
        )
    tools = [Tool(**each) for each in found["items"]]
    failures = {each["server"]: each["problem"]["detail"] for each in found["failures"]}
    if provider is not None:
        print_json([_viewed(tool, provider) for tool in tools])
    elif options.json:
        told = {name: found[name] for name in ("listed_seconds_ago", "set_aside")}
        print_json({"tools": tools_json(tools), "failures": failures, **told})
    else:
        show_tools(tools)
    if not options.json:
        for text in found["set_aside"]:
            note(text)
        for server_id, cause in failures.items():
            show_error(f"server '{server_id}': {one_line(cause)}")
    return _UNREACHABLE if failures and (not tools or server is not None) else 0


async def call_remotely(
    options: Options, wanted: Wanted, arguments: dict[str, Any] | None, *, quiet: bool
) -> Result:
    """Call a tool there. Raises what the call there raised."""
    bundles = list(wanted.bundles)
    name = escaped(wanted.name)
    try:
        async with (
            Remote.of(options) as remote,
            Busy(wanted.name, quiet=quiet),
            asyncio.timeout(wanted.timeout),
        ):
            if arguments is None:
                tool = await remote.get(f"/tools/{name}", agent=wanted.agent, bundle=bundles)
                arguments = coerce_words(wanted.words, tool["input_schema"])
            body = {"arguments": arguments, "agent": wanted.agent, "bundles": bundles}
            found = await remote.post(f"/tools/{name}/call", body)
    except TimeoutError:
        raise CallTimeout(f"'{wanted.name}' took longer than {wanted.timeout:g} s") from None
    whole = shape(found["raw"], Limits(_WHOLE), Trust.TRUSTED)
    text = whole.text if found["truncated"] else found["text"]
    return Result(
        found["raw"], text, found["is_error"], whole.blocks, tuple(found["warnings"]), cause=whole.cause
    )


async def restart_remotely(options: Options, server: str) -> int:
    """Start one of its servers again, and tell how it is."""
    async with Remote.of(options) as remote, Busy(f"restarting {server}", quiet=options.json):
        record = await remote.post(f"/servers/{escaped(server)}/restart")
    line = _line(record, {}, True)
    if options.json:
        print_json(servers_json([line])[0])
    else:
        show_servers([line])
        tell_more([line])
    return _UNREACHABLE if line.broken else 0


def _line(record: dict[str, Any], listed: dict[str, Any], connected: bool) -> ServerLine:
    """A record of the API as it is shown here. An instance goes by its slug."""
    server = record["slug"] or record["id"]
    core_id = f"/{server}" if record["slug"] else server
    ages: dict[str, float] = listed.get("listed_seconds_ago", {})
    age = next((each for name, each in ages.items() if name == server or name.endswith(core_id)), None)
    info = {"name": record["server_name"], "version": record["server_version"]}
    about = named(info) if connected else "never listed" if record["tool_count"] is None else ""
    return ServerLine(
        server=server,
        state=record["state"],
        enabled=record["enabled"],
        transport=record["transport"],
        trust=record["trust"],
        origin=record["provenance"] or "",
        about=about if connected or age is None else f"listed {ago(age)}",
        broken=record["enabled"] and record["state"] not in _FINE,
        cause=None if record["cause"] is None else one_line(record["cause"]),
        hint=record["hint"],
        protocol=record["protocol_version"],
        info=info,
        tools=record["tool_count"],
        tokens=record["token_cost"],
        set_aside=(),
        age=age,
        stderr=tuple(one_line(each) for each in record["stderr"]),
    )


def _viewed(tool: Tool, provider: Any) -> dict[str, Any]:
    from toolyard.catalog.schemas.provider_schema import Provider, view  # loaded by those who talk to a model

    definition = Definition(
        tool.server,
        tool.id.rpartition("/")[2],
        tool.title,
        tool.description,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
    )
    return view(definition, tool.name, Provider(provider)).tool
