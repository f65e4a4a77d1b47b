"""An OpenAI-compatible API, as of Ollama, llama.cpp and vLLM: answers and failures."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition
from tests.agents.models.conftest import KEY, FakeProvider, Make, ask

from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import (
    KeyRefused,
    ModelError,
    ModelFailed,
    ModelSilent,
    NoSuchModel,
    RateLimited,
)
from toolyard.agents.models.model_ref import ModelRef, ProviderAccess
from toolyard.types.account import LOCAL_PRINCIPAL

pytestmark = pytest.mark.usefixtures("leaks")

WEATHER = ToolDefinition(
    name="weather",
    description="Tells the weather.",
    parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}},
)


def entry(fake: FakeProvider, **more: object) -> dict[str, object]:
    return {"model": "openai:fake-1", "base_url": f"{fake.url}/v1", "api_key": "good", **more}


@pytest.fixture
def models(make: Make, openai_fake: FakeProvider) -> Models:
    return make(models={"fake": entry(openai_fake)})


# Answers.


@pytest.mark.both_loops
async def test_words_come_one_by_one_and_the_whole_is_there_at_the_end(models: Models) -> None:
    reply = await ask(models, "think let me see\nsay Hello over there")
    assert (reply.error, reply.text, reply.reasoning) == (None, "Hello over there", "let me see")
    assert reply.pieces == 6
    response = reply.stream.response()
    assert (response.text, response.finish_reason, response.model_name) == (
        "Hello over there",
        "stop",
        "fake-1",
    )
    assert response.usage.input_tokens > response.usage.cache_read_tokens > 0
    assert response.usage.output_tokens == 6
    assert reply.stream.cost is None


async def test_instructions_tools_and_temperature_reach_the_model(
    models: Models, openai_fake: FakeProvider
) -> None:
    reply = await ask(models, "tools?", tools=[WEATHER], instructions="Be brief.", temperature=0.25)
    assert reply.text == "weather"
    (journal,) = openai_fake.journal
    assert journal["messages"][0] == {"role": "system", "content": "Be brief."}
    function = journal["tools"][0]["function"]
    assert (function["description"], function["parameters"]["properties"]) == (
        "Tells the weather.",
        {"city": {"type": "string"}},
    )
    assert (journal["body"]["temperature"], journal["model"], journal["key"]) == (0.25, "fake-1", True)


async def test_the_temperature_of_the_entry_is_the_default(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"fake": entry(openai_fake, temperature=0.5)})
    await ask(models, "say a")
    await ask(models, "say b", temperature=0.0)
    assert [request["body"]["temperature"] for request in openai_fake.journal] == [0.5, 0.0]


async def test_calls_are_complete_and_ordered_even_with_arguments_that_are_not_json(models: Models) -> None:
    script = 'say one moment\ncall weather {"city": "Zürich"}\nraw weather not json\nmany 3 weather {"n": $n}'
    reply = await ask(models, script, tools=[WEATHER])
    calls = reply.stream.response().tool_calls
    assert [call.args for call in calls[:2]] == ['{"city": "Zürich"}', "not json"]
    assert [call.args for call in calls[2:]] == ['{"n": 1}', '{"n": 2}', '{"n": 3}']
    assert len({call.tool_call_id for call in calls}) == 5
    assert (reply.error, reply.text) == (None, "one moment")


async def test_two_hundred_calls_at_once_arrive(models: Models) -> None:
    reply = await ask(models, 'many 200 weather {"n": $n}', tools=[WEATHER])
    assert [call.args for call in reply.stream.response().tool_calls][-1] == '{"n": 200}'
    assert len(reply.stream.response().tool_calls) == 200


async def test_results_and_their_pictures_go_back_with_the_next_step(models: Models) -> None:
    model_request = ModelRequest(
        parts=[UserPromptPart('call weather {"city": "Rom"}\nthen\nresults?\nsay and\nimage?')]
    )
    first = await ask(models, [model_request], tools=[WEATHER])
    (call,) = first.stream.response().tool_calls
    assert isinstance(call, ToolCallPart)
    picture = BinaryContent(b"\x89PNG\r\n", media_type="image/png")
    result = ToolReturnPart(call.tool_name, ["sunny", picture], call.tool_call_id)
    second = await ask(
        models, [model_request, first.stream.response(), ModelRequest(parts=[result])], tools=[WEATHER]
    )
    assert second.error is None
    assert "sunny" in second.text
    assert second.text.endswith("image: yes")


async def test_ollama_is_asked_like_the_others(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"llama": entry(openai_fake, model="ollama:fake-llama")})
    reply = await ask(models, 'say hm\ncall weather {"city": "Rom"}', tools=[WEATHER])
    assert (reply.error, reply.text) == (None, "hm")
    assert [call.args for call in reply.stream.response().tool_calls] == ['{"city": "Rom"}']


async def test_many_at_once_do_not_mix(models: Models) -> None:
    results = await asyncio.gather(*(ask(models, f"say number {n} is {n}") for n in range(30)))
    assert [each.text for each in results] == [f"number {n} is {n}" for n in range(30)]


async def test_one_client_is_kept_open_for_all_models_of_an_address(
    make: Make, openai_fake: FakeProvider
) -> None:
    models = make(models={"a": entry(openai_fake), "b": entry(openai_fake, model="openai:fake-2")})
    for name in ("a", "b", "a"):
        assert (await ask(models, "say x", model_name=name)).error is None
    assert [request["model"] for request in openai_fake.journal] == ["fake-1", "fake-2", "fake-1"]
    assert models.provider_clients.open_count == 1


# Early cancellation.


async def test_leaving_in_the_middle_ends_the_request_at_the_server(
    models: Models, openai_fake: FakeProvider, wait_until: Callable[..., Awaitable[None]]
) -> None:
    model_stream = models.pick(None, LOCAL_PRINCIPAL).stream(
        [ModelRequest.user_text_prompt("say a b\nhold\nsay c")], [], instructions=None, temperature=None
    )
    async with model_stream as stream:
        assert [(await anext(aiter(stream))).delta for _ in range(2)] == ["a", " b"]
        assert stream.response().text == "a b"
    await wait_until(lambda: openai_fake.journal[0]["ended"] == "aborted")


async def test_a_cancelled_task_ends_the_request_too(
    models: Models, openai_fake: FakeProvider, wait_until: Callable[..., Awaitable[None]]
) -> None:
    task = asyncio.create_task(ask(models, "hold"))
    await wait_until(lambda: len(openai_fake.journal) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: openai_fake.journal[0]["ended"] == "aborted")


# Failures.


@pytest.mark.parametrize(
    ("script", "kind", "words", "hint", "message_part"),
    [
        ("fault 401", KeyRefused, "refused the key", "api_key", ""),
        ("fault 403", KeyRefused, "refused the key", "api_key", ""),
        ("fault 404", NoSuchModel, "has no model 'fake-1'", "name", ""),
        ("fault 429 after=20", RateLimited, "try again in 20 s", "wait", ""),
        ("fault 400", ModelFailed, "refused the request", "", ""),
        ("fault 500", ModelFailed, "(500) failed: you asked for a 500", "try again later", ""),
        ("fault 503", ModelFailed, "(503) failed", "try again later", ""),
        ("fault html", ModelFailed, "sent an unexpected response", "/v1", ""),
        ("say a b\nfault die", ModelFailed, "was interrupted", "retry", "a bHalf an ans"),
        ("say a b\nfault cut", ModelFailed, "without a finish", "retry", "a b"),
        ("fault nothing", ModelFailed, "sent an empty answer", "retry", ""),
        ("think a b\nfault nothing", ModelFailed, "sent an empty answer", "retry", ""),
        ("say a b\nfault garbage", ModelFailed, "sent an unexpected response", "", "a b"),
        ("say a b\nfault error", ModelFailed, "the engine is overloaded", "try again later", "a b"),
    ],
)
async def test_a_failure_has_a_message_and_a_hint(
    models: Models, script: str, kind: type[ModelError], words: str, hint: str, message_part: str
) -> None:
    reply = await ask(models, script)
    assert type(reply.error) is kind
    assert words in reply.error.cause
    assert hint in (reply.error.hint or "")
    assert reply.text == message_part
    if message_part:
        assert reply.stream.response().text == message_part
    assert (await ask(models, "say fine")).text == "fine"


async def test_how_long_to_wait_is_told(models: Models) -> None:
    error = (await ask(models, "fault 429 after=33")).error
    assert error.retry_after == 33


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_transient_failures_are_retried_once(
    models: Models, openai_fake: FakeProvider, status: int
) -> None:
    reply = await ask(models, f"fault {status} times=1 after=0\nsay there")
    assert (reply.error, reply.text) == (None, "there")
    assert len(openai_fake.journal) == 2


@pytest.mark.parametrize(
    ("script", "requests"),
    [
        ("fault 500 after=0", 2),
        ("fault 429 after=0", 2),
        ("fault 429 after=60", 1),
        ("fault 401", 1),
        ("fault 400", 1),
        ("say a\nfault die", 1),
        ("say a\nfault error", 1),
    ],
)
async def test_tries_are_few_and_none_follows_a_first_word(
    models: Models, openai_fake: FakeProvider, script: str, requests: int
) -> None:
    assert isinstance((await ask(models, script)).error, ModelError)
    assert len(openai_fake.journal) == requests


async def test_a_model_that_the_address_does_not_have(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"other": entry(openai_fake, model="openai:other")})
    error = (await ask(models, "say a")).error
    assert isinstance(error, NoSuchModel)
    assert "The model `other` does not exist" in error.cause


async def test_a_wrong_key_is_refused_and_never_shown(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"fake": entry(openai_fake, api_key=KEY)})
    error = (await ask(models, "say a")).error
    assert isinstance(error, KeyRefused)
    model_choices = (models.choices_for(LOCAL_PRINCIPAL), models.pick(None, LOCAL_PRINCIPAL))
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {model_choices!r}"


async def test_a_key_that_the_provider_quotes_is_taken_out(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"leaky": entry(openai_fake, model="openai:good")})
    error = (await ask(models, "say a")).error
    # The server quotes the model's name in its error; here that name equals the key.
    assert "The model `***` does not exist" in error.cause


def test_error_bodies_are_read_only_up_to_the_shown_length(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved_hosts: list[str] = []

    def redact(text: str, secrets: object) -> str:
        resolved_hosts.append(text)
        return text

    monkeypatch.setattr("toolyard.agents.models.model_ref.redact_secrets", redact)
    safe_text = ModelRef(ProviderAccess("openai", "http://127.0.0.1/v1", "key"), "m").sanitize_message(
        "word " * 1_000_000
    )
    assert safe_text.startswith("word word")
    assert len(resolved_hosts[0]) < 100_000


async def test_a_closed_port_is_an_error_with_its_address(make: Make) -> None:
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        port = busy_socket.getsockname()[1]
        models = make(models={"gone": {"model": "openai:x", "base_url": f"http://127.0.0.1:{port}/v1"}})
        error = (await ask(models, "say a")).error
    assert isinstance(error, ModelFailed)
    assert f"cannot reach 127.0.0.1:{port}" in error.cause
    assert "Connect call failed" in error.cause
    assert "address" in error.hint


async def test_an_unknown_host_is_an_error(make: Make) -> None:
    models = make(models={"gone": {"model": "openai:x", "base_url": "http://no-such-host.invalid/v1"}})
    error = (await ask(models, "say a")).error
    assert isinstance(error, ModelFailed)
    assert "cannot reach no-such-host.invalid" in error.cause


@pytest.mark.parametrize("script", ["hold", "say a b\nhold", 'call weather {"a": 1}\nhold'])
async def test_silence_ends(make: Make, openai_fake: FakeProvider, script: str) -> None:
    models = make(models={"fake": entry(openai_fake)}, model_silence=0.3)
    reply = await ask(models, script, tools=[WEATHER])
    assert isinstance(reply.error, ModelSilent)
    assert "sent nothing for 0.3 s" in reply.error.cause
    assert "model_silence" in reply.error.hint


@pytest.mark.parametrize("order", ["say", "think", "raw weather"])
async def test_an_answer_without_end_is_ended(models: Models, openai_fake: FakeProvider, order: str) -> None:
    reply = await ask(models, f"{order} {'x' * 2_000_001}\nhold", tools=[WEATHER])
    assert isinstance(reply.error, ModelFailed)
    assert "was stopped after 2,000,000 characters" in reply.error.cause


async def test_a_slow_steady_stream_does_not_time_out(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"fake": entry(openai_fake)}, model_silence=4.0)
    reply = await ask(models, f"pace 0.25\nsay {'word ' * 19}end")
    assert (reply.error, reply.pieces) == (None, 20)


async def test_a_server_that_accepts_and_says_nothing(make: Make) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    models = make(models={"mute": {"model": "openai:x", "base_url": url}}, model_silence=0.3)
    async with server:
        reply = await ask(models, "say a")
        assert isinstance(reply.error, ModelSilent)
        await models.close()


async def test_without_a_key_for_openai_itself_nothing_is_sent(make: Make) -> None:
    models = make(models={"gpt": {"model": "openai:gpt-5-mini"}})
    error = (await ask(models, "say a")).error
    assert isinstance(error, KeyRefused)
    assert "OPENAI_API_KEY" in error.hint
