"""The models of an operator: tables in the file, JSON in a variable, and the usual variables of providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolyard.config import load_settings
from toolyard.config.settings.model_entries import MODEL_PROVIDERS, ModelEntry
from toolyard.errors import ConfigError, Problem

Write = Callable[[Path, object], Path]
KEY = "sk-a-very-secret-key-0123456789"


def problems(data_dir: Path, **options: object) -> list[Problem]:
    with pytest.raises(ConfigError) as exc_info:
        load_settings(data_dir, **{"env": {}, **options})  # type: ignore[arg-type]
    assert KEY not in str(exc_info.value)
    return list(exc_info.value.problems)


def test_the_origin_of_each_model_is_its_own_line_unless_a_variable_replaces_all(
    data_dir: Path, write: Write
) -> None:
    text = '[models.fast]\nmodel = "openai:gpt-5-mini"\n\n[models.house]\nmodel = "ollama:b"\n'
    file = write(data_dir / "toolyard.toml", text)
    origins = load_settings(data_dir, env={}).origins
    assert (origins["models.fast"], origins["models.house"]) == (f"{file}:1", f"{file}:4")
    variable = {"TOOLYARD_MODELS": '{"fast": {"model": "ollama:c"}}'}
    origins = load_settings(data_dir, env=variable).origins
    assert origins["models"] == "TOOLYARD_MODELS"
    assert "models.fast" not in origins


def test_tables_of_the_file_are_read_in_their_order(data_dir: Path, write: Write) -> None:
    file = write(
        data_dir / "toolyard.toml",
        """port = 1

[models.fast]
model = "openai:gpt-5-mini"

[models.house]
model = "openai:llama"
base_url = "http://10.0.0.5:8000/v1/"
api_key = "abcd"
label = "Ours"
sees = true
hears = false
temperature = 0
""",
    )
    settings = load_settings(data_dir, env={})
    house = ModelEntry("house", "openai:llama", "http://10.0.0.5:8000/v1", "abcd", "Ours", True, False, 0.0)
    assert settings.models == (ModelEntry("fast", "openai:gpt-5-mini"), house)
    assert settings.origins["models"] == f"{file}:3"


def test_a_variable_with_json_takes_the_place_of_the_tables(data_dir: Path, write: Write) -> None:
    write(data_dir / "toolyard.toml", '[models.a]\nmodel = "openai:x"\n')
    settings = load_settings(data_dir, env={"TOOLYARD_MODELS": '{"b": {"model": "google:y", "label": null}}'})
    assert settings.models == (ModelEntry("b", "google:y"),)
    assert settings.origins["models"] == "TOOLYARD_MODELS"


def test_the_table_shows_names_and_models_without_keys(data_dir: Path) -> None:
    tables = {"a": {"model": "openai:x", "api_key": KEY}, "b": {"model": "google:y"}}
    settings = load_settings(data_dir, env={"OPENAI_API_KEY": KEY}, overrides={"models": tables})
    rows = {row.setting.name: (row.shown, row.origin) for row in settings.table()}
    assert rows["models"] == ("a (openai:x), b (google:y)", "overrides")
    assert rows["openai_api_key"] == ("(set, hidden)", "OPENAI_API_KEY")
    assert KEY not in f"{rows} {settings!r}"


def test_every_mistake_is_told_at_once_with_its_line(data_dir: Path, write: Write) -> None:
    file = write(
        data_dir / "toolyard.toml",
        f"""[models.fast]
model = "gpt-5"
base_url = "ftp://x"
sees = "yes"
[models.house]
api_key = ["{KEY}"]
temperature = -1
lable = "x"
[models."bad name"]
model = "openai:x"
""",
    )
    found_problems = problems(data_dir)
    assert [(problem.file, problem.line, problem.path) for problem in found_problems] == [
        (str(file), 2, "models.fast.model"),
        (str(file), 3, "models.fast.base_url"),
        (str(file), 4, "models.fast.sees"),
        (str(file), 6, "models.house.api_key"),
        (str(file), 7, "models.house.temperature"),
        (str(file), 8, "models.house.lable"),
        (str(file), 5, "models.house.model"),
        (str(file), 9, "models.bad name"),
    ]
    assert "expected provider:name" in found_problems[0].message
    assert "found 'gpt-5'" in found_problems[0].message
    assert "expected an http(s) URL, found 'ftp://x'" in found_problems[1].message
    assert found_problems[3].message == "expected a non-empty string, found a list"
    assert found_problems[5].hint == "did you mean 'label'?"
    assert found_problems[6].message == "is missing"


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"a": KEY}, "models.a", "expected a table, found a string"),
        ([KEY], "models", "found a list"),
        (KEY, "models", "found a string"),
        (True, "models", "found true or false"),
        (
            {"a": {"model": "nobody:x"}},
            "models.a.model",
            ", ".join(MODEL_PROVIDERS),
        ),
        ({"a": {"model": "openai:"}}, "models.a.model", "expected provider:name"),
        ({"a": {"model": 5}}, "models.a.model", "found a number"),
        ({"": {"model": "openai:x"}}, "models.", "not a valid name for a model"),
        ({"a:b": {"model": "openai:x"}}, "models.a:b", "not a valid name for a model"),
    ],
)
def test_an_invalid_table_of_models_is_an_error_with_its_place(
    data_dir: Path, value: object, path: str, words: str
) -> None:
    (problem,) = problems(data_dir, overrides={"models": value})
    assert problem.path == path
    assert words in problem.message


@pytest.mark.parametrize("text", [f'{{"{KEY}', "[" * 100_000, "nonsense"])
def test_invalid_json_is_an_error_that_quotes_nothing(data_dir: Path, text: str) -> None:
    (problem,) = problems(data_dir, env={"TOOLYARD_MODELS": text})
    assert (problem.file, problem.path) == ("TOOLYARD_MODELS", "models")
    assert "not valid JSON" in problem.message


def test_ours_wins_over_the_variable_of_a_provider_and_the_first_of_two_counts(data_dir: Path) -> None:
    env = {
        "OPENAI_API_KEY": "b",
        "TOOLYARD_OPENAI_API_KEY": "a",
        "GEMINI_API_KEY": "d",
        "GOOGLE_API_KEY": "c",
    }
    settings = load_settings(data_dir, env=env)
    assert (settings.openai_api_key, settings.google_api_key) == ("a", "c")
    assert settings.origins["google_api_key"] == "GOOGLE_API_KEY"


def test_a_variable_of_others_that_is_unfit_stops_nothing(data_dir: Path) -> None:
    settings = load_settings(data_dir, env={"OPENAI_BASE_URL": "localhost:8080"})
    assert settings.openai_base_url is None
    (hint,) = settings.hints
    assert (hint.file, hint.message) == ("OPENAI_BASE_URL", "is not an http(s) URL, so it is ignored")


def test_the_model_of_chats_is_listed_or_local_or_of_a_provider(data_dir: Path, write: Write) -> None:
    tables = {"fast": {"model": "openai:x"}}
    for model in ("fast", "local", "anthropic:claude-x"):
        assert load_settings(data_dir, env={}, overrides={"model": model, "models": tables}).model == model
    file = write(data_dir / "toolyard.toml", 'model = "fasst"\n[models.fast]\nmodel = "openai:x"\n')
    (problem,) = problems(data_dir)
    assert (problem.file, problem.path, problem.hint) == (f"{file}:1", "model", "did you mean 'fast'?")
    assert "'fasst' is not listed in models" in problem.message
