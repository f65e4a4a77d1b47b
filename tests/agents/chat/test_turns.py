"""Turns with a model and tools, from the message to the end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.agents.chat.chat_harness import (
    ME,
    ChatProcess,
    Model,
    bodies_of_kind,
    fake_model,
    has_one_result_per_call,
    kinds,
)

from toolyard.agents.chat.errors import ChatBusy, ChatRefused, NoSuchChat
from toolyard.agents.models.errors import NoSuchModel
from toolyard.meta_tools import META_TOOLS
from toolyard.types.agent import Agent
from toolyard.types.chat import Kind, TurnState
from toolyard.types.plurals import format_count

Opening = Callable[..., Awaitable[ChatProcess]]
Until = Callable[..., Awaitable[None]]


async def test_a_message_is_answered(process: ChatProcess) -> None:
    chat = await process.chat()
    events = await process.say(chat, "hello there")
    assert kinds(events) == ["user", "said", "end"]
    [model_messages], [end], [usage_bodies] = (
        bodies_of_kind(events, kind) for kind in (Kind.MODEL_MESSAGE, Kind.END, Kind.USAGE)
    )
    assert (model_messages["text"], model_messages["calls"], model_messages["model"]) == (
        "You said: hello there",
        0,
        "fake-1",
    )
    assert (end["why"], end["error"], end["hint"]) == ("done", None, None)
    assert usage_bodies["input"] > 0
    assert usage_bodies["output"] > 0
    [user] = bodies_of_kind(events, Kind.USER)
    assert user == {"text": "hello there", "model": "fake", "agent": None, "again": None}
    assert (await process.chats.get(ME, chat.id)).state is TurnState.IDLE


async def test_a_turn_of_two_steps_calls_a_tool_and_tells_the_model(process: ChatProcess) -> None:
    chat = await process.chat()
    events = await process.say(chat, "say Looking.", 'call s_look {"text": "moon"}', "then", "results?")
    assert kinds(events) == ["user", "said", "call", "result", "said", "end"]
    [call], [result] = bodies_of_kind(events, Kind.CALL), bodies_of_kind(events, Kind.RESULT)
    assert {key: call[key] for key in ("name", "tool", "server", "native", "title", "arguments")} == {
        "name": "s_look",
        "tool": "s/look",
        "server": "s",
        "native": False,
        "title": "Look",
        "arguments": {"text": "moon"},
    }
    assert (result["id"], result["ok"], result["text"]) == (call["id"], True, "look: moon")
    assert (result["length"], result["media"], result["handle"], result["cause"]) == (10, [], None, None)
    assert [message["text"] for message in bodies_of_kind(events, Kind.MODEL_MESSAGE)] == [
        "Looking.",
        "look: moon",
    ]
    assert process.calls() == ['look {"text": "moon"}']


async def test_the_next_turn_knows_the_earlier_ones_in_the_same_words(
    process: ChatProcess, model: Model
) -> None:
    chat = await process.chat()
    await process.say(chat, 'call s_look {"text": "a"}', 'call s_look {"text": "b"}', "then", "say Seen.")
    first = (await model.journal())[-1]
    await process.say(chat, "and now?")
    second = (await model.journal())[-1]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert [message["role"] for message in second["messages"]] == [
        *("user", "assistant", "tool", "tool", "assistant", "user")
    ]
    assert second["messages"][-2]["content"] == "Seen."
    assert has_one_result_per_call(second["messages"])
    assert second["tools"] == first["tools"]
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert names == sorted(names)


async def test_pieces_come_as_they_are_said_and_go_when_all_is_said(
    process: ChatProcess, model: Model
) -> None:
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "think Well well\nsay One two\nhold\nsay  three")
    coming = await process.until(
        chat,
        turn,
        lambda chat_events: "One two" in "".join(e.body["delta"] for e in chat_events if e.kind is Kind.TEXT),
    )
    assert {event.part for event in coming if event.kind is Kind.TEXT} == {"step-1"}
    assert "".join(e.body["delta"] for e in coming if e.kind is Kind.REASONING) == "Well well"
    await model.release()
    events = await process.over(chat, turn)
    assert not [event for event in events if event.kind in (Kind.TEXT, Kind.REASONING)]
    [model_message] = bodies_of_kind(events, Kind.MODEL_MESSAGE)
    assert (model_message["text"], model_message["reasoning"]) == ("One two three", "Well well")


async def test_a_picture_reaches_a_model_that_sees(process: ChatProcess) -> None:
    chat = await process.chat()
    events = await process.say(chat, "call s_picture {}", "then", "image?")
    [result] = bodies_of_kind(events, Kind.RESULT)
    assert [each["kind"] for each in result["media"]] == ["image"]
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "image: yes"
    [seq] = [event.seq for event in events if event.kind is Kind.RESULT]
    full_result = await process.chats.get_full_result(ME, chat.id, seq)
    assert full_result is not None
    assert (full_result.text, [each.mime for each in full_result.media]) == ("a picture", ["image/png"])
    # The next turn does not send the image again.
    again = await process.say(chat, "image?")
    assert bodies_of_kind(again, Kind.MODEL_MESSAGE)[-1]["text"] == "image: no"


@pytest.mark.parametrize("tool", ["picture", "sound"])
async def test_a_model_without_image_and_audio_input_gets_a_description(
    open_chats: Opening, model: Model, tool: str
) -> None:
    process = await open_chats(models={"fake": fake_model(model.url, sees=False)})
    chat = await process.chat()
    events = await process.say(chat, f"call s_{tool} {{}}", "then", "results?")
    kind = {"picture": "[image: image/png, ", "sound": "[audio: audio/wav, "}[tool]
    assert kind in bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]


async def test_a_sound_reaches_a_model_that_hears(open_chats: Opening, model: Model) -> None:
    process = await open_chats(models={"fake": fake_model(model.url, hears=True)})
    events = await process.say(await process.chat(), "call s_sound {}", "then", "audio?")
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "audio: yes"


async def test_a_long_result_is_kept_whole_and_can_be_read_on(process: ChatProcess) -> None:
    chat = await process.chat()
    events = await process.say(chat, 'call s_big {"size": 100000}', "then", "tools?")
    [result] = [event for event in events if event.kind is Kind.RESULT]
    assert (len(result.body["text"]), result.body["handle"] is None) == (4_000, False)
    full_result = await process.chats.get_full_result(ME, chat.id, result.seq)
    assert full_result is not None
    assert len(full_result.text) == result.body["length"] > 60_000
    assert "result_read" in bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"].split()
    handle = result.body["handle"]
    read = await process.say(chat, f'call result_read {{"handle": "{handle}", "offset": 99990}}', "then")
    assert json.loads(bodies_of_kind(read, Kind.RESULT)[0]["text"])["text"] == "x" * 10


async def test_a_tools_failure_goes_to_the_model_and_the_turn_goes_on(
    process: ChatProcess, model: Model
) -> None:
    # One after the other: a call during the server's death reports that death.
    lines = ("call s_fail {}", "then", "call s_die {}", "then", "say On.")
    failed_body, died = bodies_of_kind(events := await process.say(await process.chat(), *lines), Kind.RESULT)
    assert (failed_body["ok"], failed_body["text"]) == (False, "it failed")
    assert died["ok"] is False
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
    contents = [m["content"] for m in (await model.journal())[-1]["messages"] if m["role"] == "tool"]
    assert json.loads(contents[0]) == {"error": True, "output": "it failed"}


async def test_unknown_tools_and_arguments_that_are_not_json_are_errors(
    process: ChatProcess, model: Model
) -> None:
    chat = await process.chat()
    events = await process.say(
        chat,
        "call nothing_here {}",
        "raw s_look {not json",
        "raw s_look [1]",
        "call s_look {}",
        "then",
        "say Sorry.",
    )
    results = {body["id"]: body for body in bodies_of_kind(events, Kind.RESULT)}
    missing, broken, listed_result, fine = (results[call["id"]] for call in bodies_of_kind(events, Kind.CALL))
    assert missing["text"].startswith("no tool named 'nothing_here' is available")
    assert [broken["text"], listed_result["text"]] == [
        "not called: the arguments are not a JSON object; send them again as one"
    ] * 2
    assert (fine["ok"], missing["ok"], broken["ok"]) == (True, False, False)
    calls = bodies_of_kind(events, Kind.CALL)
    assert [calls[0]["tool"], calls[1]["arguments"]] == [None, "{not json"]
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
    await process.say(chat, "again")
    assert has_one_result_per_call((await model.journal())[-1]["messages"])


async def test_a_name_that_the_model_made_up_spoils_no_later_request(
    process: ChatProcess, model: Model
) -> None:
    chat = await process.chat()
    made_up = ["functions.s_look", "s_look<|channel|>", "x" * 100]
    events = await process.say(chat, *(f"call {name} {{}}" for name in made_up), "then", "say Sorry.")
    assert [call["name"] for call in bodies_of_kind(events, Kind.CALL)] == made_up
    await process.say(chat, "again")
    for request in (await model.journal())[-2:]:
        calls = [call for message in request["messages"] for call in message.get("tool_calls") or ()]
        names = [call["function"]["name"] for call in calls]
        # Providers accept these names; any other name fails the whole request.
        assert names == ["functions_s_look", "s_look__channel__", "x" * 64]


FAULTS = ["401", "429", "500", "html", "nothing", "die", "cut", "garbage", "error"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_model_that_fails_ends_the_turn_in_words_and_the_chat_goes_on(
    process: ChatProcess, model: Model, fault: str
) -> None:
    chat = await process.chat()
    events = await process.say(chat, 'call s_look {"text": "a"}', "then", f"fault {fault}")
    [end] = bodies_of_kind(events, Kind.END)
    assert end["why"] == "failed"
    assert end["error"]
    assert len(bodies_of_kind(events, Kind.RESULT)) == 1
    if fault == "die":
        assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "Half an ans"
    assert not [event for event in events if event.kind is Kind.TEXT]
    again = await process.say(chat, "still there?")
    assert bodies_of_kind(again, Kind.MODEL_MESSAGE)[-1]["text"] == "You said: still there?"
    assert has_one_result_per_call((await model.journal())[-1]["messages"])


async def test_a_fault_in_the_middle_of_a_call_makes_no_call(process: ChatProcess, model: Model) -> None:
    chat = await process.chat()
    events = await process.say(chat, "say Well,", 'call s_look {"text": "a"}', "fault die")
    assert kinds(events) == ["user", "said", "end"]
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["calls"] == 0
    assert process.calls() == []
    await process.say(chat, "go on")
    assert has_one_result_per_call((await model.journal())[-1]["messages"])


async def test_of_two_hundred_calls_at_once_the_first_are_made(process: ChatProcess) -> None:
    events = await process.say(
        await process.chat(), 'many 200 s_look {"text": "$n"}', "then", "say Enough.", "then"
    )
    results = {body["id"]: body for body in bodies_of_kind(events, Kind.RESULT)}
    call_results = [results[call["id"]] for call in bodies_of_kind(events, Kind.CALL)]
    assert [body["ok"] for body in call_results] == [True] * 64 + [False] * 136
    assert call_results[64]["text"].startswith("not called: an answer may contain at most 64 calls")
    assert [body["text"] for body in call_results[:3]] == ["look: 1", "look: 2", "look: 3"]
    assert len(process.calls()) == 64
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"


async def test_more_calls_than_anybody_means_are_cut_off_with_a_note(process: ChatProcess) -> None:
    events = await process.say(await process.chat(), 'many 300 s_look {"text": "$n"}', "then", "say Enough.")
    assert len(bodies_of_kind(events, Kind.CALL)) == 256
    assert "300 calls" in bodies_of_kind(events, Kind.NOTE)[0]["text"]


# Guards.


async def test_the_third_call_of_the_same_is_refused_and_the_fourth_ends_the_turn(
    process: ChatProcess,
) -> None:
    chat, script = await process.chat(), ['call s_look {"text": "a"}', "then"] * 5
    events = await process.say(chat, *script, "say Never.")
    results = bodies_of_kind(events, Kind.RESULT)
    assert [body["ok"] for body in results] == [True, True, False, False]
    assert "the same call with the same arguments" in results[2]["text"]
    assert results[3]["text"] == "not called: a limit ended the turn"
    [end] = bodies_of_kind(events, Kind.END)
    assert (end["why"], "too often" in end["error"]) == ("limit", True)
    assert len(process.calls()) == 2


async def test_a_turn_has_so_many_steps_and_an_agent_may_set_them(open_chats: Opening) -> None:
    agent = Agent("brief", "Brief", max_steps=1)
    process = await open_chats(agents=[agent], max_steps=2)
    script = [line for n in range(4) for line in (f'call s_look {{"text": "{n}"}}', "then")]
    for chat, steps in ((await process.chat(), 2), (await process.chat(agent="brief"), 1)):
        events = await process.say(chat, *script)
        [end] = bodies_of_kind(events, Kind.END)
        requests = format_count(steps, "model request")
        assert (end["why"], end["error"]) == ("limit", f"the turn reached its limit of {requests}")
        assert len(bodies_of_kind(events, Kind.MODEL_MESSAGE)) == steps
        assert len(bodies_of_kind(events, Kind.RESULT)) == steps


async def test_a_turn_has_so_many_tokens(open_chats: Opening) -> None:
    process = await open_chats(turn_token_budget=1_000)
    events = await process.say(
        await process.chat(), 'call s_big {"size": 8000}', "then", "call s_look {}", "then", "say Never."
    )
    [end] = bodies_of_kind(events, Kind.END)
    assert (end["why"], "tokens; the limit is 1,000" in end["error"]) == ("limit", True)


# Agents, models, tools.


async def test_an_agent_has_its_prompt_its_warmth_and_its_tools(open_chats: Opening, model: Model) -> None:
    agent = Agent("careful", "Careful", prompt="Be careful.", temperature=0.25, tools=("s_l*",))
    process = await open_chats(agents=[agent])
    events = await process.say(await process.chat(agent="careful"), "tools?")
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"] == "s_look"
    body = (await model.journal())[-1]["body"]
    assert body["temperature"] == 0.25
    assert body["messages"][0]["content"] == "Be careful."
    assert bodies_of_kind(events, Kind.USER)[0]["agent"] == "careful"


async def test_an_agent_in_meta_mode_reaches_tools_through_the_meta_tools(
    open_chats: Opening, model: Model
) -> None:
    process = await open_chats(agents=[Agent("far", "Far", mode="meta")])
    events = await process.say(
        await process.chat(agent="far"),
        "tools?",
        'call tools_call {"name": "s_look", "arguments": {"text": "moon"}}',
        'call tools_call {"name": "s_nothing"}',
        "then",
        "say Ok.",
    )
    text = bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"]
    assert text == "result_read tools_call tools_describe tools_list tools_search"
    notes = bodies_of_kind(events, Kind.NOTE)
    assert [note["text"] for note in notes] == [
        "the model finds tools by search: agent 'far' has the mode 'meta'"
    ]
    results = {body["id"]: body for body in bodies_of_kind(events, Kind.RESULT)}
    good, bad = (results[call["id"]] for call in bodies_of_kind(events, Kind.CALL))
    assert (good["ok"], json.loads(good["text"])["result"]) == (True, "look: moon")
    assert (bad["ok"], json.loads(bad["text"])["ok"]) == (False, False)
    contents = [m["content"] for m in (await model.journal())[-1]["messages"] if m["role"] == "tool"]
    assert [json.loads(each)["ok"] for each in contents] == [True, False]
    call = bodies_of_kind(events, Kind.CALL)[0]
    assert (call["native"], call["server"]) == (True, "Toolyard")


async def test_the_model_gets_only_the_selected_tools(process: ChatProcess) -> None:
    chat = await process.chat(choice=["s/look", "s/fail"])
    events = await process.say(chat, "tools?", "call s_big {}", "then")
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"] == "s_fail s_look"
    assert bodies_of_kind(events, Kind.RESULT)[0]["text"].startswith("no tool named 's_big' is available")


async def test_the_picker_says_of_each_tool_whether_it_is_hidden_and_why(open_chats: Opening) -> None:
    agent = Agent("careful", "Careful", tools=("s_*", "!s_big"))
    process = await open_chats(agents=[agent])
    chat = await process.chat(agent="careful", choice=["s/look"])
    views = {view.name: view for view in await process.chats.list_tools(ME, chat.id)}
    assert list(views) == sorted(views)
    assert (views["s_look"].shown, views["s_look"].why, views["s_look"].asks) == (True, "", False)
    assert (views["s_fail"].shown, views["s_put"].shown, views["s_put"].asks) == (True, True, True)
    assert views["s_big"].shown is False
    assert views["s_big"].why == "'!s_big' is the last pattern of agent 'careful' that matches 's_big'"
    assert (views["s_look"].id, views["s_look"].server_label, views["s_look"].native) == (
        "s/look",
        "s",
        False,
    )


async def test_a_model_that_is_not_there_is_refused_at_once(process: ChatProcess) -> None:
    with pytest.raises(NoSuchModel):
        await process.chat(model="nobody")
    chat = await process.chat()
    with pytest.raises(NoSuchModel):
        await process.chats.change(ME, chat.id, model="nobody")
    with pytest.raises(ChatRefused, match="unknown agent 'nobody'"):
        await process.chats.change(ME, chat.id, agent="nobody")
    assert (await process.chats.get(ME, chat.id)).model is None


async def test_a_server_that_cannot_be_listed_is_named_once(open_chats: Opening, tmp_path: Path) -> None:
    process = await open_chats(servers={"gone": {"command": str(tmp_path / "nothing")}})
    chat = await process.chat()
    events = await process.say(chat, "tools?")
    [note] = bodies_of_kind(events, Kind.NOTE)
    assert note["text"].startswith("the tools of gone cannot be listed: ")
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
    assert bodies_of_kind(await process.say(chat, "tools?"), Kind.NOTE) == []


async def test_above_the_threshold_a_chat_gets_the_meta_tools(open_chats: Opening) -> None:
    process = await open_chats(meta_threshold=50)
    chat = await process.chat()
    events = await process.say(chat, "tools?")
    words_of_answer = bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"].split()
    assert words_of_answer == sorted(META_TOOLS)
    assert len(bodies_of_kind(events, Kind.NOTE)) == 1
    assert bodies_of_kind(await process.say(chat, "tools?"), Kind.NOTE) == []


# Without a model.


async def test_without_a_model_tools_are_run_by_hand(open_chats: Opening) -> None:
    process = await open_chats(models={})
    chat = await process.chat()
    with pytest.raises(NoSuchModel):
        await process.chats.send(ME, chat.id, "hello")
    events = await process.run(chat, "s_look", text="moon")
    assert kinds(events) == ["run", "call", "result", "end"]
    assert bodies_of_kind(events, Kind.RUN)[0] == {
        "name": "s_look",
        "arguments": {"text": "moon"},
        "again": None,
    }
    assert bodies_of_kind(events, Kind.CALL)[0]["tool"] == "s/look"
    assert (bodies_of_kind(events, Kind.RESULT)[0]["text"], bodies_of_kind(events, Kind.END)[0]["why"]) == (
        "look: moon",
        "done",
    )
    assert (await process.chats.get(ME, chat.id)).title == "s_look"
    missing = await process.run(chat, "s_nothing")
    assert bodies_of_kind(missing, Kind.RESULT)[0]["ok"] is False
    failing = await process.run(chat, "s_fail")
    assert (bodies_of_kind(failing, Kind.RESULT)[0]["text"], bodies_of_kind(failing, Kind.END)[0]["why"]) == (
        "it failed",
        "done",
    )


async def test_progress_is_told_while_a_tool_works(open_chats: Opening) -> None:
    process = await open_chats(models={})
    chat = await process.chat()
    turn = await process.chats.run_tool(ME, chat.id, "s_count", {"to": 20, "pause": 0.05})
    snapshots: list[dict[str, object]] = []

    def enough(items: list[object]) -> bool:
        snapshots[:] = [dict(e.body) for e in items if e.kind is Kind.PROGRESS]  # type: ignore[attr-defined]
        return items[-1].kind is Kind.END  # type: ignore[attr-defined]

    events = await process.until(chat, turn, enough)
    assert 2 <= len(snapshots) <= 15
    assert [body["total"] for body in snapshots] == [20] * len(snapshots)
    assert [body["progress"] for body in snapshots] == sorted(body["progress"] for body in snapshots)  # type: ignore[type-var]
    assert kinds(events) == ["run", "call", "result", "end"]
    assert not bodies_of_kind(events, Kind.PROGRESS)


# Properties of a chat.


async def test_a_chat_is_called_by_its_first_message(process: ChatProcess) -> None:
    chat = await process.chat()
    await process.say(chat, "", "  What   is\tthis, ", "and that?")
    assert (await process.chats.get(ME, chat.id)).title == "What is this,"
    await process.say(chat, "another")
    assert (await process.chats.get(ME, chat.id)).title == "What is this,"
    long = await process.chat()
    await process.say(long, "word " * 40)
    title = (await process.chats.get(ME, long.id)).title
    assert (len(title) <= 60, title.endswith("…")) == (True, True)
    titled_chat = await process.chat(title="My own")
    await process.say(titled_chat, "hello")
    assert (await process.chats.get(ME, titled_chat.id)).title == "My own"


async def test_one_turn_at_a_time(process: ChatProcess, model: Model) -> None:
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "say a\nhold")
    for attempt in (
        process.chats.send(ME, chat.id, "more"),
        process.chats.retry(ME, chat.id),
        process.chats.run_tool(ME, chat.id, "s_look", {}),
    ):
        with pytest.raises(ChatBusy):
            await attempt
    await model.release()
    events = await process.over(chat, turn)
    assert kinds(events) == ["user", "said", "end"]


async def test_a_chat_is_its_owners_alone(process: ChatProcess) -> None:
    chat = await process.chat()
    await process.say(chat, "hello")
    chats = process.chats
    for attempt in (
        chats.get("mallory", chat.id),
        chats.change("mallory", chat.id, title="mine"),
        chats.delete("mallory", chat.id),
        chats.send("mallory", chat.id, "hello"),
        chats.run_tool("mallory", chat.id, "s_look", {}),
        chats.retry("mallory", chat.id),
        chats.stop_turn("mallory", chat.id),
        chats.answer_question("mallory", chat.id, "x", "accept", {}),
        chats.list_events("mallory", chat.id),
        chats.list_latest_events("mallory", chat.id),
        chats.wait_for_events("mallory", chat.id, 0, 0.01),
        chats.get_full_result("mallory", chat.id, 1),
        chats.list_tools("mallory", chat.id),
    ):
        with pytest.raises(NoSuchChat):
            await attempt
    assert await chats.list("mallory") == []
    assert [each.id for each in await chats.list(ME)] == [chat.id]


async def test_invalid_messages_are_refused(process: ChatProcess) -> None:
    chat = await process.chat()
    for text in ("", "  \n\t ", "x" * 1_000_001):
        with pytest.raises(ChatRefused):
            await process.chats.send(ME, chat.id, text)
    with pytest.raises(ChatRefused):
        await process.chats.retry(ME, chat.id)
    with pytest.raises(ChatRefused):
        await process.chats.run_tool(ME, chat.id, "s_look", {"n": 2**70})
    assert await process.chats.list_events(ME, chat.id) == []


async def test_texts_that_no_database_takes_are_said_all_the_same(process: ChatProcess) -> None:
    events = await process.say(await process.chat(), "a\0b \ud83d c")
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"] == "You said: a\ufffdb ? c"


async def test_the_owner_of_a_chat_must_still_be_there(process: ChatProcess) -> None:
    chat = await process.chat()
    process.yard.gone.add(ME)
    with pytest.raises(ChatRefused, match="no account"):
        await process.chats.send(ME, chat.id, "hello")


async def test_fifty_turns_at_once_lose_nothing_and_keep_their_order(process: ChatProcess) -> None:
    chats = [await process.chat() for _ in range(50)]
    turns = [
        await process.chats.send(
            ME, chat.id, f'say {n} one two three\ncall s_look {{"text": "{n}"}}\nthen\nresults?\nsay  end {n}'
        )
        for n, chat in enumerate(chats)
    ]
    for n, (chat, turn) in enumerate(zip(chats, turns, strict=True)):
        events = await process.over(chat, turn)
        assert kinds(events) == ["user", "said", "call", "result", "said", "end"]
        assert [event.seq for event in events] == sorted({event.seq for event in events})
        first, last = (body["text"] for body in bodies_of_kind(events, Kind.MODEL_MESSAGE))
        assert (first, last) == (f"{n} one two three", f"look: {n} end {n}")
        assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
