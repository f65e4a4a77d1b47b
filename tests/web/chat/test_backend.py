"""Chats of the web app: the owner is whoever has the account, and what they do is written down as theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.agents.chat.chat_harness import bodies_of_kind, chat_server, fake_model, kinds

from toolyard.agents.chat.errors import ChatRefused
from toolyard.core.services import Services
from toolyard.types.agent import Agent
from toolyard.types.chat import ChatEvent, Kind
from toolyard.web.access.authentication import RequestUser
from toolyard.web.account_admin import AccountAdmin

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp

Opening = Callable[..., Awaitable[Any]]


async def over(services: Services, owner: str, chat_id: str, turn: int) -> Sequence[ChatEvent]:
    """The events of a turn, once it is over or waits."""
    async with asyncio.timeout(30):
        while True:
            events = await services.chats.list_events(owner, chat_id, after=turn - 1)
            if events[-1].kind in (Kind.END, Kind.APPROVAL_REQUEST):
                return events
            await services.chats.wait_for_events(owner, chat_id, events[-1].seq, 30)


@pytest.fixture
def model(model_program: ListeningProgram) -> str:
    return model_program.url


async def test_in_the_mode_none_the_owner_is_the_local_user(
    open_site: Opening, model: str, tmp_path: Path
) -> None:
    config = {"s": chat_server(tmp_path / "journal")}
    local = await open_site(config, models={"fake": fake_model(model)}, write_tools="ask")
    services: Services = local.services
    chat = await services.chats.create("local")
    events = await over(
        services, "local", chat.id, await services.chats.send("local", chat.id, 'call s_put {"text": "a"}')
    )
    assert kinds(events) == ["user", "said", "call", "ask"]
    await services.chats.answer_approval(
        "local", bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    async with asyncio.timeout(30):
        while events[-1].kind is not Kind.END:
            await asyncio.sleep(0.01)
            events = await services.chats.list_events("local", chat.id)
    assert bodies_of_kind(events, Kind.RESULT)[0]["text"] == "put: a"
    assert (tmp_path / "journal").read_text() == 'put {"text": "a"}\n'


async def test_calls_of_a_chat_are_written_down_with_the_owners_name(
    open_site: Opening, model: str, tmp_path: Path
) -> None:
    config = {"s": chat_server(tmp_path / "journal")}
    local = await open_site(config, models={"fake": fake_model(model)}, people_mode="password")
    services, ann = local.services, (await local.person("Ann")).user
    chat = await services.chats.create(ann.id)
    await over(
        services, ann.id, chat.id, await services.chats.run_tool(ann.id, chat.id, "s_look", {"text": "a"})
    )
    await over(services, ann.id, chat.id, await services.chats.send(ann.id, chat.id, "call s_look {}\nthen"))
    async with asyncio.timeout(30):
        tools: Sequence[Any] = ()
        while len(tools) < 2:
            await asyncio.sleep(0.02)
            tools = await services.database.audit.entries(
                before=None, limit=50, action="tool.call", actor=None
            )
    assert {(each.actor, each.actor_name, each.target) for each in tools} == {(ann.id, "Ann", "s/look")}


async def test_deleted_and_disabled_users_have_no_chats_any_more(
    open_site: Opening, model: str, tmp_path: Path
) -> None:
    local = await open_site({}, models={"fake": fake_model(model)}, people_mode="password")
    services, ann = local.services, (await local.person("Ann")).user
    chat = await services.chats.create(ann.id)
    admin = RequestUser((await local.person("Root", "admin")).user)
    turn = await services.chats.send(ann.id, chat.id, "say a\nhold")
    await local.part(AccountAdmin).change_user(admin, ann.id, disabled=True)
    events = await over(services, ann.id, chat.id, turn)
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "stopped"
    with pytest.raises(ChatRefused, match="disabled"):
        await services.chats.send(ann.id, chat.id, "hello")
    with pytest.raises(ChatRefused):
        await services.chats.create("nobody")
    with pytest.raises(ChatRefused):
        await services.chats.create("local")


async def test_an_agent_that_is_not_there_is_named_with_those_that_are(
    open_site: Opening, model: str
) -> None:
    agent = Agent("careful", "Careful", bundles=("nothing",))
    local = await open_site({}, models={"fake": fake_model(model)}, agents=[agent])
    with pytest.raises(ChatRefused) as exc_info:
        await local.services.chats.create("local", agent="bold")
    assert exc_info.value.hint == "available agents: careful"
    with pytest.raises(ChatRefused, match="agent 'careful': unknown bundle 'nothing'"):
        await local.services.chats.create("local", agent="careful")


async def test_turns_that_run_end_when_the_site_does(open_site: Opening, model: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    options: dict[str, Any] = {"models": {"fake": fake_model(model)}, "data": data}
    local = await open_site({}, **options)
    chat = await local.services.chats.create("local")
    turn = await local.services.chats.send("local", chat.id, "say a\nhold")
    await local.services.end_work()
    events = await local.services.chats.list_events("local", chat.id, after=turn - 1)
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "interrupted"


async def test_one_tool_of_a_chat_is_found_as_it_is_in_the_whole_list(local_site: InProcessApp) -> None:
    chats = local_site.services.chats
    tools = await chats.list_tools("local", None)
    (weekday_tool,) = [each for each in tools if each.name == "demo_weekday"]
    assert await chats.find_tool("local", None, "demo_weekday") == weekday_tool
    assert await chats.find_tool("local", None, "missing") is None
