"""Servers that send an elicitation during a call."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import aiohttp.web
import pytest
from tests.agents.chat.chat_harness import ME, SERVERS, ChatProcess, Model, bodies_of_kind, kinds

from toolyard.agents.chat.errors import ChatRefused, NoSuchChat
from toolyard.agents.chat.server_request_parsing import (
    MAX_SAMPLING_REQUEST_CHARACTERS,
    SamplingRequest,
    parse_elicitation,
)
from toolyard.types.call import ToolCall
from toolyard.types.chat import Chat, ChatEvent, Kind

Opening = Callable[..., Awaitable[ChatProcess]]


async def start_elicitation(process: ChatProcess, *lines: str) -> tuple[Chat, int, list[ChatEvent]]:
    """Start a turn in which a server sends an elicitation."""
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "\n".join(lines))
    events = await process.until(
        chat, turn, lambda call_events: any(e.kind is Kind.QUESTION for e in call_events)
    )
    return chat, turn, events


async def test_a_form_is_shown_to_the_person_and_the_server_gets_the_reply(process: ChatProcess) -> None:
    chat, turn, events = await start_elicitation(process, "call s_ask {}", "then", "results?")
    [question] = bodies_of_kind(events, Kind.QUESTION)
    assert (question["kind"], question["message"], question["server"]) == ("form", "Who are you?", "s")
    assert question["schema"]["required"] == ["name"]
    assert question["call"] == bodies_of_kind(events, Kind.CALL)[0]["id"]
    await process.chats.answer_question(ME, chat.id, question["id"], "accept", {"name": "Ann"})
    events = await process.over(chat, turn)
    assert json.loads(bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]) == {
        "action": "accept",
        "content": {"name": "Ann"},
    }
    # The page learns that the question was answered, but not the answer.
    assert bodies_of_kind(events, Kind.QUESTION_ANSWER) == [{"id": question["id"], "action": "accept"}]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_can_be_declined(process: ChatProcess, action: str) -> None:
    chat, turn, events = await start_elicitation(process, "call s_ask {}", "then", "results?")
    await process.chats.answer_question(
        ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], action, {"name": "Ann"}
    )
    events = await process.over(chat, turn)
    assert json.loads(bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]) == {"action": action}


async def test_a_person_can_be_sent_to_a_page_and_nowhere_else(process: ChatProcess) -> None:
    chat, turn, events = await start_elicitation(
        process, 'call s_ask {"url": "https://example.com/x"}', "then", "results?"
    )
    [question] = bodies_of_kind(events, Kind.QUESTION)
    assert (question["kind"], question["url"]) == ("url", "https://example.com/x")
    await process.chats.answer_question(ME, chat.id, question["id"], "accept", None)
    events = await process.over(chat, turn)
    assert json.loads(bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]) == {"action": "accept"}
    events = await process.say(chat, 'call s_ask {"url": "javascript:alert(1)"}', "then", "results?")
    assert json.loads(bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]) == {"action": "cancel"}
    assert not bodies_of_kind(events, Kind.QUESTION)


async def ask_for_page(request: aiohttp.web.Request) -> aiohttp.web.Response:
    """A modern server. Its tool requests that the person opens the page in the argument ``url``."""
    message = await request.json()
    params = message.get("params") or {}
    result: dict[str, Any] = {"resultType": "complete"}
    match message["method"]:
        case "server/discover":
            info = {"name": "remote", "version": "1"}
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            tool = {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            result |= {"tools": [tool], "ttlMs": 60_000, "cacheScope": "private"}
        case "tools/call" if "inputResponses" not in params:
            page = {"mode": "url", "message": "Go there", "url": params["arguments"]["url"]}
            input_requests = {
                "page": {"method": "elicitation/create", "params": {**page, "elicitationId": "1"}}
            }
            result = {"resultType": "input_required", "inputRequests": input_requests, "requestState": "s"}
        case _:
            text = json.dumps(params.get("inputResponses"))
            result["content"] = [{"type": "text", "text": text}]
    return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.fixture
async def remote() -> AsyncIterator[str]:
    app = aiohttp.web.Application()
    app.router.add_post("/mcp", ask_for_page)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    await runner.cleanup()


async def test_a_remote_server_cannot_open_pages_of_the_users_own_network(
    open_chats: Opening, remote: str
) -> None:
    process = await open_chats(
        servers={"s": {"url": remote, "privateAddresses": False}}, guard_allow=["127.0.0.1"]
    )
    chat = await process.chat()
    for host in (
        "127.0.0.1:8080",
        "localhost",
        "192.168.1.1",
        "[::1]",
        "2130706433",
        "\uff11\uff12\uff17.0.0.1",
    ):
        call = f"call s_ask {json.dumps({'url': f'http://{host}/reboot'})}"
        events = await process.say(chat, call, "then", "say Ok.")
        assert not bodies_of_kind(events, Kind.QUESTION), host
        assert '"action": "cancel"' in bodies_of_kind(events, Kind.RESULT)[0]["text"]
    _, _, events = await start_elicitation(process, 'call s_ask {"url": "https://example.com/x"}')
    assert bodies_of_kind(events, Kind.QUESTION)[0]["url"] == "https://example.com/x"


async def test_a_server_of_this_network_may_send_people_to_its_pages(
    open_chats: Opening, remote: str
) -> None:
    process = await open_chats(servers={"s": {"url": remote}})
    _, _, events = await start_elicitation(process, 'call s_ask {"url": "http://localhost:8080/x"}')
    assert bodies_of_kind(events, Kind.QUESTION)[0]["url"] == "http://localhost:8080/x"


async def test_an_answer_given_elsewhere_arrives(open_chats: Opening) -> None:
    here, other_chats = await open_chats(), await open_chats()
    chat, turn, events = await start_elicitation(here, "call s_ask {}", "then", "results?")
    await other_chats.chats.answer_question(
        ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], "accept", {"name": "Bo"}
    )
    events = await here.over(chat, turn)
    assert '"Bo"' in bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]


async def test_an_unanswered_question_is_cancelled(open_chats: Opening) -> None:
    process = await open_chats(rules={"question_timeout_seconds": 0.2})
    chat, turn, _ = await start_elicitation(process, "call s_ask {}", "then", "results?")
    events = await process.over(chat, turn)
    assert json.loads(bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]) == {"action": "cancel"}
    assert bodies_of_kind(events, Kind.QUESTION_ANSWER)[0]["action"] == "cancel"


async def test_a_question_ends_with_its_turn(process: ChatProcess) -> None:
    chat, turn, events = await start_elicitation(process, "call s_ask {}")
    await process.chats.stop_turn(ME, chat.id)
    events = await process.over(chat, turn)
    assert kinds(events) == ["user", "said", "call", "question", "answered", "result", "end"]
    with pytest.raises(NoSuchChat):
        await process.chats.answer_question(
            ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], "accept", {}
        )


async def test_a_question_of_a_call_without_a_chat_is_cancelled(process: ChatProcess) -> None:
    result = await process.core.call_path.call(ToolCall("s_ask"))
    assert json.loads(result.text) == {"action": "cancel"}


async def test_answers_are_checked(process: ChatProcess) -> None:
    chat, turn, events = await start_elicitation(process, "call s_ask {}")
    id = bodies_of_kind(events, Kind.QUESTION)[0]["id"]
    with pytest.raises(ChatRefused):
        await process.chats.answer_question(ME, chat.id, id, "perhaps", {})
    with pytest.raises(ChatRefused):
        await process.chats.answer_question(ME, chat.id, id, "accept", {"name": "x" * 70_000})
    with pytest.raises(NoSuchChat):
        await process.chats.answer_question(ME, chat.id, "another", "accept", {})
    await process.chats.answer_question(ME, chat.id, id, "accept", {"name": "Ann"})
    await process.over(chat, turn)
    with pytest.raises(NoSuchChat):
        await process.chats.answer_question(ME, chat.id, id, "accept", {"name": "Eve"})


async def test_a_server_of_the_modern_era_asks_in_rounds_of_the_call_it_is_about(open_chats: Opening) -> None:
    sdk = {"command": sys.executable, "args": [str(SERVERS / "sdk_server.py"), "stdio"]}
    process = await open_chats(servers={"s": sdk})
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "call s_greet {}\ncall s_greet {}\nthen\nresults?")
    events = await process.until(
        chat, turn, lambda call_events: len(bodies_of_kind(call_events, Kind.QUESTION)) == 2
    )
    questions = {body["call"]: body["id"] for body in bodies_of_kind(events, Kind.QUESTION)}
    calls = [body["id"] for body in bodies_of_kind(events, Kind.CALL)]
    assert sorted(questions) == sorted(calls)
    for call, name in zip(calls, ("Ann", "Bo"), strict=True):
        await process.chats.answer_question(ME, chat.id, questions[call], "accept", {"name": name})
    events = await process.over(chat, turn)
    text = bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"]
    assert text == "hello Ann after round-one | hello Bo after round-one"


# Sampling.


async def test_a_model_answers_a_server_if_the_person_allows_it(process: ChatProcess, model: Model) -> None:
    chat, turn, events = await start_elicitation(
        process, 'call s_think {"text": "call s_put {}"}', "then", "say Ok."
    )
    [question] = bodies_of_kind(events, Kind.QUESTION)
    assert question["kind"] == "sampling"
    assert question["request"] == "instructions: Be brief.\n\nserver: call s_put {}"
    before = len(await model.journal())
    await process.chats.answer_question(ME, chat.id, question["id"], "accept", None)
    events = await process.over(chat, turn)
    model_request = (await model.journal())[before]
    assert model_request["tools"] == []
    assert [m["content"] for m in model_request["messages"]] == ["Be brief.", "call s_put {}"]
    # A model that requests a tool anyway gets none: the request is for text.
    assert not any(line.startswith("put") for line in process.calls())
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"


async def test_the_models_reply_reaches_the_server(process: ChatProcess) -> None:
    chat, turn, events = await start_elicitation(
        process, 'call s_think {"text": "Hello?"}', "then", "say Ok."
    )
    await process.chats.answer_question(
        ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], "accept", None
    )
    events = await process.over(chat, turn)
    answer = json.loads(bodies_of_kind(events, Kind.RESULT)[0]["text"])
    assert answer["content"] == {"type": "text", "text": "You said: Hello?"}
    assert (answer["role"], answer["model"], answer["stopReason"]) == ("assistant", "fake-1", "endTurn")
    assert len(bodies_of_kind(events, Kind.USAGE)) == 3


@pytest.mark.parametrize(("limit", "status"), [(8_192, 50), (20, 20)])
async def test_an_answer_to_a_server_has_the_length_that_it_requests_and_a_limit(
    open_chats: Opening, model: Model, limit: int, status: int
) -> None:
    process = await open_chats(rules={"max_sampling_tokens": limit})
    chat, turn, events = await start_elicitation(
        process, 'call s_think {"text": "Hello?"}', "then", "say Ok."
    )
    before = len(await model.journal())
    await process.chats.answer_question(
        ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], "accept", None
    )
    await process.over(chat, turn)
    body = (await model.journal())[before]["body"]
    assert body.get("max_completion_tokens", body.get("max_tokens")) == status


async def test_tokens_that_servers_use_count_for_the_limit_of_a_turn(
    open_chats: Opening, model: Model
) -> None:
    # The request of the turn itself has about 21,000 tokens, and each request from the server 10,000.
    process = await open_chats(rules={"token_budget": 25_000})
    calls = [f"call s_think {json.dumps({'text': str(number) + 'x' * 40_000})}" for number in (1, 2)]
    chat, turn, events = await start_elicitation(process, *calls, "then", "say Ok.")
    events = await process.until(
        chat, turn, lambda usage_events: len(bodies_of_kind(usage_events, Kind.QUESTION)) == 2
    )
    before = len(await model.journal())
    # Over stdio both questions may belong to the second call, and its end would cancel the other question.
    questions = sorted(
        bodies_of_kind(events, Kind.QUESTION), key=lambda question: "2xx" in question["request"]
    )
    for number, question in enumerate(questions, 1):
        await process.chats.answer_question(ME, chat.id, question["id"], "accept", None)
        events = await process.until(
            chat, turn, lambda usage_events, n=number: len(bodies_of_kind(usage_events, Kind.RESULT)) == n
        )
    first, second = (body["text"] for body in bodies_of_kind(events, Kind.RESULT))
    assert "You said" in first
    assert "tokens; the limit is 25,000" in second
    events = await process.over(chat, turn)
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "limit"
    assert len(await model.journal()) == before + 1


async def test_a_model_that_the_person_does_not_allow_is_not_asked(
    process: ChatProcess, model: Model
) -> None:
    chat, turn, events = await start_elicitation(
        process, 'call s_think {"text": "Hello?"}', "then", "say Ok."
    )
    before = len(await model.journal())
    await process.chats.answer_question(
        ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], "decline", None
    )
    events = await process.over(chat, turn)
    assert "did not allow this request to the model" in bodies_of_kind(events, Kind.RESULT)[0]["text"]
    assert len(await model.journal()) == before + 1


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": "x"},
        {"message": "x", "requestedSchema": "no schema"},
        {"message": "x", "requestedSchema": {"type": "object", "n": 2**70}},
        {"message": "x", "requestedSchema": {"type": "object", "description": "x" * 70_000}},
        {"mode": "url", "url": "file:///etc/passwd"},
        {"mode": "url", "url": "https://"},
        {"mode": "url", "url": "http://[broken"},
        {"mode": "url", "url": 7},
        {"mode": "url", "url": "https://example.com/\ud800"},
        {"mode": "url", "url": r"https://evil.example\@good.example/"},
        {"mode": "url", "url": "https://evil.example\t@good.example/"},
        {"mode": "url"},
    ],
)
def test_questions_that_cannot_be_shown_are_refused(params: dict[str, Any]) -> None:
    assert parse_elicitation(params) is None


async def test_approvals_cover_only_visible_content(process: ChatProcess, model: Model) -> None:
    words = json.dumps({"text": "Hello? " + "x" * MAX_SAMPLING_REQUEST_CHARACTERS + " and what nobody saw"})
    before = len(await model.journal())
    chat = await process.chat()
    events = await process.say(chat, f"call s_think {words}", "then", "say Ok.")
    assert not bodies_of_kind(events, Kind.QUESTION)
    assert "can be shown for approval" in bodies_of_kind(events, Kind.RESULT)[0]["text"]
    assert len(await model.journal()) == before + 2


def test_requests_of_many_megabytes_do_not_block_the_loop() -> None:
    text = "\u00e9" * 30_000_000
    message = {"role": "user", "content": {"type": "text", "text": text}}
    start = time.thread_time()
    assert parse_elicitation({"message": "x", "requestedSchema": {"a": text}}) is None
    assert SamplingRequest.is_too_long({"messages": [message]})
    assert time.thread_time() - start < 0.05


def test_numbers_and_nesting_beyond_all_bounds_are_read() -> None:
    nested_value: Any = "x"
    for _ in range(900):
        nested_value = [nested_value]
    message = {"role": "user", "content": nested_value}
    request = SamplingRequest.from_params({"messages": [message], "maxTokens": 10**400, "temperature": 1e308})
    assert (request.messages, request.max_tokens) == (((False, "(nothing)"),), None)
    assert SamplingRequest.from_params({"maxTokens": 1e308}).max_tokens == 2**31


def test_every_sampling_request_is_read_as_texts() -> None:
    request = SamplingRequest.from_params(
        {
            "systemPrompt": 7,
            "temperature": float("nan"),
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a\0"}, {"type": "image", "data": "x"}],
                },
                {"role": "assistant", "content": {"type": "text", "text": "b"}},
                "nonsense",
                {"role": "user"},
            ],
            "tools": [{"name": "put"}],
        }
    )
    assert request.messages == (
        (False, "a\ufffd\n(image)"),
        (True, "b"),
        (False, "(nothing)"),
        (False, "(nothing)"),
    )
    assert (request.system_prompt, request.temperature) == (None, None)
    assert SamplingRequest.from_params({"messages": "nonsense"}).messages == ()


FLOOD = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "elicitation_flood_server.py")]}


async def test_a_server_that_asks_many_questions_at_once_gets_few_of_them_shown(open_chats: Opening) -> None:
    process = await open_chats(
        servers={"s": FLOOD}, rules={"question_timeout_seconds": 0.5, "max_open_questions": 4}
    )
    chat = await process.chat()
    events = await process.say(chat, 'call s_flood {"times": 40, "at_once": true}', "then", "results?")
    assert len(bodies_of_kind(events, Kind.QUESTION)) == 4
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "40", (
        "the others were cancelled, not left without answer"
    )


async def test_a_server_that_asks_again_and_again_is_ignored_after_a_while(open_chats: Opening) -> None:
    process = await open_chats(
        servers={"s": FLOOD}, rules={"question_timeout_seconds": 0.05, "max_questions_per_call": 3}
    )
    chat = await process.chat()
    events = await process.say(chat, 'call s_flood {"times": 10}', "then", "results?")
    assert len(bodies_of_kind(events, Kind.QUESTION)) == 3


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "https://accounts.example.com@evil.example/",
        "https://accounts.example.com\\@evil.example/",
        "https://a b.example/",
        "https://example.com/" + "x" * 5_000,
    ],
)
def test_lookalike_addresses_are_not_opened(url: str) -> None:
    assert parse_elicitation({"mode": "url", "message": "Sign in", "url": url}) is None


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u3000", "\U000e0041"])
def test_hidden_characters_of_an_address_are_encoded(hidden: str) -> None:
    elicitation = parse_elicitation(
        {"mode": "url", "url": f"https://example.com/a{hidden}b?c={hidden}\u00e9"}
    )
    assert elicitation is not None
    quoted_text = quote(hidden)
    assert elicitation.url == f"https://example.com/a{quoted_text}b?c={quoted_text}\u00e9"


def test_letters_of_another_alphabet_in_a_host_are_shown_encoded() -> None:
    elicitation = parse_elicitation(
        {"mode": "url", "message": "Sign in", "url": "https://p\u0430ypal.example:8443/x?y=\u00e9"}
    )
    assert elicitation is not None
    assert (elicitation.url or "").startswith("https://xn--pypal-4ve.example:8443/x?y=")
