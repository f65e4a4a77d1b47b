"""The available models, the selected one, and the use of its key. No model is called here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agents.models.conftest import KEY, Make

from toolyard.agents.models.available_models import Models, PickedModel
from toolyard.agents.models.errors import ModelFailed, NoSuchModel
from toolyard.agents.models.model_ref import can_take_audio, can_take_images
from toolyard.config import load_settings
from toolyard.types.account import LOCAL_PRINCIPAL


async def access(models: Models, model_name: str | None = None) -> tuple[str | None, str | None]:
    """Return the address and the key with which a model would be called."""
    _, model_ref = await models.pick(model_name, LOCAL_PRINCIPAL).get_model()
    return model_ref.access.base_url, model_ref.access.api_key


def of(tmp_path: Path, toml: str = "", **env: str) -> Models:
    (tmp_path / "toolyard.toml").write_text(toml)
    return Models.from_settings(load_settings(tmp_path, env=env))


# Available models.


async def test_without_settings_no_model_is_available(make: Make) -> None:
    models = make()
    assert (models.choices_for(LOCAL_PRINCIPAL), models.default_for(LOCAL_PRINCIPAL)) == ((), None)
    with pytest.raises(NoSuchModel, match="no model is configured") as exc_info:
        models.pick(None, LOCAL_PRINCIPAL)
    assert "set model" in (exc_info.value.hint or "")


async def test_a_key_alone_configures_no_model(tmp_path: Path) -> None:
    models = of(tmp_path, OPENAI_API_KEY=KEY)
    assert (models.choices_for(LOCAL_PRINCIPAL), models.default_for(LOCAL_PRINCIPAL)) == ((), None)


async def test_listed_models_can_be_picked_in_their_order_and_the_first_is_the_default(
    tmp_path: Path,
) -> None:
    models = of(
        tmp_path,
        """
[models.fast]
model = "openai:gpt-5-mini"
label = "The fast one"
[models.house]
model = "openai:llama"
base_url = "http://user:pw@10.0.0.5:8000/v1/"
api_key = "abcd"
sees = true
hears = true
""",
    )
    assert [
        (choice.id, choice.label, choice.sees, choice.hears) for choice in models.choices_for(LOCAL_PRINCIPAL)
    ] == [
        ("fast", "The fast one", True, False),
        ("house", "house", True, True),
    ]
    assert [choice.base_url for choice in models.choices_for(LOCAL_PRINCIPAL)] == [
        None,
        "http://***@10.0.0.5:8000/v1",
    ]
    assert models.default_for(LOCAL_PRINCIPAL) == "fast"
    assert models.pick("house", LOCAL_PRINCIPAL).choice == models.choices_for(LOCAL_PRINCIPAL)[1]
    assert (
        models.pick(None, LOCAL_PRINCIPAL).choice.id == models.pick("", LOCAL_PRINCIPAL).choice.id == "fast"
    )


async def test_the_setting_model_is_the_default_and_stands_first(tmp_path: Path) -> None:
    toml = 'model = "anthropic:claude-x"\nmodel_api_key = "mine"\n[models.other]\nmodel = "openai:x"\n'
    models = of(tmp_path, toml)
    assert [choice.id for choice in models.choices_for(LOCAL_PRINCIPAL)] == ["anthropic:claude-x", "other"]
    assert models.default_for(LOCAL_PRINCIPAL) == "anthropic:claude-x"
    assert await access(models) == (None, "mine")
    assert await access(models, "anthropic:claude-y") == (None, "mine")


async def test_the_setting_model_may_name_a_listed_one(tmp_path: Path) -> None:
    toml = 'model = "b"\n[models.a]\nmodel = "openai:x"\n[models.b]\nmodel = "openai:y"\n'
    models = of(tmp_path, toml)
    assert (models.default_for(LOCAL_PRINCIPAL), models.pick(None, LOCAL_PRINCIPAL).choice.id) == ("b", "b")
    assert [choice.id for choice in models.choices_for(LOCAL_PRINCIPAL)] == ["a", "b"]


async def test_models_from_the_environment_alone(tmp_path: Path) -> None:
    text = '{"house": {"model": "openai:llama", "base_url": "http://10.0.0.5/v1", "api_key": "abcd"}}'
    models = of(tmp_path, TOOLYARD_MODELS=text, TOOLYARD_MODEL="house")
    assert await access(models) == ("http://10.0.0.5/v1", "abcd")


# The selected model.


@pytest.mark.parametrize(
    ("variable", "model_name"),
    [
        ("OPENAI_API_KEY", "openai:gpt-5"),
        ("OPENAI_API_KEY", "openai-responses:gpt-5"),
        ("ANTHROPIC_API_KEY", "anthropic:claude-x"),
        ("GOOGLE_API_KEY", "google:gemini-x"),
        ("GEMINI_API_KEY", "google:gemini-x"),
        ("TOOLYARD_OPENAI_API_KEY", "openai:gpt-5"),
    ],
)
async def test_a_provider_with_a_key_needs_no_entry(tmp_path: Path, variable: str, model_name: str) -> None:
    models = of(tmp_path, **{variable: KEY})
    assert await access(models, model_name) == (None, KEY)
    assert models.pick(model_name, LOCAL_PRINCIPAL).choice.id == model_name
    with pytest.raises(NoSuchModel, match="no API key is set for its provider") as exc_info:
        of(tmp_path).pick(model_name, LOCAL_PRINCIPAL)
    assert "_API_KEY" in (exc_info.value.hint or "")


async def test_ollama_needs_neither_an_entry_nor_a_key(make: Make) -> None:
    assert make().pick("ollama:llama3.2", LOCAL_PRINCIPAL).choice.provider == "ollama"


@pytest.mark.parametrize("model_name", ["gpt-5", "nobody:gpt-5", "openai:", ":", "fasst", "fast "])
async def test_an_invalid_model_name_is_refused_with_a_hint(tmp_path: Path, model_name: str) -> None:
    models = of(tmp_path, '[models.fast]\nmodel = "openai:x"\n', OPENAI_API_KEY=KEY)
    with pytest.raises(NoSuchModel) as exc_info:
        models.pick(model_name, LOCAL_PRINCIPAL)
    assert model_name in exc_info.value.cause
    assert "fast" in (exc_info.value.hint or "")


# Use of keys.


async def test_a_providers_key_goes_to_its_own_address_only(tmp_path: Path) -> None:
    toml = """
[models.own]
model = "openai:a"
[models.same]
model = "openai:a"
base_url = "https://api.openai.com/v1"
[models.elsewhere]
model = "openai:a"
base_url = "https://elsewhere.example/v1"
[models.claude]
model = "anthropic:a"
base_url = "https://elsewhere.example"
"""
    models = of(tmp_path, toml, OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)
    assert await access(models, "own") == await access(models, "same") == (None, KEY)
    assert await access(models, "elsewhere") == ("https://elsewhere.example/v1", None)
    assert await access(models, "claude") == ("https://elsewhere.example", None)


async def test_an_address_that_stands_for_the_providers_gets_its_key(tmp_path: Path) -> None:
    models = of(tmp_path, OPENAI_API_KEY=KEY, OPENAI_BASE_URL="https://proxy.example/v1")
    assert await access(models, "openai:x") == ("https://proxy.example/v1", KEY)


async def test_the_setting_for_an_address_takes_no_key_of_others(tmp_path: Path) -> None:
    toml = 'model = "openai:x"\nmodel_base_url = "http://10.0.0.5/v1"\n'
    models = of(tmp_path, toml, OPENAI_API_KEY=KEY)
    assert await access(models) == ("http://10.0.0.5/v1", None)
    assert await access(models, "openai:y") == ("http://10.0.0.5/v1", None)


async def test_no_key_is_in_any_words(tmp_path: Path) -> None:
    toml = f'model = "openai:x"\nmodel_api_key = "{KEY}"\n[models.a]\nmodel = "openai:b"\napi_key = "{KEY}"\n'
    models = of(tmp_path, toml)
    model = models.pick(None, LOCAL_PRINCIPAL)
    assert isinstance(model, PickedModel)
    choices = models.choices_for(LOCAL_PRINCIPAL)
    _, model_ref = await model.get_model()
    assert model_ref.access.api_key == KEY
    settings = load_settings(tmp_path, env={})
    assert KEY not in f"{choices!r} {model!r} {model_ref!r} {model_ref.access!r} {settings.models!r}"


# Input types of models.


@pytest.mark.parametrize(
    ("name", "seeing"),
    [
        ("gpt-5-mini", True),
        ("gpt-4o", True),
        ("claude-haiku-5-5", True),
        ("gemini-2.5-flash", True),
        ("llava:13b", True),
        ("qwen2.5-vl:7b", True),
        ("qwen2.5vl:7b", True),
        ("gemma3:4b", True),
        ("llama3.2-vision", True),
        ("gpt-oss:20b", False),
        ("o3-mini", False),
        ("llama3.2", False),
        ("mistral", False),
        ("fake-1", False),
        ("local", False),
    ],
)
def test_models_that_see_are_known_by_name(name: str, seeing: bool) -> None:
    assert can_take_images(name) is seeing


@pytest.mark.parametrize(
    ("name", "hearing"),
    [("gemini-2.5-flash", True), ("gpt-audio", True), ("gpt-5", False), ("claude-haiku-5-5", False)],
)
def test_models_that_hear_are_known_by_name(name: str, hearing: bool) -> None:
    assert can_take_audio(name) is hearing


async def test_nothing_is_heard_over_a_protocol_that_carries_no_sound(make: Make) -> None:
    url = "http://10.0.0.5/v1"
    models = make(
        models={
            "own": {"model": "openai:gpt-audio"},
            "responses": {"model": "openai-responses:gpt-audio", "base_url": url},
            "chat": {"model": "openai:gpt-audio", "base_url": url},
        }
    )
    assert [choice.hears for choice in models.choices_for(LOCAL_PRINCIPAL)] == [False, False, True]


# Loaded libraries.


def test_picking_loads_neither_pydantic_ai_nor_a_providers_library(tmp_path: Path) -> None:
    code = (
        "import sys; from toolyard.config import load_settings;"
        "from toolyard.agents.models.available_models import Models;"
        "from toolyard.types.account import LOCAL_PRINCIPAL;"
        f"m = Models.from_settings(load_settings({str(tmp_path)!r}, env={{'OPENAI_API_KEY': 'abcd'}}));"
        "m.pick('openai:gpt-5', LOCAL_PRINCIPAL); print(*sys.modules)"
    )
    words = [sys.executable, "-c", code]
    loaded_modules = subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert {"pydantic_ai", "openai", "anthropic", "httpx2", "pydantic", "aiohttp"} & set(
        loaded_modules
    ) == set()


async def test_without_the_libraries_the_error_names_the_extra(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)
    model = make(models={"a": {"model": "openai:x", "api_key": "abcd"}}).pick(None, LOCAL_PRINCIPAL)
    with pytest.raises(ModelFailed) as exc_info:
        async with model.stream([], [], instructions=None, temperature=None):
            pass
    assert "toolyard[chat]" in (exc_info.value.hint or "")


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"model": "openai:gpt-4o", "openai_api_key": "x"}, 128_000),
        ({"model": "anthropic:claude-of-the-future", "anthropic_api_key": "x"}, 128_000),
        ({"model": "openai:gpt-4o", "model_base_url": "http://127.0.0.1:1/v1"}, 32_000),
        ({"model": "ollama:llama3.2"}, 32_000),
        ({"model": "ollama:llama3.2", "model_context": 9_000}, 9_000),
        ({"models": {"one": {"model": "ollama:llama3.2", "context": 4_096}}}, 4_096),
    ],
    ids=["known", "unknown", "own-address", "ollama", "set", "set-in-its-table"],
)
async def test_how_much_a_model_takes_at_once_is_set_known_or_guessed(
    make: Make, settings: dict[str, Any], tokens: int
) -> None:
    assert await make(**settings).pick(None, LOCAL_PRINCIPAL).get_context_window() == tokens
