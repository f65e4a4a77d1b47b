"""The coding agents: installation, configuration, and runs without a network."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.background.conftest import Machine

ENVIRONMENTS = Path(__file__).parents[2] / ".envs"
MODULES = (ENVIRONMENTS / "tested-agents/node_modules", ENVIRONMENTS / "agents/node_modules")
"""The folders in which `make test` and `make agents` install them."""
NODE_22 = ENVIRONMENTS / "conformance/node_modules/node/bin/node"
PROMPT = "Do the next step."


@dataclass(frozen=True)
class CodingAgent:
    """``client`` is its name for ``toolyard connect``, ``program`` a pattern below one of ``MODULES``."""

    client: str
    title: str
    package: str
    program: str
    arguments: Callable[[str, str], list[str]]
    """Return the arguments for the model's address and a prompt."""
    environment: Callable[[str], dict[str, str]]
    prepare: Callable[[Path], None] = lambda home: None
    choose_model: Callable[[Path, str], None] = lambda home, model: None
    """Write the model's address into a file of the agent, if no option or variable sets it."""
    prompt_command: str = "/NAME"
    """The words with which a person uses a server's prompt, with ``NAME`` for the prompt's."""
    node: Path | None = None
    """The Node.js to run it with, if that of the machine is too old for it."""

    @property
    def path(self) -> Path | None:
        return next((path for folder in MODULES for path in sorted(folder.glob(self.program))), None)

    @property
    def version(self) -> str:
        files = (folder / self.package / "package.json" for folder in MODULES)
        return json.loads(next(file for file in files if file.exists()).read_text())["version"]

    def connect(self, machine: Machine, *, mode: str = "direct") -> None:
        """Write the entry for Toolyard into the agent's own file, as a person would."""
        self.prepare(machine.home)
        result = machine.run("connect", self.client, "--write")
        assert result.returncode == 0, result.stderr
        if mode != "direct":
            file = Path(result.stdout.splitlines()[0].removeprefix("wrote "))
            before, _, after = file.read_text().rpartition('"stdio"')
            file.write_text(f'{before}"stdio", "--mode", "{mode}"{after}')

    def run(self, machine: Machine, model: str, *, prompt: str = PROMPT, seconds: float = 60.0) -> str:
        """Run the agent for one prompt, and return its output. All its processes have ended then."""
        assert self.path is not None, f"{self.title} is not installed: make agents"
        folder, temporary = machine.home / "project", machine.home / "tmp"
        for each in (folder, temporary):
            each.mkdir(exist_ok=True)
        self.choose_model(machine.home, model)
        interpreter = [str(self.node)] if self.node else []
        process = subprocess.Popen(
            [*interpreter, str(self.path), *self.arguments(model, prompt)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=machine.environment(TMPDIR=str(temporary), **self.environment(model)),
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end_group(process.pid)
            output, _ = process.communicate()
            output += f"\n[ended after {seconds:g} s]".encode()
        finally:
            _end_group(process.pid)
            process.wait()
        return output.decode(errors="replace")


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _codex_arguments(model: str, prompt: str) -> list[str]:
    provider = f'{{name="scripted",base_url="{model}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    settings = [
        'model_provider="scripted"',
        f"model_providers.scripted={provider}",
        # Codex passes few variables to servers. Without those of the test it would not find the process.
        'mcp_servers.toolyard.env_vars=["XDG_RUNTIME_DIR","TOOLYARD_DATA_DIR","TOOLYARD_IDLE_EXIT"]',
    ]
    options = [word for each in settings for word in ("-c", each)]
    bypass = "--dangerously-bypass-approvals-and-sandbox"
    return ["exec", "--skip-git-repo-check", bypass, *options, "-m", "scripted", prompt]


def _prepare_gemini(home: Path) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (home / ".gemini").mkdir(exist_ok=True)
    (home / ".gemini/settings.json").write_text(json.dumps(settings))


def _opencode_environment(model: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/anthropic",
        "options": {"baseURL": f"{model}/v1", "apiKey": "good"},
        "models": {"scripted": {"tool_call": True}},
    }
    settings = {"provider": {"scripted": provider}, "model": "scripted/scripted", "autoupdate": False}
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps({**settings, "share": "disabled"}),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }


def _prepare_qwen(home: Path) -> None:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (home / ".qwen").mkdir(exist_ok=True)
    (home / ".qwen/settings.json").write_text(json.dumps(settings))


def _choose_cline_model(home: Path, model: str) -> None:
    """Write what `cline auth -p openai -b URL` writes."""
    settings = {
        "provider": "openai-compatible",
        "apiKey": "good",
        "model": "scripted",
        "baseUrl": f"{model}/v1",
    }
    provider = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    content = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "modes": {},
        "providers": {"openai-compatible": provider},
    }
    folder = home / ".cline/data/settings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "providers.json").write_text(json.dumps(content))


CODEX = CodingAgent(
    "codex",
    "Codex",
    "@openai/codex",
    ".bin/codex",
    _codex_arguments,
    lambda model: {"OPENAI_API_KEY": "good"},
)
GEMINI = CodingAgent(
    "gemini",
    "Gemini CLI",
    "@google/gemini-cli",
    ".bin/gemini",
    lambda model, prompt: ["--yolo", "-m", "gemini-2.5-flash", "-p", prompt],
    lambda model: {
        "GEMINI_API_KEY": "good",
        "GOOGLE_GEMINI_BASE_URL": model,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    _prepare_gemini,
)
CLAUDE_CODE = CodingAgent(
    "claude-code",
    "Claude Code",
    "@anthropic-ai/claude-code",
    "@anthropic-ai/claude-code-*/claude",
    lambda model, prompt: ["-p", prompt, "--allowedTools", "mcp__toolyard"],
    lambda model: {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_AUTH_TOKEN": "good",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
    },
    prompt_command="/mcp__toolyard__NAME",
)
OPENCODE = CodingAgent(
    "opencode",
    "opencode",
    "opencode-ai",
    "opencode-linux-x64/bin/opencode",
    lambda model, prompt: ["run", "--command", prompt[1:]] if prompt.startswith("/") else ["run", prompt],
    _opencode_environment,
    prompt_command="/toolyard:NAME",
)
COPILOT = CodingAgent(
    "copilot",
    "Copilot CLI",
    "@github/copilot",
    ".bin/copilot",
    lambda model, prompt: ["-p", prompt, "--allow-all-tools"],
    lambda model: {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_BASE_URL": model,
        "COPILOT_PROVIDER_API_KEY": "good",
        "COPILOT_MODEL": "claude-sonnet-4.5",
    },
)
CLINE = CodingAgent(
    "cline",
    "cline",
    "cline",
    "@cline/cli-linux-x64/bin/cline",
    lambda model, prompt: ["--provider", "openai-compatible", "--model", "scripted", prompt],
    # Without "local", a daemon is started that outlives the prompt.
    lambda model: {"CLINE_SESSION_BACKEND_MODE": "local"},
    choose_model=_choose_cline_model,
)
QWEN = CodingAgent(
    "qwen",
    "Qwen Code",
    "@qwen-code/qwen-code",
    "@qwen-code/qwen-code/cli-entry.js",
    lambda model, prompt: ["--yolo", "-m", "scripted", prompt],
    lambda model: {"OPENAI_API_KEY": "good", "OPENAI_BASE_URL": f"{model}/v1"},
    _prepare_qwen,
    node=NODE_22,
)
AGENTS = (CODEX, GEMINI, CLAUDE_CODE, OPENCODE, COPILOT, CLINE, QWEN)
