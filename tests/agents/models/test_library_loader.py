"""The libraries for models are loaded by several threads at once, as by the first message."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import ModelFailed, NoSuchModel
from toolyard.agents.models.library_loader import LibraryLoader
from toolyard.types.account import LOCAL_PRINCIPAL

PROGRAM = """
import sys, threading
from toolyard.agents.models.model_ref import ProviderAccess, ModelRef
from toolyard.agents.models.library_loader import LibraryLoader
from toolyard.agents.models.provider_clients import ProviderClients

wrong = []

def noted(work, *given):
    try:
        work(*given)
    except BaseException as error:
        wrong.append(repr(error))

asked = ModelRef(ProviderAccess("openai", "http://127.0.0.1:1/v1", "key"), "some-model")
threads = [
    threading.Thread(target=noted, args=(LibraryLoader().load, "toolyard.agents.chat.model_conversation")),
    threading.Thread(target=noted, args=(LibraryLoader().load, "toolyard.agents.chat.model_history")),
    threading.Thread(target=noted, args=(ProviderClients(1.0, LibraryLoader())._build_model, asked)),
]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit("; ".join(wrong) or 0)
"""


def test_concurrent_imports_see_complete_modules() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=110)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``library(name="source")``: importable modules that are unloaded afterwards."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            monkeypatch.delitem(sys.modules, name, raising=False)
            (tmp_path / f"{name}.py").write_text(source)

    return write


def test_closing_waits_for_at_most_one_module(library: Callable[..., None]) -> None:
    library(
        slow_outer="import slow_first\ntry: import slow_second\nexcept Exception: pass\nimport slow_third",
        slow_first="import threading\ngo = threading.Event()\ngo.wait(60)",
        slow_second="",
        slow_third="",
    )
    loading, before, log_lines = LibraryLoader(), list(sys.meta_path), list[str]()
    pace = sys.getswitchinterval()

    def load() -> None:
        try:
            loading.load("slow_outer")
        except ModelFailed as exc:
            log_lines.append(exc.cause)

    thread = threading.Thread(target=load)
    thread.start()
    deadline = threading.Event()
    while "slow_first" not in sys.modules or not hasattr(sys.modules["slow_first"], "go"):
        deadline.wait(0.01)
    loading.stop()
    # Other threads load other modules meanwhile.
    library(beside="")
    import_module("beside")
    sys.modules["slow_first"].go.set()
    thread.join(60)
    assert log_lines == ["Toolyard is stopping"]
    assert "slow_second" not in sys.modules
    assert "slow_third" not in sys.modules
    assert (sys.meta_path, sys.getswitchinterval()) == (before, pace)
    # Another owner is not blocked by it.
    LibraryLoader().load("slow_third")
    assert "slow_third" in sys.modules


def test_a_library_that_is_missing_is_named(library: Callable[..., None]) -> None:
    library(wants_more="import no_such_library_at_all")
    with pytest.raises(ModelFailed, match="not installed: no_such_library_at_all") as exc_info:
        LibraryLoader().load("wants_more")
    assert exc_info.value.hint == "pip install 'toolyard[chat]'"


async def test_a_failed_preload_is_reported_on_use(make: Callable[..., Models]) -> None:
    await make(model="openai:gpt-5").preload()
    await make().preload("no such model")
    await make().preload()
    for model_name in ("no such model", None):
        with pytest.raises(NoSuchModel):
            make().pick(model_name, LOCAL_PRINCIPAL)


WARMING = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.models.available_models import Models
from toolyard.config import load_settings

async def main():
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    models = Models.from_settings(load_settings(Path("/"), env={}, overrides=given))
    chats = ChatService(SimpleNamespace(attachments=None), None, models, None, ChatLimits())
    await chats.preload()
    await models.close()
    print(*sorted({"pydantic_ai", "openai", "anthropic"} & sys.modules.keys()))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("model_spec", "module_names"),
    [
        ([], []),
        (["model=openai:one", "model_base_url=http://127.0.0.1:1/v1"], ["openai", "pydantic_ai"]),
    ],
    ids=["without-a-model", "openai"],
)
def test_only_the_modules_of_the_default_model_are_loaded(
    model_spec: list[str], module_names: list[str]
) -> None:
    words = [sys.executable, "-c", WARMING, *model_spec]
    result = subprocess.run(words, capture_output=True, text=True, timeout=110, check=True)
    assert result.stdout.split() == module_names
