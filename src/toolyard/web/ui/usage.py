"""``/ui/usage``: one's own tool calls, tokens and cost; ``/ui/admin/usage``: those of everybody."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from fastapi import Request, Response

from toolyard.agents.chat.title_writer import TITLE_AGENT
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.store.repositories.usage import SqlUsage
from toolyard.types.account import User
from toolyard.types.audit import UsageGroup, UsageSums, server_of_tool
from toolyard.types.call import Caller
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.tool import Definition
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.bar_chart import BarChart
from toolyard.web.ui.components.formatting import count

__all__ = ["router"]

router = Routes()

_NAME_BY_KEY = {NATIVE_SERVER_ID: "Built-in tools", TITLE_AGENT: "Titles of chats"}
_PERIOD_DAYS = (7, 30, 90, 365)
_DEFAULT_DAYS = 30
_MAX_TABLE_ROWS = 50


@dataclass(frozen=True, slots=True)
class UsageTable:
    """Sums of one group as a table, with the names of its rows."""

    title: str
    heading: str
    """Heading of the first column."""
    rows: Sequence[tuple[str, UsageSums]]
    more: int
    """Number of rows beyond those."""
    shows_calls: bool = True
    shows_tokens: bool = False


@dataclass(frozen=True, slots=True)
class UnusedServer:
    """A server with tools that were not called in the period."""

    label: str
    tools: Sequence[str]
    is_whole: bool
    """Whether none of its tools was called."""


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Content of the page."""

    path: str
    days: int
    person: str
    people: Sequence[User]
    """Whose usage can be chosen; empty on one's own page."""
    total: UsageSums
    calls: BarChart
    tokens: BarChart
    by_day: Sequence[UsageSums]
    tables: Sequence[UsageTable]
    unused: Sequence[UnusedServer]

    periods = _PERIOD_DAYS


@router.get("/ui/usage")
async def show_own_usage(
    request: Request,
    me: deps.CurrentUser,
    usage: deps.UsageDep,
    callers: deps.CallersDep,
    call_path: deps.CallPathDep,
    tool_directory: deps.ToolDirectoryDep,
    days: str = "",
) -> Response:
    """Show the usage of the signed-in person."""
    reader = _UsageReader(usage, days, me.user.id)
    tools = _list_visible_tools(call_path, tool_directory, callers.get(me))
    return responses.render_page(request, "usage.html", page=await reader.build_page("/ui/usage", (), tools))


@router.get("/ui/admin/usage")
async def show_usage(
    request: Request,
    me: deps.AdminUser,
    usage: deps.UsageDep,
    accounts: deps.AccountsDep,
    callers: deps.CallersDep,
    call_path: deps.CallPathDep,
    tool_directory: deps.ToolDirectoryDep,
    days: str = "",
    person: str = "",
) -> Response:
    """Show the usage of everybody, or of one person."""
    reader = _UsageReader(usage, days, person or None)
    tools = _list_visible_tools(call_path, tool_directory, callers.get(me))
    people = await accounts.list_users()
    return responses.render_page(
        request, "usage.html", page=await reader.build_page("/ui/admin/usage", people, tools)
    )


def _list_visible_tools(
    call_path: CallPath, tool_directory: ToolDirectory, caller: Caller
) -> Mapping[str, Definition]:
    """Return the tools that were listed before and that the caller may use, by exposed name."""
    return call_path.visible_tools(tool_directory.known_listing(caller.principal), caller)


class _UsageReader:
    """Reads the sums of one period."""

    def __init__(self, usage: SqlUsage, days: str, person: str | None) -> None:
        self._usage = usage
        self._person = person
        self._days = int(days) if days in map(str, _PERIOD_DAYS) else _DEFAULT_DAYS
        self._last_day = datetime.now(UTC).date()
        self._first_day = self._last_day - timedelta(self._days - 1)

    async def build_page(
        self, path: str, people: Sequence[User], tools: Mapping[str, Definition]
    ) -> UsagePage:
        """Return the page. ``people`` can be chosen on it; ``tools`` are those that may be unused."""
        sums = {group: await self._read(group) for group in UsageGroup}
        by_day, names = sums[UsageGroup.DAY], {user.id: user.name for user in people}
        tables = [
            _build_table("Servers", "Server", sums[UsageGroup.SERVER], names),
            _build_table("Tools", "Tool", sums[UsageGroup.TOOL], names),
            _build_table("Agents", "Agent", sums[UsageGroup.AGENT], names, tokens=True),
            _build_table("Models", "Model", sums[UsageGroup.MODEL], names, calls=False, tokens=True),
        ]
        if people and self._person is None:
            tables.insert(0, _build_table("People", "Person", sums[UsageGroup.PERSON], names, tokens=True))
        return UsagePage(
            path=path,
            days=self._days,
            person=self._person or "",
            people=people,
            total=_add_up(by_day),
            calls=_draw_calls(self._list_days(), by_day),
            tokens=_draw_tokens(self._list_days(), by_day),
            by_day=list(reversed(by_day)),
            tables=[table for table in tables if table.rows],
            unused=_find_unused(tools, {each.key for each in sums[UsageGroup.TOOL]}),
        )

    async def _read(self, group: UsageGroup) -> Sequence[UsageSums]:
        return await self._usage.sum_by(group, self._first_day, self._last_day, person=self._person)

    def _list_days(self) -> list[date]:
        return [self._first_day + timedelta(index) for index in range(self._days)]


def _build_table(
    title: str,
    heading: str,
    sums: Sequence[UsageSums],
    names: Mapping[str, str],
    *,
    calls: bool = True,
    tokens: bool = False,
) -> UsageTable:
    rows = [(_name_of(each.key, names) or "(none)", each) for each in sums[:_MAX_TABLE_ROWS]]
    return UsageTable(title, heading, rows, max(len(sums) - _MAX_TABLE_ROWS, 0), calls, tokens)


def _name_of(key: str, names: Mapping[str, str]) -> str:
    """Return a name for people: of a person, or of a server or tool with the owner of an instance."""
    if key in _NAME_BY_KEY:
        return _NAME_BY_KEY[key]
    if key.startswith("@") and "/" in key:
        owner, _, rest = key[1:].partition("/")
        return f"{rest} ({names[owner]})" if owner in names else rest
    return names.get(key, key)


def _add_up(sums: Sequence[UsageSums]) -> UsageSums:
    return UsageSums(
        "",
        calls=sum(each.calls for each in sums),
        failures=sum(each.failures for each in sums),
        seconds=sum(each.seconds for each in sums),
        slowest_seconds=max((each.slowest_seconds for each in sums), default=0.0),
        requests=sum(each.requests for each in sums),
        input_tokens=sum(each.input_tokens for each in sums),
        output_tokens=sum(each.output_tokens for each in sums),
        cost=sum(each.cost for each in sums),
    )


def _draw_calls(days: Sequence[date], by_day: Sequence[UsageSums]) -> BarChart:
    sums = {each.key: each for each in by_day}
    bars = [
        (f"{day.isoformat()}: {count(one.calls, 'call')}, {one.failures:,} failed", one.calls, one.failures)
        for day in days
        for one in [sums.get(day.isoformat()) or UsageSums("")]
    ]
    return BarChart.build("Calls per day", bars)


def _draw_tokens(days: Sequence[date], by_day: Sequence[UsageSums]) -> BarChart:
    sums = {each.key: each for each in by_day}
    bars = [
        (f"{day.isoformat()}: {count(one.tokens, 'token')}, ${one.cost:,.2f}", one.tokens, 0)
        for day in days
        for one in [sums.get(day.isoformat()) or UsageSums("")]
    ]
    return BarChart.build("Tokens per day", bars)


def _find_unused(tools: Mapping[str, Definition], used_ids: Collection[str]) -> Sequence[UnusedServer]:
    """Return the tools that were not called, by server."""
    used_servers = {server_of_tool(each) for each in used_ids}
    unused: dict[str, list[str]] = {}
    for name, tool in tools.items():
        if tool.id not in used_ids:
            unused.setdefault(server_of_tool(tool.id), []).append(name)
    return [
        UnusedServer(_name_of(server, {}), names, server not in used_servers)
        for server, names in sorted(unused.items())
    ]
