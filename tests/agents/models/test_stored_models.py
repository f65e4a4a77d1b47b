"""Models of the database beside those of the settings: selection, access and keys."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from tests.agents.models.conftest import KEY, FakeProvider, Make, ask

from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import KeyRefused, ModelFailed, NoSuchModel
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.stored_model import ModelAudience, StoredModel

pytestmark = pytest.mark.usefixtures("leaks")
ANN, ADA = Principal("ann"), Principal("ada", admin=True)


def ids(models: Models, person: Principal = LOCAL_PRINCIPAL) -> list[str]:
    return [choice.id for choice in models.choices_for(person)]


def build_stored_model(fake: FakeProvider, **more: object) -> StoredModel:
    values = {"base_url": f"{fake.url}/v1", "private_addresses": True, "api_key": "good", **more}
    return StoredModel("house", "openai", "fake-1", **values)  # type: ignore[arg-type]


async def test_files_come_first_and_win_by_name(make: Make) -> None:
    models = make(models={"same": {"model": "ollama:of-the-file"}})
    row = StoredModel("same", "ollama", "of-the-row", audience=ModelAudience.ADMINS, is_default=True)
    await models.set_stored([StoredModel("a", "ollama", "a"), row])
    assert ids(models) == ids(models, ANN) == ["same", "a"]
    assert models.pick("same", ANN).model_name == "of-the-file"
    assert models.default_for(ANN) == "same"
    assert [each.overridden for each in models.list_all()] == [False, False, True]


async def test_an_audience_decides_about_access_to_a_model(make: Make) -> None:
    models = make()
    await models.set_stored(
        [
            StoredModel("all", "ollama", "x"),
            StoredModel("bosses", "ollama", "x", audience=ModelAudience.ADMINS),
            StoredModel("anns", "ollama", "x", audience=ModelAudience.PEOPLE, people=("ann",)),
        ]
    )
    assert ids(models, ANN) == ["all", "anns"]
    assert ids(models, ADA) == ["all", "bosses"]
    for person, hidden in ((ANN, "bosses"), (ADA, "anns")):
        with pytest.raises(NoSuchModel) as exc_info:
            models.pick(hidden, person)
        with pytest.raises(NoSuchModel) as unknown:
            models.pick("nonexist", person)
        assert exc_info.value.cause == unknown.value.cause.replace("nonexist", hidden)


async def test_an_answer_costs_the_entered_price(make: Make, openai_fake: FakeProvider) -> None:
    models = make()
    await models.set_stored([build_stored_model(openai_fake, input_price=2.0, output_price=10.0)])
    reply = await ask(models, "say one two three")
    usage = reply.stream.response().usage
    assert reply.stream.cost == Decimal(2 * usage.input_tokens + 10 * usage.output_tokens) / 1_000_000


async def test_a_changed_key_is_used_at_once(make: Make, openai_fake: FakeProvider) -> None:
    models = make()
    await models.set_stored([build_stored_model(openai_fake, api_key=KEY)])
    assert isinstance((await ask(models, "say x")).error, KeyRefused)
    await models.set_stored([build_stored_model(openai_fake)])
    assert (await ask(models, "say x")).text == "x"
    assert models.provider_clients.open_count == 1


async def test_an_unset_variable_is_not_replaced_by_another_key(make: Make) -> None:
    models = make(openai_api_key=KEY)
    await models.set_stored([StoredModel("a", "openai", "x", key_variable="TOOLYARD_MODEL_KEY_A")])
    error = (await ask(models, "say x", model_name="a")).error
    assert isinstance(error, KeyRefused)
    assert "TOOLYARD_MODEL_KEY_A is not set" in error.cause


async def test_a_stored_local_model_replaces_the_installed_one(make: Make, tmp_path: Path) -> None:
    models = make(local_model=str(tmp_path / "weights.gguf"))
    assert ids(models) == ["local"]
    row = StoredModel("small", "local", label="Ours", audience=ModelAudience.ADMINS)
    await models.set_stored([row])
    assert (ids(models), ids(models, ANN)) == (["small"], [])
    with pytest.raises(NoSuchModel):
        models.pick("local", ANN)
    with pytest.raises(ModelFailed, match="weights"):
        await models.test("small")
    await models.set_stored([StoredModel("local", "ollama", "x")])
    assert ids(models) == ["local"]
    assert models.pick("local", ANN).choice.provider == "ollama"


async def test_a_provider_of_a_later_version_is_listed_and_not_used(make: Make) -> None:
    models = make()
    await models.set_stored([StoredModel("a", "later", "x"), StoredModel("b", "ollama", "y")])
    assert ids(models) == ["b"]
    assert [each.problem for each in models.list_all()] == [
        "the provider 'later' is not known to this version of Toolyard",
        None,
    ]
    for use in (models.test("a"), ask(models, "x", model_name="a")):
        with pytest.raises(NoSuchModel):
            await use
