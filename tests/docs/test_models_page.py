"""The examples of the page about models work unchanged."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import examples, read

from toolyard.agents.models.available_models import Models
from toolyard.config import load_settings
from toolyard.config.settings.model_entries import MODEL_PROVIDERS
from toolyard.types.account import LOCAL_PRINCIPAL

PAGE = "docs/models.md"


async def test_the_tables_of_models_are_valid(tmp_path: Path) -> None:
    text = next(each.text for each in examples(PAGE) if "[models." in each.text)
    (tmp_path / "toolyard.toml").write_text(text)
    models = Models.from_settings(load_settings(tmp_path, env={}))
    assert [choice.id for choice in models.choices_for(LOCAL_PRINCIPAL)][:3] == ["fast", "careful", "house"]
    assert models.default_for(LOCAL_PRINCIPAL) == "fast"


async def test_the_variable_with_models_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"`TOOLYARD_MODELS`, as JSON: `(.+?)`\.", read(PAGE))
    assert load_settings(tmp_path, env={"TOOLYARD_MODELS": text}).models[0].name == "house"


def test_every_provider_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", read(PAGE), re.MULTILINE)
    assert set(MODEL_PROVIDERS) <= set(rows)
