"""``/api/v1/chats``: begun, found, changed and deleted; turns that go on by themselves; who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select
from tests.web.chat.chat_client import (
    begin,
    models_at,
    of_kind,
    open_stream,
    results_server,
    run,
    say,
    wait_for_end,
)

from toolyard.store.sql.tables import chats
from toolyard.types.account import Right, TokenScope
from toolyard.types.agent import Agent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening

PLANNER = Agent("planner", "Planner", tools=("demo_w*",))


@pytest.fixture
async def yard(open_site: Opening, model_program: ListeningProgram, demo: dict[str, Any]) -> Any:
    """A Toolyard of several people, with a model that does what it is told."""
    local = await open_site(
        {"demo": demo, "chat": results_server()},
        people_mode="password",
        models=models_at(model_program.url),
        agents=[PLANNER],
        write_tools="ask",
    )
    local.model = model_program
    return local


async def release(local: Any) -> None:
    """Let the model go on."""
    async with local.clients[0].session.post(f"{local.model.url}/release") as response:
        assert response.status == 200


# Chats.


async def test_a_user_is_warned_before_the_limit_of_chats_on_the_page_and_in_the_api(
    open_site: Opening,
) -> None:
    local = await open_site(people_mode="password", chat_limit=5)
    ada, bob = await local.person("ada"), await local.person("bob")
    for number in range(4):
        assert "of 5 chats" not in (await ada.browser.get("/ui/chat")).text, number
        assert (await ada.token.post("/api/v1/chats", {})).status == 201
    notice = (await ada.token.get("/api/v1/chats")).json["notice"]
    assert notice.startswith("You have 4 of 5 chats. Delete chats that you no longer need, or ask an admin")
    assert notice in (await ada.browser.get("/ui/chat")).text
    assert "of 5 chats" not in (await bob.browser.get("/ui/chat")).text


async def test_a_chat_is_begun_and_found_again(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    body = {"title": "Retries", "agent": "planner", "model": "fake", "choice": ["demo/weekday"]}
    answer = await ada.post("/api/v1/chats", body)
    assert answer.status == 201, answer.text
    chat = answer.json
    assert answer.headers["location"] == f"/api/v1/chats/{chat['id']}"
    assert {name: chat[name] for name in body} == body
    assert (chat["state"], chat["turn"], chat["last"]) == ("idle", 0, 0)
    assert (await ada.get(answer.headers["location"])).json == chat
    assert (await ada.get("/api/v1/chats")).json == {"items": [chat], "next_before": None, "notice": None}


async def test_chats_come_page_by_page_and_none_twice(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chats = [await begin(ada, title=f"Chat {n}") for n in range(5)]
    found_chats: list[str] = []
    place = ""
    while place is not None:
        page = (await ada.get(f"/api/v1/chats?limit=2{place and f'&before={place}'}")).json
        assert 1 <= len(page["items"]) <= 2
        found_chats += [each["id"] for each in page["items"]]
        place = page["next_before"]
    assert found_chats == chats[::-1]


async def test_chats_are_found_by_words_of_titles_and_messages(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    one, two = await begin(ada, title="About cucumbers"), await begin(ada, title="Other things")
    await say(ada, two, "say Pumpkins are large.")
    await wait_for_end(ada, two)

    async def search(words: str) -> list[str]:
        return [each["id"] for each in (await ada.get(f"/api/v1/chats?q={words}")).json["items"]]

    assert await search("cucumber") == [one]
    assert await search("pumpkins") == [two]
    assert await search("melons") == []
    assert len(await search("")) == 2


async def test_omitted_fields_of_a_change_stay(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada, title="Old", agent="planner", model="fake", choice=["demo/weekday"])
    path = f"/api/v1/chats/{chat}"
    changed_chat = (await ada.patch(path, {"title": "New name"})).json
    assert (changed_chat["title"], changed_chat["agent"], changed_chat["choice"]) == (
        "New name",
        "planner",
        ["demo/weekday"],
    )
    changed_chat = (await ada.patch(path, {"agent": None, "choice": None})).json
    assert (changed_chat["title"], changed_chat["agent"], changed_chat["model"]) == ("New name", None, "fake")
    assert changed_chat["choice"] is None
    assert (await ada.patch(path, {"choice": []})).json["choice"] == []
    assert (await ada.get(path)).json["choice"] == []


async def test_a_deleted_chat_is_gone_with_all_that_was_said(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    await say(ada, chat, "say Hello")
    await wait_for_end(ada, chat)
    assert (await ada.delete(f"/api/v1/chats/{chat}")).status == 204
    for path in ("", "/events", "/stream", "/export", "/results/1", "/tools"):
        answer = await ada.get(f"/api/v1/chats/{chat}{path}")
        assert answer.status == 404, path
        assert answer.json["type"] == "urn:toolyard:problem:not-found"
    assert (await ada.delete(f"/api/v1/chats/{chat}")).status == 404


async def test_user_actions_are_in_the_audit_log(yard: Any) -> None:
    root, ada = await yard.person("root", "admin"), (await yard.person("ada")).token
    chat = await begin(ada)
    await say(ada, chat, 'call chat_write {"text": "x"}', "then", "say Fine.")
    async with open_stream(ada, chat) as stream:
        event_body = await stream.until("ask")
        body = {"yes": True, "remember": {"seconds": 60, "arguments": "any", "here": False}}
        assert (await ada.post(f"/api/v1/approvals/{event_body.body['approval']}", body)).status == 204
        await stream.until("end")
    grant = (await ada.get("/api/v1/grants")).json["items"][0]["id"]
    assert (await ada.delete(f"/api/v1/grants/{grant}")).status == 204
    assert (await ada.delete(f"/api/v1/chats/{chat}")).status == 204
    entries = (await root.token.get("/api/v1/audit?limit=500")).json["items"]
    entries_by_action = {each["action"]: each for each in entries}
    assert entries_by_action["chat.create"]["target"] == entries_by_action["chat.delete"]["target"] == chat
    assert entries_by_action["approval.answer"]["details"]["tool"] == "chat/write"
    assert entries_by_action["approval.answer"]["details"]["yes"] is True
    assert entries_by_action["grant.revoke"]["target"] == grant
    assert (entries_by_action["tool.call"]["target"], entries_by_action["tool.call"]["actor_name"]) == (
        "chat/write",
        "ada",
    )
    assert {each["actor_name"] for each in entries} == {"ada"}


# Turns.


async def test_a_message_is_answered_at_once_and_its_events_are_streamed(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    text = 'say Let me see.\ncall demo_weekday {"date": "2026-07-28"}\nthen\nsay A Tuesday.'
    answer = await ada.post(f"/api/v1/chats/{chat}/messages", {"text": text})
    assert answer.status == 202, answer.text
    turn = answer.json["turn"]
    assert (
        answer.headers["location"] == answer.json["stream"] == f"/api/v1/chats/{chat}/stream?after={turn - 1}"
    )
    events = await wait_for_end(ada, chat, turn - 1)
    assert (events[0].name, events[0].body["text"]) == ("user", text)
    assert {each.data["turn"] for each in events} == {turn}
    kinds = [each.name for each in events if each.name not in ("text", "progress", "usage")]
    assert kinds == ["user", "said", "call", "result", "said", "end"]
    result = next(each for each in events if each.name == "result")
    assert (result.body["ok"], result.body["text"]) == (True, "2026-07-28 is a Tuesday.")
    assert events[-1].body["why"] == "done"
    assert [each.seq for each in events] == sorted({each.seq for each in events})


async def test_events_come_page_by_page_and_pieces_are_gone_with_their_whole(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    await say(ada, chat, "say " + "word " * 30)
    await wait_for_end(ada, chat)
    whole = (await ada.get(f"/api/v1/chats/{chat}/events")).json
    assert whole["next_after"] is None
    assert [each["kind"] for each in whole["items"]] == ["user", "said", "usage", "end"]
    chats: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = (await ada.get(f"/api/v1/chats/{chat}/events?limit=1&after={after}")).json
        chats += page["items"]
        after = page["next_after"]
    assert chats == whole["items"]


async def test_a_second_message_waits_for_the_end_of_the_first(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    await say(ada, chat, "say One", "hold", "say , two.")
    busy = [
        await ada.post(f"/api/v1/chats/{chat}/messages", {"text": "And?"}),
        await ada.post(f"/api/v1/chats/{chat}/runs", {"name": "demo_weekday"}),
        await ada.post(f"/api/v1/chats/{chat}/retry"),
    ]
    for answer in busy:
        assert (answer.status, answer.json["type"]) == (409, "urn:toolyard:problem:chat-busy"), answer.text
        assert answer.json["hint"]
    assert (await ada.get(f"/api/v1/chats/{chat}")).json["state"] == "running"
    async with open_stream(ada, chat) as stream:
        await stream.until("text")
        await release(yard)
        await stream.until("end")
    assert (await ada.get(f"/api/v1/chats/{chat}")).json["state"] == "idle"


async def test_stop_ends_a_turn_and_retry_begins_it_again(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    first = await say(ada, chat, "say One", "hold", "say , two.")
    async with open_stream(ada, chat) as stream:
        await stream.until("text")
        answer = await ada.post(f"/api/v1/chats/{chat}/stop")
        assert (answer.status, answer.json["turn"]) == (202, first)
        assert (await stream.until("end")).body["why"] == "stopped"
        answer = await ada.post(f"/api/v1/chats/{chat}/retry")
        assert answer.status == 202, answer.text
        assert answer.json["turn"] > first
        await stream.until("text")
        await release(yard)
        assert (await stream.until("end")).body["why"] == "done"
    assert (await of_kind(ada, chat, "said"))[-1]["body"]["text"] == "One, two."
    assert (await ada.post(f"/api/v1/chats/{chat}/stop")).status == 202, "nothing runs, nothing happens"


async def test_alternatives_are_made_and_chosen_over_the_api(yard: Any) -> None:
    ada, eve = (await yard.person("ada")).token, (await yard.person("eve")).token
    chat = await begin(ada)
    turns = f"/api/v1/chats/{chat}/turns"
    async with open_stream(ada, chat) as stream:
        first = await say(ada, chat, "say One.")
        await stream.until("end")
        response = await ada.post(f"{turns}/{first}/edit", {"text": "say Other."})
        assert response.status == 202, response.text
        await stream.until("end")
        other = response.json["turn"]
        stale = await ada.post(f"{turns}/{first}/edit", {"text": "say Late."})
        assert (stale.status, stale.json["type"]) == (409, "urn:toolyard:problem:chat-changed")
        assert stale.json["current"] == {"turn": other, "text": "say Other."}
        assert (await ada.post(f"{turns}/{other}/retry")).status == 202
        await stream.until("end")
        chosen_response = await ada.post(f"{turns}/{first}/choose")
        assert (chosen_response.status, chosen_response.json["turn"]) == (200, first)
        assert (await stream.until("switch")).data["turn"] == first
    [item] = (await ada.get(turns)).json["items"]
    assert (item["turn"], item["parent"], item["alternatives"][:2]) == (first, 0, [first, other])
    assert len(item["alternatives"]) == 3
    assert [each["parent"] for each in await of_kind(ada, chat, "user")] == [0, 0, 0]
    assert (await ada.post(f"{turns}/99/choose")).status == 404
    for path in ("choose", "retry"):
        assert (await eve.post(f"{turns}/{first}/{path}")).status == 404
    assert (await eve.get(turns)).status == 404


async def test_an_alternative_is_deleted_with_the_turns_that_follow_it(yard: Any) -> None:
    ada, eve = (await yard.person("ada")).token, (await yard.person("eve")).token
    chat = await begin(ada)
    turns = f"/api/v1/chats/{chat}/turns"
    first = await say(ada, chat, "say One.")
    await wait_for_end(ada, chat)
    only = await ada.delete(f"{turns}/{first}")
    assert (only.status, only.json["type"]) == (409, "urn:toolyard:problem:chat-refused")
    size = await count_stored_bytes(yard, chat)
    other = (await ada.post(f"{turns}/{first}/edit", {"text": "say Other."})).json["turn"]
    await wait_for_end(ada, chat, other)
    following = await say(ada, chat, "say More.")
    await wait_for_end(ada, chat, following)
    assert (await eve.delete(f"{turns}/{other}")).status == 404
    stale = await ada.delete(f"{turns}/{other}?newest={other}")
    assert (stale.status, stale.json["type"]) == (409, "urn:toolyard:problem:chat-changed")
    assert stale.json["current"] == {"turn": following, "text": None}
    async with open_stream(ada, chat) as stream:
        response = await ada.delete(f"{turns}/{other}?newest={following}")
        assert (response.status, response.json["turn"]) == (200, first), response.text
        assert (await stream.until("switch")).data["turn"] == first
    [item] = (await ada.get(turns)).json["items"]
    assert (item["turn"], item["alternatives"]) == (first, [first])
    texts = [each["body"]["text"] for each in await of_kind(ada, chat, "user")]
    assert texts == ["say One."]
    # Only the event that switches the branch is left of it.
    assert size < await count_stored_bytes(yard, chat) < size + 20
    for path in (f"{turns}/{other}/choose", f"{turns}/{following}/retry"):
        assert (await ada.post(path)).status == 404
    assert (await ada.delete(f"{turns}/{other}")).status == 404
    await wait_for_end(ada, chat, await say(ada, chat, "say On."))
    texts = [each["body"]["text"] for each in await of_kind(ada, chat, "user")]
    assert texts == ["say One.", "say On."]


async def test_the_first_of_two_alternatives_is_deleted_while_the_second_is_shown(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    turns = f"/api/v1/chats/{chat}/turns"
    first = await say(ada, chat, "say One.")
    await wait_for_end(ada, chat)
    other = (await ada.post(f"{turns}/{first}/retry")).json["turn"]
    await wait_for_end(ada, chat, other)
    assert (await ada.delete(f"{turns}/{first}")).json["turn"] == other
    [item] = (await ada.get(turns)).json["items"]
    assert (item["turn"], item["alternatives"]) == (other, [other])


async def count_stored_bytes(yard: Any, chat: str) -> int:
    query = select(chats.c.bytes).where(chats.c.id == chat)
    return await yard.services.database.executor.read(lambda c: c.execute(query).scalar_one())


async def test_there_is_nothing_to_retry_in_an_empty_chat(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    answer = await ada.post(f"/api/v1/chats/{await begin(ada)}/retry")
    assert (answer.status, answer.json["type"]) == (409, "urn:toolyard:problem:chat-refused")


async def test_without_a_model_a_chat_runs_tools(local_site: InProcessApp) -> None:
    client = local_site.client()
    assert (await client.get("/api/v1/models")).json == {"items": [], "default": None}
    chat = await begin(client)
    answer = await client.post(f"/api/v1/chats/{chat}/messages", {"text": "Hello"})
    assert (answer.status, answer.json["type"]) == (422, "urn:toolyard:problem:no-such-model")
    turn = await run(client, chat, "demo_weekday", date="2026-07-28")
    events = await wait_for_end(client, chat, turn - 1)
    assert [each.name for each in events if each.name != "progress"] == ["run", "call", "result", "end"]
    assert events[-2].body["text"] == "2026-07-28 is a Tuesday."


async def test_the_picker_lists_visible_tools_and_reasons_for_hidden_ones(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada, agent="planner")
    answer = await ada.get(f"/api/v1/chats/{chat}/tools")
    assert answer.status == 200, answer.text
    tools = {each["name"]: each for each in answer.json["items"]}
    assert tools["demo_weekday"]["shown"] is True
    assert tools["demo_weekday"]["input_schema"]["properties"]["date"]
    assert tools["demo_count"]["shown"] is False
    assert "demo_count" in tools["demo_count"]["why"]
    await ada.patch(f"/api/v1/chats/{chat}", {"agent": None})
    tools = {each["name"]: each for each in (await ada.get(f"/api/v1/chats/{chat}/tools")).json["items"]}
    assert (tools["chat_write"]["asks"], tools["demo_weekday"]["asks"]) == (True, False)


# Approvals and questions.


async def start_waiting_chat(person: Any) -> tuple[str, str]:
    """A chat that waits for a yes, and the approval."""
    chat = await begin(person)
    await say(person, chat, 'call chat_write {"text": "x"}', "then", "results?")
    async with open_stream(person, chat) as stream:
        event_body = await stream.until("ask")
    assert event_body.body["reason"]
    return chat, event_body.body["approval"]


@pytest.mark.parametrize("yes", [True, False])
async def test_a_call_waits_for_its_answer(
    yard: Any, yes: bool, wait_until: Callable[..., Awaitable[None]]
) -> None:
    ada = (await yard.person("ada")).token
    chat, approval = await start_waiting_chat(ada)
    items = (await ada.get("/api/v1/approvals")).json["items"]
    assert [(each["id"], each["chat_id"], each["tool"]) for each in items] == [(approval, chat, "chat/write")]
    assert (items[0]["name"], items[0]["arguments"]) == ("chat_write", {"text": "x"})
    last = (await of_kind(ada, chat, "ask"))[0]["seq"]
    assert (await ada.post(f"/api/v1/approvals/{approval}", {"yes": yes})).status == 204
    events = await wait_for_end(ada, chat, last)
    answer = next(each for each in events if each.name == "answer")
    assert (answer.body["approval"], answer.body["yes"]) == (approval, yes)
    result = next(each for each in events if each.name == "result")
    assert (result.body["ok"], "wrote x" in result.body["text"]) == (yes, yes)
    assert (await ada.get("/api/v1/approvals")).json["items"] == []
    again = await ada.post(f"/api/v1/approvals/{approval}", {"yes": True})
    assert again.status in (404, 409), "each can be answered once"
    assert (await ada.get("/api/v1/grants")).json["items"] == [], "just this once"


async def test_a_yes_that_is_remembered_is_listed_and_can_be_taken_back(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, approval = await start_waiting_chat(ada)
    body = {"yes": True, "remember": {"seconds": 600, "arguments": "any", "here": True}}
    assert (await ada.post(f"/api/v1/approvals/{approval}", body)).status == 204
    await wait_for_end(ada, chat)
    grants = (await ada.get("/api/v1/grants")).json["items"]
    assert [(each["tool"], each["predicate"], each["chat_id"]) for each in grants] == [
        ("chat/write", {}, chat)
    ]
    turn = await say(ada, chat, 'call chat_write {"text": "y"}', "then", "results?")
    events = await wait_for_end(ada, chat, turn - 1)
    assert "ask" not in [each.name for each in events]
    assert (await ada.delete(f"/api/v1/grants/{grants[0]['id']}")).status == 204
    assert (await ada.delete(f"/api/v1/grants/{grants[0]['id']}")).status == 404
    turn = await say(ada, chat, 'call chat_write {"text": "z"}', "then", "results?")
    async with open_stream(ada, chat, after=turn) as stream:
        await stream.until("ask")


async def test_a_server_asks_and_gets_the_persons_reply(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    await run(ada, chat, "chat_ask")
    async with open_stream(ada, chat) as stream:
        event_body = await stream.until("question")
        assert (event_body.body["kind"], event_body.body["message"]) == ("form", "Where do you live?")
        path = f"/api/v1/chats/{chat}/questions/{event_body.body['id']}"
        assert (await ada.post(f"{path}0", {"action": "decline"})).status == 404
        answer = await ada.post(path, {"action": "accept", "content": {"city": "Oslo"}})
        assert answer.status == 204, answer.text
        assert (await stream.until("answered")).body["action"] == "accept"
        result = await stream.until("result")
    assert '"city": "Oslo"' in result.body["text"]
    assert "Oslo" not in str(await of_kind(ada, chat, "answered"))
    assert (await ada.post(path, {"action": "decline"})).status == 404, "it was answered"


# What cannot be used.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"title": "x" * 201}),
        ("", {"title": "two\nlines"}),
        ("", {"title": " "}),
        ("", {"titel": "x"}),
        ("", {"choice": "demo/weekday"}),
        ("", {"choice": [""]}),
        ("/{}/messages", {}),
        ("/{}/messages", {"text": ""}),
        ("/{}/messages", {"text": " \n"}),
        ("/{}/messages", {"text": "a\0b"}),
        ("/{}/messages", {"text": "a\ud800b"}),
        ("/{}/messages", {"text": "x" * 200_001}),
        ("/{}/messages", {"text": "x", "role": "system"}),
        ("/{}/runs", {"name": "x" * 65}),
        ("/{}/runs", {"name": "demo_weekday", "arguments": []}),
        ("/{}/runs", {"name": "demo_weekday", "arguments": {"date": "a\ud800b"}}),
        ("/{}/runs", {"name": "demo_weekday", "arguments": {"date": 2**70}}),
        ("/{}/questions/x", {"action": "maybe"}),
        ("/{}/questions/x", {"action": "accept", "content": []}),
    ],
)
async def test_invalid_values_are_refused_with_their_field(yard: Any, path: str, body: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    answer = await ada.post(f"/api/v1/chats{path.format(chat)}", body)
    assert answer.status == 422, answer.text
    assert answer.json["errors"]
    assert (await ada.get(f"/api/v1/chats/{chat}")).json["last"] == 0


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "before=x", "before=1~", "before=1.5", f"q={'x' * 201}", "q=%00"]
)
async def test_a_page_that_cannot_be_found_is_refused(yard: Any, query: str) -> None:
    assert (await (await yard.person("ada")).token.get(f"/api/v1/chats?{query}")).status == 422


async def test_an_agent_or_a_model_that_there_is_not_is_told(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    for body, status, word in (
        ({"agent": "nobody"}, 404, "no-such-agent"),
        ({"model": "nothing"}, 422, "no-such-model"),
    ):
        for answer in (
            await ada.post("/api/v1/chats", body),
            await ada.patch(f"/api/v1/chats/{chat}", body),
        ):
            assert (answer.status, answer.json["type"]) == (status, f"urn:toolyard:problem:{word}"), (
                answer.text
            )
    assert len((await ada.get("/api/v1/chats")).json["items"]) == 1


async def test_a_tool_that_there_is_not_fails_in_the_chat_and_the_chat_goes_on(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    answer = await ada.post(f"/api/v1/chats/{chat}/runs", {"name": "demo_nothing"})
    if answer.status == 202:
        events = await wait_for_end(ada, chat)
        assert not next(each for each in events if each.name == "result").body["ok"]
    else:
        assert answer.status == 404
    turn = await run(ada, chat, "demo_weekday", date="2026-07-28")
    assert (await wait_for_end(ada, chat, turn - 1))[-1].body["why"] == "done"


# Models.


async def test_models_are_listed_without_keys_and_addresses(yard: Any) -> None:
    answer = await (await yard.person("ada")).token.get("/api/v1/models")
    assert answer.status == 200
    chat_list = answer.json
    assert [(each["id"], each["provider"]) for each in chat_list["items"]] == [("fake", "openai")]
    assert chat_list["default"] == "fake"
    assert "good" not in answer.text
    assert yard.model.url not in answer.text


# Rights.

SEEING = ("/chats", "/chats/{}", "/chats/{}/events", "/chats/{}/export", "/chats/{}/tools")
SEEING = (*SEEING, "/models", "/approvals", "/grants", "/chats/{}/stream", "/chats/{}/results/1")
DOING: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/chats", {}),
    ("PATCH", "/chats/{}", {"title": "x"}),
    ("POST", "/chats/{}/messages", {"text": "Hello"}),
    ("POST", "/chats/{}/runs", {"name": "demo_weekday"}),
    ("POST", "/chats/{}/retry", None),
    ("POST", "/chats/{}/stop", None),
    ("POST", "/chats/{}/questions/x", {"action": "cancel"}),
    ("DELETE", "/grants/x", None),
    ("DELETE", "/chats/{}", None),
)


async def tokens(local: Any, scope: TokenScope) -> tuple[str, Any, Any]:
    """Ada's chat, her browser, and a token of hers that is limited."""
    ada = await local.person("ada", scope=scope)
    return await begin(ada.browser), ada.browser, ada.token


async def test_a_token_that_may_read_sees_and_does_nothing(yard: Any) -> None:
    chat, _, token = await tokens(yard, TokenScope(frozenset({Right.READ})))
    for path in SEEING:
        if not path.endswith("stream"):
            assert (await token.get(f"/api/v1{path.format(chat)}")).status in (200, 404), path
    for method, path, body in DOING:
        answer = await token.ask(method, f"/api/v1{path.format(chat)}", body)
        assert (answer.status, answer.json["detail"]) == (403, "this token does not have the right 'call'"), (
            path
        )


async def test_a_token_that_may_call_sees_nothing(yard: Any) -> None:
    chat, browser, token = await tokens(yard, TokenScope(frozenset({Right.CALL})))
    for path in SEEING:
        assert (await token.get(f"/api/v1{path.format(chat)}")).status == 403, path
    turn = await run(token, chat, "demo_weekday", date="2026-07-28")
    assert (await wait_for_end(browser, chat, turn - 1))[-1].body["why"] == "done"


async def test_a_token_for_calls_cannot_approve_its_own_calls(yard: Any) -> None:
    ada = await yard.person("ada", scope=TokenScope(frozenset({Right.READ, Right.CALL, Right.MANAGE})))
    _, approval = await start_waiting_chat(ada.token)
    answer = await ada.token.post(f"/api/v1/approvals/{approval}", {"yes": True})
    assert (answer.status, answer.json["detail"]) == (403, "this token does not have the right 'approve'")
    assert (await ada.browser.post(f"/api/v1/approvals/{approval}", {"yes": False})).status == 204


@pytest.mark.parametrize("limit", ["servers", "tools", "agents"])
async def test_a_token_that_is_limited_may_not_use_chats(yard: Any, limit: str) -> None:
    everything = frozenset(Right) - {Right.ADMIN}
    chat, browser, token = await tokens(yard, TokenScope(everything, **{limit: ("*",)}))
    yes = ("POST", "/approvals/x", {"yes": True})
    for method, path, body in (*(("GET", each, None) for each in SEEING), *DOING, yes):
        answer = await token.ask(method, f"/api/v1{path.format(chat)}", body)
        assert answer.status == 403, path
        assert "limited to certain servers, tools or agents" in answer.json["detail"]
        assert answer.json["hint"]
    assert (await browser.get(f"/api/v1/chats/{chat}")).json["last"] == 0


async def test_a_page_elsewhere_can_do_nothing_with_chats(local_site: InProcessApp) -> None:
    client = local_site.client()
    chat = await begin(client)
    everything = [("POST", "/approvals/x", {"yes": True}), *DOING, *(("GET", each, None) for each in SEEING)]
    tricks: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    ]
    for method, path, body in everything:
        for headers in tricks:
            answer = await client.ask(method, f"/api/v1{path.format(chat)}", body, headers=headers)
            assert answer.status == 403, (path, headers)
        if body is not None:
            # What a form of another page can send without asking.
            answer = await client.ask(
                method, f"/api/v1{path.format(chat)}", data=b"{}", headers={"Content-Type": "text/plain"}
            )
            assert answer.status == 415, path
    assert (await client.get(f"/api/v1/chats/{chat}")).json["last"] == 0
