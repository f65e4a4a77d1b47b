"""Anthropic, Google and OpenAI's Responses, each over its own protocol."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.tools import ToolDefinition
from tests.agents.models.conftest import KEY, FakeProvider, Make, ask

from toolyard.agents.chat.model_history import InputModalities, build_messages
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import KeyRefused, ModelError, ModelFailed, NoSuchModel, RateLimited
from toolyard.types.chat import Attachment, UserMessage

pytestmark = pytest.mark.usefixtures("leaks")

WEATHER = ToolDefinition(
    name="weather",
    description="Tells the weather.",
    parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}},
)
NAMES = ["anthropic", "google", "openai"]


def entries(fake: FakeProvider, key: str = "good") -> dict[str, dict[str, object]]:
    return {
        "anthropic": {"model": "anthropic:claude-haiku-5-5", "base_url": fake.url, "api_key": key},
        "google": {"model": "google:gemini-2.5-flash", "base_url": fake.url, "api_key": key},
        "openai": {"model": "openai-responses:gpt-5-mini", "base_url": f"{fake.url}/v1", "api_key": key},
    }


@pytest.fixture
def models(make: Make, provider_fake: FakeProvider) -> Models:
    return make(models=entries(provider_fake))


def journal(fake: FakeProvider, name: str) -> list[dict[str, Any]]:
    return [request["body"] for request in fake.journal if request["provider"] == name]


@pytest.mark.parametrize("name", NAMES)
async def test_words_arrive_with_their_usage(models: Models, name: str) -> None:
    reply = await ask(models, "say Hello over there", model_name=name, instructions="Be brief.")
    assert (reply.error, reply.text) == (None, "Hello over there")
    assert reply.pieces >= 2
    response = reply.stream.response()
    assert (response.usage.input_tokens, response.usage.output_tokens) in ((100, 20), (140, 20))
    assert response.finish_reason == "stop"


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_and_its_result_make_two_steps(
    models: Models, provider_fake: FakeProvider, name: str
) -> None:
    model_request = ModelRequest(parts=[UserPromptPart('say One moment.\ncall weather {"city": "Rom"}')])
    first = await ask(models, [model_request], model_name=name, tools=[WEATHER])
    assert first.error is None
    (call,) = first.stream.response().tool_calls
    assert (call.tool_name, call.args_as_dict()) == ("weather", {"city": "Rom"})
    reported_model_request = ModelRequest(parts=[ToolReturnPart("weather", "sunny", call.tool_call_id)])
    second = await ask(
        models,
        [model_request, first.stream.response(), reported_model_request],
        model_name=name,
        tools=[WEATHER],
    )
    assert (second.error, second.text) == (None, "It says: sunny")
    assert len(journal(provider_fake, name)) == 2


@pytest.mark.parametrize("name", ["anthropic", "google"])
async def test_reasoning_is_told_from_words(models: Models, name: str) -> None:
    reply = await ask(models, "think let me see\nsay Yes.", model_name=name)
    assert (reply.error, reply.reasoning, reply.text) == (None, "let me see", "Yes.")


@pytest.mark.parametrize("name", NAMES)
async def test_instructions_and_tools_reach_the_provider(
    models: Models, provider_fake: FakeProvider, name: str
) -> None:
    # Reasoning models accept no temperature, and the library warns about one.
    warmth = 0.5 if name == "google" else None
    await ask(models, "say x", model_name=name, instructions="Be brief.", tools=[WEATHER], temperature=warmth)
    (body,) = journal(provider_fake, name)
    assert "Be brief." in str(body)
    assert "Tells the weather." in str(body)
    assert body.get("generationConfig", {}).get("temperature") == warmth


@pytest.mark.parametrize("name", NAMES)
async def test_an_attached_picture_reaches_the_provider_in_its_form(
    models: Models, provider_fake: FakeProvider, name: str
) -> None:
    start = UserMessage("say Seen", attachments=(Attachment("f1", "x.gif", "image/gif", 6),))
    turn = TurnSnapshot(1, 1.0, start)
    messages = build_messages([turn], {}, InputModalities(images=True), {"f1": b"GIF89a"})
    await ask(models, messages, model_name=name)
    (body,) = journal(provider_fake, name)
    data, text = "R0lGODlh", str(body)
    assert "Attached picture" in text
    assert {
        "anthropic": f"'source': {{'data': '{data}', 'media_type': 'image/gif', 'type': 'base64'}}",
        "google": f"'data': '{data}', 'mime_type': 'image/gif'",
    }.get(name, f"data:image/gif;base64,{data}") in text


async def test_anthropic_requests_mark_repeated_parts_for_caching(
    models: Models, provider_fake: FakeProvider
) -> None:
    await ask(models, "say x", model_name="anthropic", instructions="Be brief.", tools=[WEATHER])
    (body,) = journal(provider_fake, "anthropic")
    assert "cache_control" in str(body)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("script", "kind", "words", "message_part"),
    [
        ("fault 403", KeyRefused, "refused the key", ""),
        ("fault 404", NoSuchModel, "has no model", ""),
        ("fault 429", RateLimited, "try again in 40 s", ""),
        ("fault 500", ModelFailed, "(500) failed", ""),
        ("fault nothing", ModelFailed, "sent an empty answer", ""),
        ("fault html", ModelFailed, "sent an unexpected response", ""),
        ("say Half\nfault die", ModelFailed, "was interrupted", "Half"),
        ("say Half\nfault cut", ModelFailed, "was interrupted", "Half"),
        ("say Half\nfault error", ModelFailed, "failed: ", "Half"),
    ],
)
async def test_a_failure_has_a_message(
    models: Models, name: str, script: str, kind: type[ModelError], words: str, message_part: str
) -> None:
    reply = await ask(models, script, model_name=name)
    assert type(reply.error) is kind, reply.error
    assert words in reply.error.cause
    assert reply.text == message_part


@pytest.mark.parametrize("name", NAMES)
async def test_a_wrong_key_is_refused_and_never_shown(
    make: Make, provider_fake: FakeProvider, name: str
) -> None:
    models = make(models=entries(provider_fake, KEY))
    error = (await ask(models, "say x", model_name=name)).error
    assert isinstance(error, KeyRefused), error
    assert KEY not in f"{error} {error!r} {error.__cause__!r}"


@pytest.mark.parametrize("name", NAMES)
async def test_a_closed_port_is_an_error_with_its_address(make: Make, name: str) -> None:
    models = make(models=entries(FakeProvider("http://127.0.0.1:9")))
    error = (await ask(models, "say x", model_name=name)).error
    assert isinstance(error, ModelFailed)
    assert "cannot reach 127.0.0.1:9" in error.cause


@pytest.mark.parametrize("name", ["anthropic", "google", "openai"])
async def test_the_cost_of_known_models_is_known(models: Models, name: str) -> None:
    reply = await ask(models, "say x", model_name=name)
    assert reply.stream.cost is not None
    assert 0 < reply.stream.cost < 1
