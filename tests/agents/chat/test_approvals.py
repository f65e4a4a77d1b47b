"""Calls that need approval: the request, the wait, restarts, limits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agents.chat.chat_harness import (
    ME,
    ChatProcess,
    Model,
    bodies_of_kind,
    chat_server,
    has_one_result_per_call,
    kinds,
)

from toolyard.agents.chat.approval_grants import (
    GrantScope,
    arguments_match,
    create_grant,
    describe_grant_scope,
)
from toolyard.agents.chat.errors import ChatBusy, ChatRefused, NoSuchChat
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.errors import ToolRefused
from toolyard.types.agent import Agent
from toolyard.types.approval import Approval
from toolyard.types.call import ToolCall
from toolyard.types.chat import Chat, ChatEvent, Kind, TurnState

Opening = Callable[..., Awaitable[ChatProcess]]
PUT = 'call s_put {"text": "a"}'


async def start_waiting_turn(
    process: ChatProcess, *lines: str, **options: Any
) -> tuple[Chat, int, list[ChatEvent]]:
    """Start a turn that waits for an approval."""
    chat = await process.chat(**options)
    turn = await process.chats.send(ME, chat.id, "\n".join(lines))
    return chat, turn, await process.waits(chat, turn)


async def test_a_call_that_needs_approval_waits_without_a_running_turn(process: ChatProcess) -> None:
    chat, _, events = await start_waiting_turn(process, PUT, 'call s_look {"text": "b"}', "then", "results?")
    assert kinds(events) == ["user", "said", "call", "call", "result", "ask"]
    [ask] = bodies_of_kind(events, Kind.APPROVAL_REQUEST)
    assert ask["id"] == bodies_of_kind(events, Kind.CALL)[0]["id"]
    assert ask["reason"].startswith("this tool can change data")
    [pending] = await process.database.approvals.list_pending(ME)
    assert (pending.id, pending.tool, pending.name) == (ask["approval"], "s/put", "s_put")
    assert (pending.chat_id, pending.call_id, pending.arguments) == (chat.id, ask["id"], {"text": "a"})
    assert process.calls() == ['look {"text": "b"}']
    with pytest.raises(ChatBusy):
        await process.chats.send(ME, chat.id, "more")


async def test_a_yes_makes_the_call_and_the_turn_goes_on(process: ChatProcess, model: Model) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT, "then", "results?")
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    events = await process.over(chat, turn)
    assert kinds(events) == ["user", "said", "call", "ask", "answer", "result", "said", "end"]
    assert bodies_of_kind(events, Kind.APPROVAL_ANSWER)[0] | {"id": 0, "approval": 0} == {
        "id": 0,
        "approval": 0,
        "yes": True,
        "remembered": None,
    }
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "put: a"
    assert has_one_result_per_call((await model.journal())[-1]["messages"])
    # Once is once.
    again = await process.chats.send(ME, chat.id, PUT)
    await process.waits(chat, again)
    assert process.calls() == ['put {"text": "a"}']
    assert await process.database.approvals.list_grants(ME, time.time()) == []


async def test_a_no_is_told_to_the_model_and_the_turn_goes_on(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT, "then", "results?")
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=False
    )
    events = await process.over(chat, turn)
    assert json.loads(bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]) == {
        "error": True,
        "output": "the user declined this call",
    }
    assert (bodies_of_kind(events, Kind.END)[0]["why"], process.calls()) == ("done", [])


async def test_the_turn_goes_on_with_the_last_answer_that_it_waits_for(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(
        process, PUT, 'call s_put {"text": "b"}', "then", "say Done so."
    )
    first, second = (body["approval"] for body in bodies_of_kind(events, Kind.APPROVAL_REQUEST))
    await process.chats.answer_approval(ME, second, yes=False)
    assert (await process.chats.get(ME, chat.id)).state is TurnState.WAITING
    await process.chats.answer_approval(ME, first, yes=True)
    events = await process.over(chat, turn)
    results = {body["id"]: body["ok"] for body in bodies_of_kind(events, Kind.RESULT)}
    assert [results[call["id"]] for call in bodies_of_kind(events, Kind.CALL)] == [True, False]
    assert process.calls() == ['put {"text": "a"}']


async def test_an_answer_after_a_restart_counts_in_every_process(open_chats: Opening) -> None:
    first = await open_chats()
    chat, turn, events = await start_waiting_turn(first, 'call s_look {"text": "b"}', PUT, "then", "results?")
    await first.close()
    second = await open_chats()
    assert (await second.chats.get(ME, chat.id)).state is TurnState.WAITING
    await second.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    events = await second.over(chat, turn)
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "look: b | put: a"
    assert second.calls() == ['look {"text": "b"}', 'put {"text": "a"}']


async def test_a_yes_can_reach_further_and_be_taken_back(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT)
    remember = GrantScope(3600, "any", this_chat_only=True)
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True, remember=remember
    )
    events = await process.over(chat, turn)
    assert (
        bodies_of_kind(events, Kind.APPROVAL_ANSWER)[0]["remembered"]
        == "with any arguments, in this chat, for 1 hour"
    )
    more = await process.say(chat, 'call s_put {"text": "b"}', 'call s_put {"text": "c"}')
    assert kinds(more).count("ask") == 0
    assert len(process.calls()) == 3
    # Another chat needs an approval of its own.
    await start_waiting_turn(process, PUT)
    [grant] = await process.database.approvals.list_grants(ME, time.time())
    assert await process.database.approvals.revoke(ME, grant.id)
    await process.waits(chat, await process.chats.send(ME, chat.id, 'call s_put {"text": "d"}'))


async def test_a_yes_to_any_arguments_answers_the_other_calls_that_wait(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT, 'call s_put {"text": "b"}')
    await process.chats.answer_approval(
        ME,
        bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"],
        yes=True,
        remember=GrantScope(60, "any", this_chat_only=True),
    )
    events = await process.over(chat, turn)
    assert [body["yes"] for body in bodies_of_kind(events, Kind.APPROVAL_ANSWER)] == [True, True]
    assert sorted(process.calls()) == ['put {"text": "a"}', 'put {"text": "b"}']
    assert await process.database.approvals.list_pending(ME) == []


async def test_a_tool_that_changed_since_the_yes_is_not_called(open_chats: Opening, tmp_path: Path) -> None:
    process = await open_chats(servers={"s": chat_server(tmp_path / "journal", cache={"ttl": 0})})
    chat, turn, events = await start_waiting_turn(process, PUT, "then", "results?")
    (tmp_path / "journal.words").write_text("It also sends everything to a stranger.")
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    events = await process.over(chat, turn)
    assert bodies_of_kind(events, Kind.RESULT)[0]["text"] == "the call to 's_put' was not approved"
    assert process.calls() == []
    # The second request refers to the current definition of the tool.
    waiting_turn = await process.waits(chat, await process.chats.send(ME, chat.id, PUT))
    [approval] = [
        each
        for each in await process.database.approvals.list_pending(ME)
        if each.id == bodies_of_kind(waiting_turn, Kind.APPROVAL_REQUEST)[0]["approval"]
    ]
    grants = await process.database.approvals.list_grants(ME, time.time())
    assert approval.definition_hash not in {grant.definition_hash for grant in grants}


async def test_a_call_through_the_meta_tools_is_approved_under_its_real_name(open_chats: Opening) -> None:
    process = await open_chats(agents=[Agent("far", "Far", mode="meta")])
    chat, turn, events = await start_waiting_turn(
        process, 'call tools_call {"name": "s_put", "arguments": {"text": "a"}}', agent="far"
    )
    [approval] = await process.database.approvals.list_pending(ME)
    assert (approval.tool, approval.name, approval.arguments) == ("s/put", "s_put", {"text": "a"})
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    events = await process.over(chat, turn)
    assert json.loads(bodies_of_kind(events, Kind.RESULT)[0]["text"]) == {"ok": True, "result": "put: a"}
    assert process.calls() == ['put {"text": "a"}']


async def test_a_tool_that_is_run_by_hand_asks_too(open_chats: Opening) -> None:
    process = await open_chats(models={})
    chat = await process.chat()
    turn = await process.chats.run_tool(ME, chat.id, "s_put", {"text": "a"})
    events = await process.waits(chat, turn)
    assert kinds(events) == ["run", "call", "ask"]
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    events = await process.over(chat, turn)
    assert bodies_of_kind(events, Kind.RESULT)[0]["text"] == "put: a"
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"


async def test_a_turn_that_waits_can_be_stopped(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT)
    await process.chats.stop_turn(ME, chat.id)
    events = await process.over(chat, turn)
    assert (bodies_of_kind(events, Kind.END)[0]["why"], process.calls()) == ("stopped", [])
    # The outcome of the call is known.
    [result] = bodies_of_kind(events, Kind.RESULT)
    assert result["text"] == "not called: the turn ended before the user approved or denied it"
    assert [call.state for call in TurnSnapshot.from_events(events).calls] == ["stopped"]
    assert await process.database.approvals.list_pending(ME) == []
    with pytest.raises(ChatRefused):
        await process.chats.answer_approval(
            ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
        )
    assert await process.database.approvals.list_grants(ME, time.time()) == []
    await process.say(chat, "go on")


async def test_an_approval_is_answered_once_and_by_its_owner(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT, 'call s_put {"text": "b"}')
    first, second = (body["approval"] for body in bodies_of_kind(events, Kind.APPROVAL_REQUEST))
    for owner, id in (("mallory", first), (ME, "no such")):
        with pytest.raises(NoSuchChat):
            await process.chats.answer_approval(owner, id, yes=True)
    await process.chats.answer_approval(ME, first, yes=True)
    with pytest.raises(ChatRefused):
        await process.chats.answer_approval(ME, first, yes=False)
    for seconds in (0.0, -1.0, 1e12, float("nan")):
        with pytest.raises(ChatRefused):
            await process.chats.answer_approval(
                ME, second, yes=True, remember=GrantScope(seconds, "any", this_chat_only=False)
            )
    await process.chats.answer_approval(ME, second, yes=False)
    await process.over(chat, turn)


async def test_answers_from_several_tabs_at_once_make_one_call(open_chats: Opening) -> None:
    here, other_chats = await open_chats(), await open_chats()
    chat, turn, events = await start_waiting_turn(here, PUT, "then", "say Well.")
    id = bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"]
    tabs = [here.chats.answer_approval(ME, id, yes=True) for _ in range(5)]
    tabs += [other_chats.chats.answer_approval(ME, id, yes=True) for _ in range(5)]
    outcomes = await asyncio.gather(*tabs, return_exceptions=True)
    assert all(isinstance(outcome, Approval | ChatRefused) for outcome in outcomes), outcomes
    events = await here.over(chat, turn)
    assert (len(bodies_of_kind(events, Kind.RESULT)), len(here.calls())) == (1, 1)


async def test_an_answer_that_the_chat_was_not_told_of_is_told_later(process: ChatProcess) -> None:
    """The process that accepted the answer died before it could publish it."""
    chat, turn, events = await start_waiting_turn(process, PUT, "then", "say Well.")
    id = bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"]
    assert await process.database.approvals.answer(ME, id, yes=False, at=1.0, grant=None)
    await process.chats.answer_approval(ME, id, yes=True)
    events = await process.over(chat, turn)
    assert bodies_of_kind(events, Kind.APPROVAL_ANSWER)[0]["yes"] is False
    assert process.calls() == []


async def test_a_turn_ends_with_the_answer_when_its_owner_is_gone(process: ChatProcess) -> None:
    chat, turn, events = await start_waiting_turn(process, PUT)
    process.yard.gone.add(ME)
    await process.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    events = await process.over(chat, turn)
    assert (bodies_of_kind(events, Kind.END)[0]["why"], process.calls()) == ("failed", [])


async def test_without_a_chat_approval_is_not_possible(process: ChatProcess) -> None:
    with pytest.raises(ToolRefused, match="needs an approval, and nobody is available to ask"):
        await process.core.call_path.call(ToolCall("s_put", {"text": "a"}))


# Predicates.


@pytest.mark.parametrize(
    ("predicate", "arguments", "expected"),
    [
        ({}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": None}, {}, False),
        ({"": {"equal": {"a": 1, "b": [2]}}}, {"b": [2], "a": 1}, True),
        ({"": {"equal": {"a": 1}}}, {"a": 1, "b": 2}, False),
        ({"": {"equal": {}}}, {}, True),
        ({"": "broken"}, {}, False),
        ({"p": {"glob": "docs/*"}}, {"p": "docs/a.md"}, True),
        ({"p": {"glob": "docs/*"}}, {"p": "docs/../secret"}, False),
        ({"p": {"glob": "docs/*"}}, {"p": "docs\\..\\secret"}, False),
        ({"p": {"glob": "docs/*"}}, {"p": "src/docs/a"}, False),
        ({"p": {"glob": "docs/*"}}, {"p": 7}, False),
        ({"p": {"glob": 7}}, {"p": "7"}, False),
        ({"p": {"glob": "x", "more": 1}}, {"p": {"more": 1, "glob": "x"}}, True),
        ({"n": 2**70}, {"n": 2**70}, False),
    ],
)
def test_predicates_match_arguments(predicate: Any, arguments: Any, expected: bool) -> None:
    assert arguments_match(predicate, arguments) is expected


def test_an_approval_is_bound_to_its_definition_and_arguments() -> None:
    approval = Approval("i", ME, "s/put", "s_put", "hash", {"a": 1}, "why", 1.0, chat_id="c", call_id="k")
    once = create_grant(approval, None, 100.0)
    assert (once.uses, once.chat_id, once.predicate) == (1, "c", {"": {"equal": {"a": 1}}})
    assert (once.tool, once.definition_hash, once.expires_at > 100.0) == ("s/put", "hash", True)
    longer = create_grant(approval, GrantScope(60, "any", this_chat_only=False), 100.0)
    assert (longer.uses, longer.chat_id, longer.predicate, longer.expires_at) == (None, None, {}, 160.0)
    words = describe_grant_scope(GrantScope(172_800, "these", this_chat_only=False))
    assert words == "with these arguments, in all your chats and clients, for 2 days"
