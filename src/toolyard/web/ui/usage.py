"""``/ui/usage``: one's own tool calls, tokens and cost; ``/ui/admin/usage``: those of everybody."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.agents.chat.title_writer import TITLE_AGENT
from toolyard.types.account import User
from toolyard.types.audit import UsageGroup, UsageTotals, server_of_tool
from toolyard.types.tool import Definition
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.formatting import count, money
from toolyard.web.ui.components.server_names import (
    ServerNames,
    ServerNamesReaderDep,
    find_owners,
)

__all__ = ["router"]

router = Routes()

_PSEUDO_AGENT_NAMES = {TITLE_AGENT: "Titles of chats", "": "No agent"}
_PERIOD_DAYS = (7, 30, 90, 365)
_DEFAULT_DAYS = 30
_MAX_TABLE_ROWS = 50
_CHART_WIDTH = 720.0
_CHART_HEIGHT = 150.0
_GAP_SHARE = 0.25
"""Part of the width of a bar's slot that stays empty."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its whole height, and the height of the highlighted part at its foot."""

    x: float
    width: float
    height: float
    part_height: float
    label: str
    """Text for the tooltip."""

    @property
    def y(self) -> float:
        """Top of the bar."""
        return round(_CHART_HEIGHT - self.height, 2)

    @property
    def part_y(self) -> float:
        """Top of the highlighted part."""
        return round(_CHART_HEIGHT - self.part_height, 2)


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars of equal width, the highest as high as the chart, as SVG geometry.

    Templates draw it with attributes and classes, as the content security policy forbids inline styles.
    """

    title: str
    bars: Sequence[Bar]
    highest: float
    width = _CHART_WIDTH
    height = _CHART_HEIGHT

    @classmethod
    def build(cls, title: str, bars: Sequence[tuple[str, float, float]]) -> BarChart:
        """Build a chart of bars given as label, value and highlighted part of the value."""
        highest = max((value for _, value, _ in bars), default=0.0)
        slot = _CHART_WIDTH / max(len(bars), 1)
        scale = _CHART_HEIGHT / highest if highest else 0.0
        return cls(
            title,
            [
                Bar(
                    round((index + _GAP_SHARE / 2) * slot, 2),
                    round(slot * (1 - _GAP_SHARE), 2),
                    round(value * scale, 2),
                    round(part * scale, 2),
                    label,
                )
                for index, (label, value, part) in enumerate(bars)
            ],
            highest,
        )


@dataclass(frozen=True, slots=True)
class UsageTable:
    """Sums of one group as a table, with the names of its rows."""

    title: str
    heading: str
    """Heading of the first column."""
    rows: Sequence[tuple[str, UsageTotals]]
    more: int
    """Number of rows beyond those."""
    shows_calls: bool = True
    shows_tokens: bool = False


@dataclass(frozen=True, slots=True)
class UnusedTools:
    """A server with tools that were not called in the period."""

    label: str
    tools: Sequence[str]
    is_whole: bool
    """Whether none of its tools was called."""


@dataclass(frozen=True, slots=True)
class _UsagePages:
    """The page of one period. ``days`` is its length in the query."""

    request: Request
    me: deps.CurrentUser
    usage: deps.UsageDep
    callers: deps.CallersDep
    call_path: deps.CallPathDep
    tool_directory: deps.ToolDirectoryDep
    server_names: ServerNamesReaderDep
    roster: deps.AgentRosterDep
    chats: deps.ChatsDep
    days: str = ""

    async def render(self, person: str | None, people: Sequence[User] = ()) -> Response:
        """Render the usage of one person, or of everybody. ``people`` can be chosen on the page."""
        days = int(self.days) if self.days in map(str, _PERIOD_DAYS) else _DEFAULT_DAYS
        last_day = datetime.now(UTC).date()
        first_day = last_day - timedelta(days - 1)
        # Tools that were listed before, and may be unused.
        caller = self.callers.get(self.me)
        tools = self.call_path.visible_tools(self.tool_directory.known_listing(caller.principal), caller)
        with_people = bool(people) and person is None
        groups = [group for group in UsageGroup if group is not UsageGroup.PERSON or with_people]
        sums = {group: await self.usage.sum_by(group, first_day, last_day, person=person) for group in groups}
        by_day, people_names = sums[UsageGroup.DAY], {user.id: user.name for user in people}
        shown = [
            each.key
            for group in (UsageGroup.SERVER, UsageGroup.TOOL)
            for each in sums[group][:_MAX_TABLE_ROWS]
        ]
        owners = find_owners([*shown, *(each.id for each in tools.values())])
        names = await self.server_names.read(owners, people_names)
        agents = [each.key for each in sums[UsageGroup.AGENT][:_MAX_TABLE_ROWS]]
        agent_names = {**await self.roster.list_names(agents, person), **_PSEUDO_AGENT_NAMES}
        tables = [
            _build_table("Servers", "Server", sums[UsageGroup.SERVER], names.name_server),
            _build_table("Tools", "Tool", sums[UsageGroup.TOOL], names.name_tool),
            _build_table(
                "Agents",
                "Agent",
                sums[UsageGroup.AGENT],
                lambda key: agent_names.get(key) or f"{key} (deleted)",
                tokens=True,
            ),
            _build_table(
                "Models",
                "Model",
                sums[UsageGroup.MODEL],
                self.chats.models.find_title,
                calls=False,
                tokens=True,
            ),
        ]
        if with_people:
            person_sums = sums[UsageGroup.PERSON]
            tables.insert(
                0,
                _build_table(
                    "People", "Person", person_sums, lambda key: people_names.get(key, key), tokens=True
                ),
            )
        calls = [
            (f"{day}: {count(one.calls, 'call')}, {one.failures:,} failed", one.calls, one.failures)
            for day, one in _list_days(by_day, first_day, days)
        ]
        tokens = [
            (f"{day}: {count(one.tokens, 'token')}, {money(one.cost)}", one.tokens, 0)
            for day, one in _list_days(by_day, first_day, days)
        ]
        return responses.render_page(
            self.request,
            "usage.html",
            periods=_PERIOD_DAYS,
            chosen_days=days,
            person=person or "",
            people=people,
            total=_add_up(by_day),
            calls=BarChart.build("Calls per day", calls),
            tokens=BarChart.build("Tokens per day", tokens),
            by_day=list(reversed(by_day)),
            tables=[table for table in tables if table.rows],
            first_day=f"{first_day:%d %b %Y}",
            last_day=f"{last_day:%d %b %Y}",
            unused=_find_unused(tools, {each.key for each in sums[UsageGroup.TOOL]}, names),
        )


_UsagePagesDep = Annotated[_UsagePages, Depends()]


@router.get("/ui/usage")
async def show_own_usage(me: deps.CurrentUser, pages: _UsagePagesDep) -> Response:
    """Show the usage of the signed-in person."""
    return await pages.render(me.user.id)


@router.get("/ui/admin/usage")
async def show_usage(
    me: deps.AdminUser, pages: _UsagePagesDep, accounts: deps.AccountsDep, person: str = ""
) -> Response:
    """Show the usage of everybody, or of one person."""
    return await pages.render(person or None, await accounts.list_users())


def _list_days(by_day: Sequence[UsageTotals], first_day: date, days: int) -> list[tuple[str, UsageTotals]]:
    """Return all days of the period with their sums, also days without any."""
    sums = {each.key: each for each in by_day}
    names = [(first_day + timedelta(index)).isoformat() for index in range(days)]
    return [(day, sums.get(day) or UsageTotals("")) for day in names]


def _build_table(
    title: str,
    heading: str,
    sums: Sequence[UsageTotals],
    name_key: Callable[[str], str],
    *,
    calls: bool = True,
    tokens: bool = False,
) -> UsageTable:
    rows = [(name_key(each.key) or "Unknown", each) for each in sums[:_MAX_TABLE_ROWS]]
    return UsageTable(title, heading, rows, max(len(sums) - _MAX_TABLE_ROWS, 0), calls, tokens)


def _add_up(sums: Sequence[UsageTotals]) -> UsageTotals:
    return UsageTotals(
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


def _find_unused(
    tools: Mapping[str, Definition], used_ids: Collection[str], names: ServerNames
) -> Sequence[UnusedTools]:
    """Return the tools that were not called, by server."""
    used_servers = {server_of_tool(each) for each in used_ids}
    unused: dict[str, list[str]] = {}
    for name, tool in tools.items():
        if tool.id not in used_ids:
            unused.setdefault(server_of_tool(tool.id), []).append(name)
    return [
        UnusedTools(names.name_server(server), unused_tools, server not in used_servers)
        for server, unused_tools in sorted(unused.items())
    ]
