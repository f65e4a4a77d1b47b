"""The wheel, installed in an empty environment without the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, ListeningProgram, ProgramStarter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
UV = [shutil.which("uv")] if shutil.which("uv") else ["python3", "-m", "uv"]
# The versions used by the other tests, which uv has in its cache.
PINNED_ENVIRONMENT = {"UV_CONSTRAINT": str(ROOT / "requirements/run.txt"), "UV_LINK_MODE": "hardlink"}


def run(*words: object, seconds: float = 240, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TOOLYARD_", "PYTHON"))}
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd="/",
        env={**clean, "TOOLYARD_STANDALONE": "1", **env},
        stdin=subprocess.DEVNULL,
    )


def install(python: Path, requirement: object) -> None:
    """Install from uv's cache, or else from the network."""
    words = (*UV, "pip", "install", "-q", "--python", python, requirement)
    result = run(*words, UV_OFFLINE="1", **PINNED_ENVIRONMENT)
    if result.returncode != 0:
        result = run(*words, **PINNED_ENVIRONMENT)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of `make dist`."""
    folder = tmp_path_factory.mktemp("dist")
    recipe = subprocess.run(
        ["make", "-n", "-W", "pyproject.toml", "dist", f"DIST={folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    build = next(line for line in recipe.splitlines() if " build " in line)
    subprocess.run(build, shell=True, cwd=ROOT, check=True, timeout=240, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("toolyard-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with only the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    assert run(*UV, "venv", "-q", "--python", sys.executable, folder).returncode == 0
    install(folder / "bin/python", wheel)
    return folder / "bin"


def test_the_archives_have_all_data_and_nothing_else(dist: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "toolyard/config/known_servers.json" in names
    assert any(name.startswith("toolyard/web/ui/templates/") for name in names)
    assert "toolyard/docs/guides/first-five-minutes.md" in names
    assert not [name for name in names if "/decisions/" in name or "/screenshots/" in name]
    assert not [name for name in names if "__pycache__" in name or not re.match(r"toolyard[/-]", name)]
    (archive,) = dist.glob("toolyard-*.tar.gz")
    with tarfile.open(archive) as tar:
        files = {name.partition("/")[2] for name in tar.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/toolyard/library.py"} <= files
    assert not [name for name in files if name.startswith((".venv", ".envs", ".data"))]


def test_the_demo_runs(installed_bin: Path, tmp_path: Path) -> None:
    result = run(
        installed_bin / "toolyard", "demo", HOME=str(tmp_path), TOOLYARD_DATA_DIR=str(tmp_path / "data")
    )
    assert result.returncode == 0, result.stderr
    assert "is a Tuesday" in result.stdout or "weekday" in result.stdout


def test_the_web_app_runs(installed_bin: Path, tmp_path: Path, start_program: ProgramStarter) -> None:
    program = start_program(
        installed_bin / "toolyard", "serve", TOOLYARD_DATA_DIR=str(tmp_path), TOOLYARD_PORT="{port}"
    )
    assert urllib.request.urlopen(f"{program.url}/healthz", timeout=60).status == 200
    assert b"Toolyard" in urllib.request.urlopen(f"{program.url}/ui/", timeout=60).read()
    assert b"AGENTS.md" in urllib.request.urlopen(f"{program.url}/ui/docs/guides/agents", timeout=60).read()


def test_the_gateway_runs_over_standard_streams(installed_bin: Path, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    demo = {"command": str(installed_bin / "python"), "args": ["-m", "toolyard.cli.demo_server"]}
    config.write_text(json.dumps({"mcpServers": {"demo": demo}}))
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    words = (installed_bin / "toolyard", "--data-dir", tmp_path, "--config", config, "stdio", "--standalone")
    child = subprocess.Popen(
        [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("".join(f"{json.dumps(message)}\n" for message in messages))
    child.stdin.flush()
    answers = (json.loads(line) for line in child.stdout)
    list_response = next(answer for answer in answers if answer.get("id") == 2)
    child.stdin.close()
    assert child.wait(60) == 0
    child.stdout.close()
    assert "demo_weekday" in {tool["name"] for tool in list_response["result"]["tools"]}


def test_a_missing_extra_is_named(installed_bin: Path, tmp_path: Path) -> None:
    (tmp_path / "toolyard.toml").write_text('model = "openai:fake-1"\nopenai_api_key = "good"\n')
    chat = run(installed_bin / "toolyard", "--data-dir", tmp_path, "chat", "-p", "hello")
    assert (chat.returncode, "hint: pip install 'toolyard[chat]'" in chat.stderr) == (3, True), chat.stderr
    url = "postgresql://nobody@127.0.0.1:1/none"
    users = run(
        installed_bin / "toolyard", "--data-dir", tmp_path, "users", "list", TOOLYARD_DATABASE_URL=url
    )
    assert users.returncode != 0
    assert "hint: pip install 'toolyard[postgres]'" in users.stderr, users.stderr


def test_a_chat_runs_with_its_extra(
    wheel: Path, installed_bin: Path, tmp_path: Path, model_program: ListeningProgram
) -> None:
    extra = f"toolyard[chat] @ {wheel.as_uri()}"
    install(installed_bin / "python", extra)
    entry = f'[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model_program.url}/v1"\napi_key = "good"\n'
    (tmp_path / "toolyard.toml").write_text(entry)
    chat = run(installed_bin / "toolyard", "--data-dir", tmp_path, "chat", "-p", "say All is well.")
    assert (chat.returncode, chat.stdout) == (0, "All is well.\n"), chat.stderr


def test_it_runs_without_being_installed(wheel: Path) -> None:
    uvx = [*UV[:-1], UV[-1], "tool", "run"]
    result = run(
        *uvx, "--python", sys.executable, "--from", wheel, "toolyard", "--version", **PINNED_ENVIRONMENT
    )
    assert (result.returncode, result.stdout.startswith("toolyard ")) == (0, True), result.stderr
