"""Two users with instances of one server under one slug, in one core: they stay isolated."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.clients.call_path import CallPath, CallSettings
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.errors import RpcError, ServerError, ToolRefused, ToolyardError, Unreachable
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, CallRecord, Surface, ToolCall, Verdict, WriteTools
from toolyard.types.server import Configuration, HttpSpec, Server, State

if TYPE_CHECKING:
    from tests.clients.conftest import Accounts

ANN = Caller(Principal("ann"))
BOB = Caller(Principal("bob"))

Until = Callable[..., Awaitable[None]]
Core = Callable[..., AbstractAsyncContextManager[Core]]


@pytest.fixture
def records() -> list[CallRecord]:
    return []


@pytest.fixture
def core(tmp_path: Path, records: list[CallRecord]) -> Core:
    """``async with core(*config servers, **options) as parts``."""

    @asynccontextmanager
    async def make(*servers: Server, **options: Any) -> AsyncIterator[Core]:
        configuration = Configuration({server.id: server for server in servers})
        options = {"data_dir": tmp_path, "record": records.append, **options}
        core = build_core(configuration, Settings(write_tools=WriteTools.ALLOW), **options)
        try:
            yield core
        finally:
            await core.close()

    return make


def with_limits(core: Core, settings: CallSettings, **limits: Any) -> Core:
    """The same core, with a tool directory and a call path of these limits."""
    directory = ToolDirectory(core.manager, core.catalogues, core.name_assigner, list_deadline=60, **limits)
    return replace(core, tool_directory=directory, call_path=CallPath(core.manager, directory, settings))


async def names(core: Core, caller: Caller) -> list[str]:
    """Return the tool names that this caller sees."""
    return list(core.call_path.visible_tools(await core.tool_directory.refresh(caller.principal), caller))


async def text(core: Core, name: str, caller: Caller) -> str:
    return (await core.call_path.call(ToolCall(name), caller)).text


async def both(core: Core, accounts: Any) -> None:
    """Return Ann and Bob, each with an instance under the slug ``desk``."""
    await core.updates.sync_instances("ann", [accounts.instance("ann")])
    await core.updates.sync_instances("bob", [accounts.instance("bob")])


def list_error_texts(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(vars(error))
    yield "".join(traceback.format_exception(error))


def words(refuse: Callable[[], Any]) -> str:
    with pytest.raises(ToolRefused) as exc_info:
        refuse()
    return str(exc_info.value)


# Names, lists, calls.


async def test_the_same_slug_gives_each_their_own_tools_under_the_same_names(
    accounts: Accounts, core: Core
) -> None:
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        common = ["one_complain", "one_only_common", "one_whoami"]
        desk = ["mcp_desk__complain", "mcp_desk__only_{}", "mcp_desk__whoami"]
        assert await names(core, ANN) == [each.format("ann") for each in desk] + common
        assert await names(core, BOB) == [each.format("bob") for each in desk] + common
        assert await names(core, Caller()) == common
        assert await text(core, "mcp_desk__whoami", ANN) == "ann whoami"
        assert await text(core, "mcp_desk__whoami", BOB) == "bob whoami"
        assert (
            core.tool_directory.known_listing(ANN.principal).tools["mcp_desk__whoami"].id
            == "@ann/desk/whoami"
        )


@pytest.mark.parametrize("listed", [False, True], ids=["never listed", "listed"])
async def test_calls_of_both_at_once_go_to_their_own_accounts(
    accounts: Accounts, core: Core, listed: bool
) -> None:
    async with core() as core:
        await both(core, accounts)
        if listed:
            await asyncio.gather(names(core, ANN), names(core, BOB))
        answers = await asyncio.gather(
            *(text(core, "mcp_desk__whoami", caller) for _ in range(20) for caller in (ANN, BOB))
        )
        assert answers == ["ann whoami", "bob whoami"] * 20
        assert (len(accounts.opened("ann")), len(accounts.opened("bob"))) == (1, 1)
        assert accounts.count("ann", "tools/call") == accounts.count("bob", "tools/call") == 20


async def test_a_tool_that_only_another_has_is_one_that_there_is_not(accounts: Accounts, core: Core) -> None:
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        await names(core, ANN)
        await names(core, BOB)
        for foreign, unknown in (
            ("mcp_desk__only_bob", "mcp_desk__only_tom"),
            ("@bob/desk/whoami", "@tom/desk/whoami"),
            ("@bob/desk/only_bob", "@tom/desk/only_tom"),
        ):
            explanation = words(lambda name=unknown: core.call_path.explain(name, ANN)).replace("tom", "bob")
            assert words(lambda name=foreign: core.call_path.explain(name, ANN)) == explanation
            errors: list[str] = []
            for name in (foreign, unknown):
                with pytest.raises(ToolRefused) as exc_info:
                    await core.call_path.call(ToolCall(name), ANN)
                errors.append(str(exc_info.value).replace("tom", "bob"))
            assert errors[0] == errors[1]
        assert accounts.count("bob", "tools/call") == 0
        # Guessing does not reveal the state of another user's server either.
        for server_id, own in (("@ann/desk", True), ("@bob/desk", False), ("@tom/desk", False)):
            assert core.call_path.can_see_unknown_tool(server_id, "mcp_desk__guess", ANN) is own


async def test_why_is_told_about_ones_own(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        await both(core, accounts)
        await names(core, ANN)
        await names(core, BOB)
        for caller, id in ((ANN, "@ann/desk/whoami"), (BOB, "@bob/desk/whoami")):
            for name in ("mcp_desk__whoami", id):
                decision = core.call_path.explain(name, caller)
                assert (decision.tool, decision.verdict) == (id, Verdict.ALLOW)
        other = "bob"
        assert other not in core.call_path.explain("mcp_desk__whoami", ANN).explain()


async def test_records_name_the_principal_of_a_call(
    accounts: Accounts, core: Core, records: list[CallRecord]
) -> None:
    async with core() as core:
        await both(core, accounts)
        await text(core, "mcp_desk__whoami", ANN)
        await text(core, "mcp_desk__whoami", BOB)
    assert [(record.tool, record.principal) for record in records] == [
        ("@ann/desk/whoami", "ann"),
        ("@bob/desk/whoami", "bob"),
    ]


async def test_patterns_filters_and_choices_hold_for_instances(accounts: Accounts, core: Core) -> None:
    agent = Agent("a", "A", tools=("mcp_desk__*", "!mcp_desk__only_*"))
    call_paths = frozenset({"@ann/desk/whoami", "@bob/desk/complain", "one/whoami"})
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        callers = {
            "agent": replace(ANN, surface=Surface.MODEL_DIRECT, agent=agent),
            "choice": replace(ANN, choice=call_paths),
            "nothing chosen": replace(ANN, choice=frozenset()),
        }
        assert {key: await names(core, caller) for key, caller in callers.items()} == {
            "agent": ["mcp_desk__complain", "mcp_desk__whoami"],
            "choice": ["mcp_desk__whoami", "one_whoami"],
            "nothing chosen": [],
        }
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("mcp_desk__complain"), callers["choice"])


@pytest.mark.parametrize(
    ("tool_filter", "shown_tools"),
    [(None, ["complain", "only_ann", "whoami"]), ((), []), (("whoami", "later"), ["whoami"])],
)
async def test_a_tool_filter_shows_only_the_tools_it_names(
    accounts: Accounts, core: Core, tool_filter: tuple[str, ...] | None, shown_tools: list[str]
) -> None:
    async with core() as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann", tool_filter=tool_filter)])
        assert await names(core, ANN) == [f"mcp_desk__{name}" for name in shown_tools]
        accounts.more.append({"name": "new", "inputSchema": {"type": "object"}})
        assert ("mcp_desk__new" in await names(core, ANN)) is (tool_filter is None)
        if tool_filter is not None:
            with pytest.raises(ToolRefused):
                await core.call_path.call(ToolCall("mcp_desk__new"), ANN)
            reason = core.call_path.explain("mcp_desk__new", ANN).decisive
            assert reason is not None
            assert reason.reason == "'new' is not enabled on the instance"


async def test_a_filter_counts_from_the_moment_it_is_synced(accounts: Accounts, core: Core) -> None:
    server, missing_instance = accounts.instance("ann"), accounts.instance("ann", "gone")
    async with core() as core:
        await core.updates.sync_instances("ann", [server, missing_instance])
        assert await text(core, "mcp_desk__whoami", ANN) == "ann whoami"
        assert await text(core, "mcp_gone__whoami", ANN) == "ann whoami"
        filtered_server = replace(server, instance=replace(server.instance, tool_filter=("complain",)))
        goodbye = accounts.held["ann", "DELETE"] = asyncio.Event()
        syncing = asyncio.ensure_future(core.updates.sync_instances("ann", [filtered_server]))
        await asyncio.sleep(0)
        for name in ("mcp_desk__whoami", "mcp_gone__whoami"):
            with pytest.raises(ToolRefused):
                await core.call_path.call(ToolCall(name), ANN)
        assert not syncing.done()
        goodbye.set()
        await syncing
        assert accounts.count("ann", "tools/call") == 2


# Errors and records.


async def test_errors_and_statuses_speak_of_ones_own_and_of_no_key(
    accounts: Accounts, core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolyard")
    async with core() as core:
        await both(core, accounts)
        texts: list[str] = []
        for caller, own_user, other in ((ANN, "ann", "bob"), (BOB, "bob", "ann")):
            with pytest.raises(RpcError) as exc_info:
                await core.call_path.call(ToolCall("mcp_desk__complain"), caller)
            assert exc_info.value.server == f"@{own_user}/desk"
            assert f"{own_user} may not with ***" in str(exc_info.value)
            own = list(list_error_texts(exc_info.value))
            (status,) = core.manager.statuses(caller.principal)
            assert (status.server, status.principal, status.state) == (
                f"@{own_user}/desk",
                own_user,
                State.READY,
            )
            own.append(repr(status))
            assert not any(f"@{other}" in each or f"{other} may" in each for each in own)
            texts += own
        texts += [line.getMessage() for line in caplog.records]
        assert not any(key in each for key in accounts.users for each in texts)


async def test_a_server_that_fails_for_one_fails_for_that_one_alone(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        await both(core, accounts)
        assert "mcp_desk__whoami" in await names(core, ANN)
        accounts.failing.add("ann")
        for name in ("mcp_desk__whoami", "mcp_desk__new"):
            with pytest.raises(RpcError, match="ann may not with") as exc_info:
                await core.call_path.call(ToolCall(name), ANN)
            assert exc_info.value.server == "@ann/desk"
        assert await text(core, "mcp_desk__whoami", BOB) == "bob whoami"
        assert "mcp_desk__whoami" in await names(core, ANN)
        assert list(core.tool_directory.known_listing(ANN.principal).failures) == ["@ann/desk"]
        assert dict(core.tool_directory.known_listing(BOB.principal).failures) == {}
        accounts.failing.clear()
        assert await text(core, "mcp_desk__whoami", ANN) == "ann whoami"


async def test_a_server_that_cannot_be_listed_is_named_to_its_owner_only(
    accounts: Accounts, core: Core
) -> None:
    async with core() as core:
        broken = replace(accounts.instance("ann"), transport=HttpSpec("http://127.0.0.1:9/mcp"))
        await core.updates.sync_instances("ann", [broken])
        with pytest.raises(Unreachable, match=r"server '@ann/desk': 127\.0\.0\.1:9 cannot be reached"):
            await core.call_path.call(ToolCall("mcp_desk__whoami"), ANN)
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("mcp_desk__whoami"), BOB)


async def test_a_tool_that_is_set_aside_is_explained_by_the_name_that_it_would_have(
    accounts: Accounts, core: Core
) -> None:
    accounts.more.append({"name": "odd", "inputSchema": {"type": "array"}})
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        await names(core, ANN)
        for name, tool in (("mcp_desk__odd", "@ann/desk/odd"), ("one_odd", "one/odd")):
            decision = core.call_path.explain(name, ANN)
            assert (decision.tool, decision.verdict) == (tool, Verdict.REFUSE)
            assert core.call_path.explain(tool, ANN).tool == tool
        with pytest.raises(ToolRefused):
            core.call_path.explain("@bob/desk/odd", ANN)


async def test_a_long_result_is_stored_for_its_caller(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        own_results, other_results = (
            core.call_path.result_store(ANN.principal),
            core.call_path.result_store(BOB.principal),
        )
        assert own_results is not other_results
        assert core.call_path.result_store(Principal("ann")) is own_results


# Fresh connections, without stored state.


async def test_an_instance_is_listed_again_for_each_listing_and_call_and_nothing_is_stored(
    accounts: Accounts, core: Core, tmp_path: Path
) -> None:
    async with core(accounts.server("one")) as core:
        await both(core, accounts)

        def count_list_requests() -> int:
            return accounts.count("ann", "tools/list")

        assert await text(core, "mcp_desk__whoami", ANN) == "ann whoami"
        assert count_list_requests() == 1
        for count in (2, 3):
            await names(core, ANN)
            assert count_list_requests() == count
        first = core.tool_directory.known_listing(ANN.principal).tools
        for count in (4, 5):
            await text(core, "mcp_desk__whoami", ANN)
            assert count_list_requests() == count
        assert core.tool_directory.known_listing(ANN.principal).tools is first
        await text(core, "one_whoami", ANN)
        assert count_list_requests() == 5
        assert accounts.count("bob", "tools/list") == 0
        accounts.more.append({"name": "new", "inputSchema": {"type": "object"}})
        assert await text(core, "mcp_desk__new", ANN) == "ann new"
        assert count_list_requests() == 6
        accounts.more.clear()
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("mcp_desk__new"), ANN)
        assert accounts.count("ann", "tools/call") == 4
    with sqlite3.connect(tmp_path / "catalogue.db") as db:
        assert {row[0] for row in db.execute("SELECT server_id FROM catalogue")} == {"one"}
    db.close()


async def test_a_call_of_a_config_tool_keeps_the_cached_tools_of_an_instance(
    accounts: Accounts, core: Core
) -> None:
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        await names(core, ANN)
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("one_nothing"), ANN)
        assert core.call_path.explain("mcp_desk__whoami", ANN).verdict is Verdict.ALLOW


async def test_an_unknown_name_asks_only_instances_with_a_matching_prefix(
    accounts: Accounts, core: Core
) -> None:
    async with core() as core:
        await both(core, accounts)
        await names(core, ANN)
        before = accounts.count("ann", "tools/list")
        for name in ("something", "one_thing"):
            with pytest.raises(ToolRefused):
                await core.call_path.call(ToolCall(name), ANN)
        assert accounts.count("ann", "tools/list") == before


async def test_with_a_ttl_an_instance_is_kept_for_its_owner_until_it_changes(
    accounts: Accounts, core: Core
) -> None:
    server = accounts.instance("ann", cache_ttl=60.0)
    async with core() as core:
        await core.updates.sync_instances("ann", [server])
        await names(core, ANN)
        await names(core, ANN)
        assert accounts.count("ann", "tools/list") == 1
        await core.updates.reconnect("@ann/desk", ANN.principal)
        assert await names(core, ANN) == [f"mcp_desk__{name}" for name in ("complain", "only_ann", "whoami")]
        assert accounts.count("ann", "tools/list") == 2
        await core.updates.sync_instances("ann", [])
        assert await names(core, ANN) == []
        await core.updates.sync_instances("ann", [server])
        await names(core, ANN)
        assert accounts.count("ann", "tools/list") == 3


# Changes.


async def test_sync_drops_only_prepared_data_of_changed_instances(accounts: Accounts, core: Core) -> None:
    async with core(accounts.server("one", stop_when_idle=60)) as core:
        await both(core, accounts)
        for caller in (ANN, BOB):
            await names(core, caller)
        bob = core.tool_directory.known_listing(BOB.principal)
        other = replace(
            accounts.instance("ann"), transport=HttpSpec(accounts.url, {"X-Key": accounts.key("eve")})
        )
        assert await core.updates.sync_instances("ann", [other]) == {"@ann/desk"}
        assert list(core.tool_directory.known_listing(ANN.principal).catalogues) == ["one"]
        assert core.tool_directory.known_listing(BOB.principal) is bob
        assert core.call_path.explain("one_whoami", ANN).tool == "one/whoami"
        before = dict(accounts.methods)
        assert await text(core, "mcp_desk__whoami", ANN) == "eve whoami"
        assert accounts.count("bob", "initialize") == accounts.count("ann", "initialize") == 1
        assert before["common"] == accounts.methods["common"]
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("mcp_desk__only_ann"), ANN)
        await core.updates.sync_instances("ann", [])
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("mcp_desk__whoami"), ANN)
        assert accounts.opened("eve") == []


async def test_an_update_takes_over_changed_files_and_touches_nothing_else(
    accounts: Accounts, core: Core
) -> None:
    one, two = accounts.server("one"), accounts.server("two")
    async with core(one, two) as core:
        await both(core, accounts)
        await names(core, ANN)
        calls = len(accounts.methods["common"])
        servers = {"one": one, "two": replace(two, deny_tools=("only_*",))}
        assert await core.updates.update_configuration(Configuration(servers)) == {"two"}
        assert "two_only_common" not in await names(core, ANN)
        assert "one_only_common" in await names(core, ANN)
        assert len(accounts.methods["common"]) == calls
        assert await core.updates.update_configuration(Configuration({"one": one})) == {"two"}
        assert len(accounts.opened("common")) == 1
        assert "two_whoami" not in await names(core, ANN)
        assert len(accounts.opened("ann")) == 1


@pytest.mark.parametrize("removed_tool", ["ann", "common"], ids=["before it answers", "after it answered"])
async def test_a_server_that_is_taken_away_while_it_is_listed_stays_away(
    accounts: Accounts, core: Core, wait_until: Until, removed_tool: str
) -> None:
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        answer = accounts.held[removed_tool, "tools/list"] = asyncio.Event()
        listing = asyncio.ensure_future(core.tool_directory.refresh(ANN.principal))
        list_requests = [("ann", "tools/list"), ("common", "tools/list")]
        await wait_until(lambda: all(accounts.count(*each) for each in list_requests))
        if removed_tool == "common":
            await wait_until(
                lambda: core.manager.status("@ann/desk", principal=ANN.principal).tool_count == 3
            )
        await core.updates.sync_instances("ann", [])
        answer.set()
        roster = await listing
        assert (list(roster.catalogues), dict(roster.failures)) == (["one"], {})
        assert await names(core, ANN) == ["one_complain", "one_only_common", "one_whoami"]


async def test_a_principal_that_leaves_is_forgotten(accounts: Accounts, core: Core) -> None:
    async with core(accounts.server("one")) as core:
        await both(core, accounts)
        for caller in (ANN, BOB):
            await names(core, caller)
        await core.updates.forget_principal("ann")
        assert accounts.opened("ann") == []
        assert len(accounts.opened("common")) == 1
        assert dict(core.tool_directory.known_listing(ANN.principal).catalogues) == {}
        assert set(core.manager.servers) == {"one", "@bob/desk"}
        assert not any("ann" in str(status) for status in core.manager.statuses())
        assert await names(core, ANN) == ["one_complain", "one_only_common", "one_whoami"]


async def test_memory_does_not_grow_with_the_number_of_principals(accounts: Accounts, core: Core) -> None:
    settings = CallSettings(WriteTools.ALLOW, max_visible_tools_entries=4, max_result_stores=4)
    async with core(accounts.server("one", shared=True)) as core:
        core = with_limits(core, settings, max_principals=4, recheck_seconds=0.0)
        callers = [Caller(Principal(f"p{number}")) for number in range(12)]
        await names(core, callers[0])
        first = core.tool_directory.known_listing(callers[0].principal)
        for caller in callers[1:]:
            assert await text(core, "one_whoami", caller) == "common whoami"
            assert len(await names(core, caller)) == 3
            await text(core, "one_whoami", callers[0])
        cached_callers = [
            caller for caller in callers if core.tool_directory.known_listing(caller.principal).tools
        ]
        assert cached_callers == [callers[0], *callers[-3:]]
        # An instance in constant use is not evicted.
        assert core.tool_directory.known_listing(callers[0].principal) is first
        # All callers have equal inputs, and so one policy.
        sizes = {"visible_tools": 4, "policies": 1, "result_stores": 4}
        assert core.call_path.cache_sizes == sizes
        assert len(accounts.opened("common")) == 1


async def test_the_local_user_may_have_instances_too(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        await core.updates.sync_instances(LOCAL_PRINCIPAL.id, [accounts.instance("local")])
        assert await text(core, "mcp_desk__whoami", Caller()) == "local whoami"
        with pytest.raises(ToolyardError):
            await core.call_path.call(ToolCall("mcp_desk__whoami"), ANN)


async def test_an_instance_that_wants_a_sign_in_says_so_to_its_owner(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        await core.updates.sync_instances(
            "ann", [replace(accounts.instance("ann"), transport=HttpSpec(accounts.url))]
        )
        with pytest.raises(ServerError):
            await core.call_path.call(ToolCall("mcp_desk__whoami"), ANN)
        (status,) = core.manager.statuses(ANN.principal)
        assert (status.state, status.reason) == (State.NEEDS_AUTH, "sign_in_needed")
