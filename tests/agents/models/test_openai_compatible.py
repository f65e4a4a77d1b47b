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
    heard = await ask(models, "think let me see\nsay Hello over there")
    assert (heard.error, heard.text, heard.reasoning) == (None, "Hello over there", "let me see")
    assert heard.pieces == 6
    response = heard.stream.response()
    assert (response.text, response.finish_reason, response.model_name) == (
        "Hello over there",
        "stop",
        "fake-1",
    )
    assert response.usage.input_tokens > response.usage.cache_read_tokens > 0
    assert response.usage.output_tokens == 6
    assert heard.stream.cost is None


async def test_instructions_tools_and_temperature_reach_the_model(
    models: Models, openai_fake: FakeProvider
) -> None:
    heard = await ask(models, "tools?", tools=[WEATHER], instructions="Be brief.", temperature=0.25)
    assert heard.text == "weather"
    (came,) = openai_fake.journal
    assert came["messages"][0] == {"role": "system", "content": "Be brief."}
    told = came["tools"][0]["function"]
    assert (told["description"], told["parameters"]["properties"]) == (
        "Tells the weather.",
        {"city": {"type": "string"}},
    )
    assert (came["body"]["temperature"], came["model"], came["key"]) == (0.25, "fake-1", True)


async def test_the_temperature_of_the_entry_counts_where_nobody_names_one(
    make: Make, openai_fake: FakeProvider
) -> None:
    models = make(models={"fake": entry(openai_fake, temperature=0.5)})
    await ask(models, "say a")
    await ask(models, "say b", temperature=0.0)
    assert [came["body"]["temperature"] for came in openai_fake.journal] == [0.5, 0.0]


async def test_calls_come_whole_in_their_order_also_those_that_are_no_json(models: Models) -> None:
    script = 'say one moment\ncall weather {"city": "Zürich"}\nraw weather not json\nmany 3 weather {"n": $n}'
    heard = await ask(models, script, tools=[WEATHER])
    calls = heard.stream.response().tool_calls
    assert [call.args for call in calls[:2]] == ['{"city": "Zürich"}', "not json"]
    assert [call.args for call in calls[2:]] == ['{"n": 1}', '{"n": 2}', '{"n": 3}']
    assert len({call.tool_call_id for call in calls}) == 5
    assert (heard.error, heard.text) == (None, "one moment")


async def test_two_hundred_calls_at_once_arrive(models: Models) -> None:
    heard = await ask(models, 'many 200 weather {"n": $n}', tools=[WEATHER])
    assert [call.args for call in heard.stream.response().tool_calls][-1] == '{"n": 200}'
    assert len(heard.stream.response().tool_calls) == 200


async def test_results_and_their_pictures_go_back_with_the_next_step(models: Models) -> None:
    said = ModelRequest(
        parts=[UserPromptPart('call weather {"city": "Rom"}\nthen\nresults?\nsay and\nimage?')]
    )
    first = await ask(models, [said], tools=[WEATHER])
    (call,) = first.stream.response().tool_calls
    assert isinstance(call, ToolCallPart)
    picture = BinaryContent(b"\x89PNG\r\n", media_type="image/png")
    result = ToolReturnPart(call.tool_name, ["sunny", picture], call.tool_call_id)
    second = await ask(models, [said, first.stream.response(), ModelRequest(parts=[result])], tools=[WEATHER])
    assert second.error is None
    assert "sunny" in second.text
    assert second.text.endswith("image: yes")


async def test_ollama_is_asked_like_the_others(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"llama": entry(openai_fake, model="ollama:fake-llama")})
    heard = await ask(models, 'say hm\ncall weather {"city": "Rom"}', tools=[WEATHER])
    assert (heard.error, heard.text) == (None, "hm")
    assert [call.args for call in heard.stream.response().tool_calls] == ['{"city": "Rom"}']


async def test_many_at_once_do_not_mix(models: Models) -> None:
    heard = await asyncio.gather(*(ask(models, f"say number {n} is {n}") for n in range(30)))
    assert [each.text for each in heard] == [f"number {n} is {n}" for n in range(30)]


async def test_one_client_is_kept_open_for_all_models_of_an_address(
    make: Make, openai_fake: FakeProvider
) -> None:
    models = make(models={"a": entry(openai_fake), "b": entry(openai_fake, model="openai:fake-2")})
    for name in ("a", "b", "a"):
        assert (await ask(models, "say x", wanted=name)).error is None
    assert [came["model"] for came in openai_fake.journal] == ["fake-1", "fake-2", "fake-1"]
    assert models.provider_clients.open_count == 1


# Early cancellation.


async def test_leaving_in_the_middle_ends_the_request_at_the_server(
    models: Models, openai_fake: FakeProvider, wait_until: Callable[..., Awaitable[None]]
) -> None:
    asking = models.pick(None, LOCAL_PRINCIPAL).stream(
        [ModelRequest.user_text_prompt("say a b\nhold\nsay c")], [], instructions=None, temperature=None
    )
    async with asking as stream:
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
    ("script", "kind", "words", "hint", "arrived"),
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
async def test_a_failure_says_what_happened_and_what_to_do(
    models: Models, script: str, kind: type[ModelError], words: str, hint: str, arrived: str
) -> None:
    heard = await ask(models, script)
    assert type(heard.error) is kind
    assert words in heard.error.cause
    assert hint in (heard.error.hint or "")
    assert heard.text == arrived
    if arrived:
        assert heard.stream.response().text == arrived
    assert (await ask(models, "say fine")).text == "fine"


async def test_how_long_to_wait_is_told(models: Models) -> None:
    error = (await ask(models, "fault 429 after=33")).error
    assert error.retry_after == 33


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_what_passes_is_tried_a_second_time(
    models: Models, openai_fake: FakeProvider, status: int
) -> None:
    heard = await ask(models, f"fault {status} times=1 after=0\nsay there")
    assert (heard.error, heard.text) == (None, "there")
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
    shown = (models.choices_for(LOCAL_PRINCIPAL), models.pick(None, LOCAL_PRINCIPAL))
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {shown!r}"


async def test_a_key_that_the_provider_quotes_is_taken_out(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"leaky": entry(openai_fake, model="openai:good")})
    error = (await ask(models, "say a")).error
    # The server quotes the model's name in its error; here that name equals the key.
    assert "The model `***` does not exist" in error.cause


def test_of_what_a_provider_says_no_more_is_looked_at_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def redact(text: str, secrets: object) -> str:
        looked.append(text)
        return text

    monkeypatch.setattr("toolyard.agents.models.model_ref.redact_secrets", redact)
    said = ModelRef(ProviderAccess("openai", "http://127.0.0.1/v1", "key"), "m").sanitize_message(
        "word " * 1_000_000
    )
    assert said.startswith("word word")
    assert len(looked[0]) < 100_000


async def test_an_address_where_nobody_listens(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        models = make(models={"gone": {"model": "openai:x", "base_url": f"http://127.0.0.1:{port}/v1"}})
        error = (await ask(models, "say a")).error
    assert isinstance(error, ModelFailed)
    assert f"cannot reach 127.0.0.1:{port}" in error.cause
    assert "Connect call failed" in error.cause
    assert "address" in error.hint


async def test_a_host_that_nobody_has(make: Make) -> None:
    models = make(models={"gone": {"model": "openai:x", "base_url": "http://no-such-host.invalid/v1"}})
    error = (await ask(models, "say a")).error
    assert isinstance(error, ModelFailed)
    assert "cannot reach no-such-host.invalid" in error.cause


@pytest.mark.parametrize("script", ["hold", "say a b\nhold", 'call weather {"a": 1}\nhold'])
async def test_silence_ends(make: Make, openai_fake: FakeProvider, script: str) -> None:
    models = make(models={"fake": entry(openai_fake)}, model_silence=0.3)
    heard = await ask(models, script, tools=[WEATHER])
    assert isinstance(heard.error, ModelSilent)
    assert "sent nothing for 0.3 s" in heard.error.cause
    assert "model_silence" in heard.error.hint


@pytest.mark.parametrize("order", ["say", "think", "raw weather"])
async def test_an_answer_without_end_is_ended(models: Models, openai_fake: FakeProvider, order: str) -> None:
    heard = await ask(models, f"{order} {'x' * 2_000_001}\nhold", tools=[WEATHER])
    assert isinstance(heard.error, ModelFailed)
    assert "was stopped after 2,000,000 characters" in heard.error.cause


async def test_words_that_keep_coming_are_no_silence(make: Make, openai_fake: FakeProvider) -> None:
    models = make(models={"fake": entry(openai_fake)}, model_silence=4.0)
    heard = await ask(models, f"pace 0.25\nsay {'word ' * 19}end")
    assert (heard.error, heard.pieces) == (None, 20)


async def test_a_server_that_accepts_and_says_nothing(make: Make) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    models = make(models={"mute": {"model": "openai:x", "base_url": url}}, model_silence=0.3)
    async with server:
        heard = await ask(models, "say a")
        assert isinstance(heard.error, ModelSilent)
        await models.close()


async def test_without_a_key_for_openai_itself_nothing_is_sent(make: Make) -> None:
    models = make(models={"gpt": {"model": "openai:gpt-5-mini"}})
    error = (await ask(models, "say a")).error
    assert isinstance(error, KeyRefused)
    assert "OPENAI_API_KEY" in error.hint
