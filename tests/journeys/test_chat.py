"""Talking to an agent, in a real browser: real MCP servers, and a model that says what it is told to say.

The model is a program that speaks OpenAI's protocol (``tests/servers/openai_server.py``): each line of a
message is something that it does.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect
from tests.conftest import ROOT, ListeningProgram, ProgramStarter

DOCS = ROOT / "tests/servers/docs_server.py"
AGENTS = """## Architect
---
description: reads the documentation
tools: [context7_*]
---
You plan.
"""

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class RestartableToolyard:
    """A Toolyard that can be stopped, killed and started again, with its model."""

    data: Path
    programs: ProgramStarter
    model: ListeningProgram
    served: ListeningProgram | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def start(self, **settings: str) -> str:
        """``toolyard serve``; its address, which stays the same."""
        if self.served is None:
            env = {f"TOOLYARD_{name.upper()}": value for name, value in settings.items()}
            words = ("-m", "toolyard", "--data-dir", self.data, "serve", "--port", "{port}")
            self.served = self.programs(sys.executable, *words, HOME=str(self.data), **env)
        else:
            self.served.start()
        return self.served.url

    @property
    def url(self) -> str:
        assert self.served is not None
        return self.served.url

    def end(self, how: signal.Signals) -> None:
        assert self.served is not None
        assert self.served.process is not None
        self.served.process.send_signal(how)
        self.served.process.wait(30)

    async def journal(self) -> list[dict[str, Any]]:
        """The requests that the model got."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.model.url}/journal") as answer:
            return await answer.json()

    async def release(self) -> None:
        async with aiohttp.ClientSession() as session:
            await session.post(f"{self.model.url}/release")


@pytest.fixture(scope="module")
def docs() -> Iterator[str]:
    programs = ProgramStarter()
    yield programs(sys.executable, DOCS, "{port}").url
    programs.stop()


def prepare_toolyard(
    place: Path, model: ListeningProgram, docs: str, everything_server: str, filesystem_server: str
) -> RestartableToolyard:
    """A house with three servers, which is not open yet."""
    data, files = place / "data", place / "files"
    data.mkdir()
    files.mkdir()
    servers = {
        "context7": {"type": "streamableHttp", "url": f"{docs}/mcp"},
        "everything": {"command": everything_server, "args": ["stdio"]},
        "files": {"command": filesystem_server, "args": [str(files)]},
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (data / "AGENTS.md").write_text(AGENTS)
    address = f'model = "openai:fake-1"\nbase_url = "{model.url}/v1"\napi_key = "good"\n'
    (data / "toolyard.toml").write_text(f"[models.fake]\n{address}sees = true\n")
    return RestartableToolyard(data, ProgramStarter(), model)


@pytest.fixture
def own_toolyard(
    tmp_path: Path, model_program: ListeningProgram, docs: str, everything_server: str, filesystem_server: str
) -> Iterator[RestartableToolyard]:
    """One that the test opens as it likes."""
    toolyard_setup = prepare_toolyard(tmp_path, model_program, docs, everything_server, filesystem_server)
    yield toolyard_setup
    toolyard_setup.programs.stop()


@pytest.fixture(scope="module")
def running_toolyard(
    tmp_path_factory: pytest.TempPathFactory,
    openai_program: ListeningProgram,
    docs: str,
    everything_server: str,
    filesystem_server: str,
) -> Iterator[RestartableToolyard]:
    place = tmp_path_factory.mktemp("shared")
    toolyard_setup = prepare_toolyard(place, openai_program, docs, everything_server, filesystem_server)
    toolyard_setup.start()
    yield toolyard_setup
    toolyard_setup.programs.stop()


@pytest.fixture
def shared_toolyard(
    running_toolyard: RestartableToolyard, model_program: ListeningProgram
) -> RestartableToolyard:
    """One that is open, for tests that leave it as it is."""
    return running_toolyard


@dataclass
class ChatWindow:
    """One window with a chat."""

    page: Page
    context: BrowserContext
    said: list[str] = field(default_factory=list)

    @classmethod
    async def open(cls, chromium: Browser, url: str) -> ChatWindow:
        """A new chat."""
        context = await chromium.new_context(base_url=url)
        talk = cls(await context.new_page(), context)
        talk.page.on(
            "console", lambda one: talk.said.append(one.text) if one.type in ("error", "warning") else None
        )
        talk.page.on("pageerror", lambda error: talk.said.append(str(error)))
        await talk.page.goto("/ui/chat")
        return talk

    async def say(self, *lines: str) -> None:
        turns = self.page.get_by_role("article", name=re.compile(f"^You: {re.escape(lines[0][:20])}"))
        before = await turns.count()
        box = self.page.get_by_role("textbox", name="Message")
        # Enter sends the message once the script of the page is loaded.
        await self.page.wait_for_load_state()
        await box.fill("\n".join(lines))
        await box.press("Enter")
        await expect(turns).to_have_count(before + 1)

    @property
    def last(self) -> Locator:
        """The last turn."""
        return self.page.locator("article.turn").last

    def card(self, name: str) -> Locator:
        return self.last.get_by_role("article", name=f"Call to {name}", exact=True)

    async def ended(self) -> None:
        await expect(self.last.get_by_text("Working")).to_have_count(0)
        await expect(self.last.locator("footer .cost")).to_be_visible()


# Tools.


async def test_a_turn_of_two_steps_with_calls_side_by_side_and_a_picture(
    chromium: Browser, shared_toolyard: RestartableToolyard
) -> None:
    talk = await ChatWindow.open(chromium, shared_toolyard.url)
    await talk.say(
        "think let me see",
        'call everything_echo {"message": "one"}',
        'call everything_get-sum {"a": 19, "b": 23}',
        "call everything_get-tiny-image {}",
        "then",
        "image?",
        "say The sum is **42**.",
    )
    await talk.ended()
    for name in ("everything_echo", "everything_get-sum", "everything_get-tiny-image"):
        await expect(talk.card(name)).to_contain_text("Done")
        await expect(talk.card(name)).to_contain_text("everything")
    await expect(talk.last.locator(".md strong")).to_have_text("42")
    picture = talk.card("everything_get-tiny-image").get_by_role("img", name="Picture 1")
    await expect(picture).to_be_visible()
    await expect(picture).not_to_have_js_property("naturalWidth", 0)
    await expect(talk.last.locator(".md").last).to_contain_text("image: yes")
    await expect(talk.last.get_by_text("Thoughts").first).to_be_visible()
    model_requests = await shared_toolyard.journal()
    names = [tool["function"]["name"] for tool in model_requests[0]["tools"]]
    assert names == sorted(names)
    assert "everything_echo" in names
    assert talk.said == []


async def test_a_failing_tool_goes_to_the_model_and_the_turn_goes_on(
    chromium: Browser, shared_toolyard: RestartableToolyard
) -> None:
    talk = await ChatWindow.open(chromium, shared_toolyard.url)
    await talk.say(
        "call no_such_tool {}",
        "raw everything_echo this is no JSON",
        'call files_read_file {"path": "/etc/shadow"}',
        "then",
        "say I saw the errors.",
    )
    await talk.ended()
    await expect(talk.card("no_such_tool")).to_contain_text("no_such_tool")
    await expect(talk.last).to_contain_text("I saw the errors.")
    for name in ("no_such_tool", "everything_echo", "files_read_file"):
        await expect(talk.card(name).locator(".pill")).not_to_have_text("Done")
    await talk.say("say And on we go.")
    await talk.ended()
    await expect(talk.last).to_contain_text("And on we go.")


@pytest.mark.parametrize("fault", ["401", "429", "500", "die", "nothing", "html"])
async def test_a_model_that_fails_is_told_and_the_chat_goes_on(
    chromium: Browser, shared_toolyard: RestartableToolyard, fault: str
) -> None:
    talk = await ChatWindow.open(chromium, shared_toolyard.url)
    await talk.say(*([] if fault == "nothing" else ["say Half an answer comes"]), f"fault {fault}")
    await expect(talk.last.get_by_role("button", name="Retry")).to_be_visible()
    assert "good" not in re.findall(r"Bearer \w+", await talk.last.inner_text())
    await talk.say("say All is well.")
    await talk.ended()
    await expect(talk.last).to_contain_text("All is well.")


# Approvals.


async def test_an_approval_is_answered_after_a_restart(
    chromium: Browser, own_toolyard: RestartableToolyard, tmp_path: Path
) -> None:
    url = own_toolyard.start(write_tools="ask")
    talk = await ChatWindow.open(chromium, url)
    note_file = tmp_path / "files/note.txt"
    arguments = json.dumps({"path": str(note_file), "content": "remember"})
    await talk.say(f"call files_write_file {arguments}", "then", "say Written.")
    await expect(talk.card("files_write_file")).to_contain_text("Needs approval")
    assert not note_file.exists()
    own_toolyard.end(signal.SIGTERM)
    own_toolyard.start()
    await talk.page.reload()
    await talk.card("files_write_file").get_by_role("button", name=re.compile("^Allow once")).click()
    await talk.ended()
    await expect(talk.last).to_contain_text("Written.")
    assert note_file.read_text() == "remember"
    # It was good for once.
    await talk.say(f"call files_write_file {arguments}", "then", "say Not again.")
    await talk.card("files_write_file").get_by_role("button", name="Decline", exact=False).last.click()
    await talk.ended()
    await expect(talk.card("files_write_file")).to_contain_text("Declined")


# Stop, reload, kill.


async def test_stop_ends_the_model_and_the_tools(
    chromium: Browser, shared_toolyard: RestartableToolyard
) -> None:
    talk = await ChatWindow.open(chromium, shared_toolyard.url)
    await talk.say("say This much is there", "hold")
    await expect(talk.last).to_contain_text("This much is there")
    await talk.page.get_by_role("button", name="Stop").click()
    await expect(talk.last).to_contain_text("Stopped")
    await expect(talk.last).to_contain_text("This much is there")
    await talk.say('call everything_trigger-long-running-operation {"duration": 60, "steps": 120}')
    await expect(
        talk.card("everything_trigger-long-running-operation").get_by_role("progressbar")
    ).to_be_visible()
    await talk.page.keyboard.press("Escape")
    await expect(talk.last).to_contain_text("Stopped")


async def test_a_reload_in_the_middle_loses_and_repeats_nothing(
    chromium: Browser, shared_toolyard: RestartableToolyard
) -> None:
    talk = await ChatWindow.open(chromium, shared_toolyard.url)
    words = [f"word{number}" for number in range(60)]
    await talk.say("pace 0.05", f"say {' '.join(words)}")
    await expect(talk.last.locator(".md")).to_contain_text("word5")
    await talk.page.reload()
    await talk.ended()
    words_of_answer = (await talk.last.locator(".md").inner_text()).split()
    assert words_of_answer == words
    assert talk.said == []


async def test_a_killed_server_keeps_the_received_text_and_the_turn_can_be_retried(
    chromium: Browser, own_toolyard: RestartableToolyard
) -> None:
    talk = await ChatWindow.open(chromium, own_toolyard.start())
    await talk.say("say This much arrived", "hold")
    await expect(talk.last).to_contain_text("This much arrived")
    own_toolyard.end(signal.SIGKILL)
    own_toolyard.start()
    await talk.page.reload()
    await expect(talk.last).to_contain_text("Interrupted")
    await expect(talk.last).to_contain_text("This much arrived")
    await own_toolyard.release()
    await talk.last.get_by_role("button", name="Retry").click()
    await expect(talk.page.locator("article.turn").last).to_contain_text("This much arrived")


# Agents, and what BooChat's smoke plan asks of chat (steps 2 and 5).


async def test_an_agent_sees_only_its_own_tools_and_the_page_says_why(
    chromium: Browser, shared_toolyard: RestartableToolyard
) -> None:
    talk = await ChatWindow.open(chromium, shared_toolyard.url)
    await talk.page.get_by_label("Agent").select_option(label="Architect")
    await talk.say(
        'call context7_resolve-library-id {"library": "pytest"}',
        'call everything_echo {"message": "hidden"}',
        "then",
        "say Looked it up.",
    )
    await talk.ended()
    await expect(talk.card("context7_resolve-library-id")).to_contain_text("Done")
    await expect(talk.card("everything_echo").locator(".pill")).not_to_have_text("Done")
    model_requests = await shared_toolyard.journal()
    names = {tool["function"]["name"] for tool in model_requests[0]["tools"]}
    assert names == {"context7_query-docs", "context7_resolve-library-id"}
    await talk.page.get_by_role("link", name=re.compile("tools")).last.click()
    hidden = talk.page.locator(".hidden-tool", has_text="everything_echo")
    await expect(hidden).to_contain_text(re.compile("Hidden: .*(agent|pattern|architect)", re.IGNORECASE))


async def test_native_tools_and_those_of_servers_wear_different_icons(
    chromium: Browser, own_toolyard: RestartableToolyard, tmp_path: Path
) -> None:
    (tmp_path / "files/plan.md").write_text("first the walls")
    talk = await ChatWindow.open(chromium, own_toolyard.start(workspace_root=str(tmp_path / "files")))
    await talk.say(
        'call view_file {"path": "plan.md"}',
        'call everything_echo {"message": "hello"}',
        "then",
        "say Seen.",
    )
    await talk.ended()
    await expect(talk.card("view_file")).to_contain_text("first the walls")
    await expect(talk.card("view_file").locator(".kind.native")).to_be_visible()
    await expect(talk.card("everything_echo").locator(".kind.mcp")).to_be_visible()
    names = [tool["function"]["name"] for tool in (await own_toolyard.journal())[0]["tools"]]
    assert {"find_files", "grep", "list_dir", "view_file", "web_fetch", "everything_echo"} <= set(names)
    assert names == sorted(names)


# The console.


async def test_without_a_model_any_tool_can_be_run_by_hand(
    chromium: Browser, own_toolyard: RestartableToolyard
) -> None:
    (own_toolyard.data / "toolyard.toml").unlink()
    demo = {"command": sys.executable, "args": ["-m", "toolyard.cli.demo_server"]}
    (own_toolyard.data / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": demo}}))
    talk = await ChatWindow.open(chromium, own_toolyard.start())
    await talk.page.get_by_role("searchbox", name="Find a tool").fill("day of the week")
    await talk.page.get_by_role("link", name=re.compile("weekday", re.IGNORECASE)).first.click()
    await talk.page.get_by_label("date").fill("2026-07-28")
    await talk.page.get_by_role("button", name="Run").click()
    await expect(talk.last).to_contain_text("2026-07-28 is a Tuesday.")
    assert talk.said == []


# A real model.


async def test_a_real_model_without_a_key_or_a_network_answers(
    chromium: Browser, own_toolyard: RestartableToolyard
) -> None:
    """It is too small to choose tools, so nothing depends on its wits: it says something, and is stopped."""
    (weights,) = (ROOT / ".envs/local").rglob("*.gguf")
    (own_toolyard.data / "toolyard.toml").write_text(f'local_model = "{weights}"\n')
    (own_toolyard.data / "mcp.json").write_text('{"mcpServers": {}}')
    talk = await ChatWindow.open(chromium, own_toolyard.start())
    await talk.say("Say hello.")
    await expect(talk.last.locator(".md").last).to_have_text(re.compile(r"\w+"), timeout=90_000)
    # Stops it, unless it has come to its end.
    await talk.page.keyboard.press("Escape")
    await expect(talk.last.locator("footer .cost")).to_be_visible(timeout=90_000)
    assert talk.said == []


async def test_a_real_model_calls_a_tool_as_another_model_did(
    chromium: Browser, own_toolyard: RestartableToolyard
) -> None:
    """It is too small to choose a tool by itself, but repeats at temperature 0 what it finds in the chat."""
    (weights,) = (ROOT / ".envs/local").rglob("*.gguf")
    demo = {"command": sys.executable, "args": ["-m", "toolyard.cli.demo_server"]}
    (own_toolyard.data / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": demo}}))
    agent = "---\nname: Calendar\ntemperature: 0\ntools: [demo_weekday]\n---\nYou call tools.\n"
    (own_toolyard.data / "AGENTS.md").write_text(agent)
    talk = await ChatWindow.open(chromium, own_toolyard.start(local_model=str(weights)))
    await talk.page.get_by_label("Agent").select_option(label="Calendar")
    await talk.say('call demo_weekday {"date": "2024-01-01"}', "then", "results?")
    await talk.ended()
    await talk.page.get_by_label("Model").select_option(label="SmolLM2-135M-Instruct (local)")
    await talk.say('call demo_weekday {"date": "2026-07-28"}')
    await expect(talk.card("demo_weekday").first.locator(".pill")).to_have_text("Done")
    await expect(talk.card("demo_weekday").first).to_contain_text(re.compile(r"20\d\d-\d\d-\d\d is a \w+day"))
    await expect(talk.last.locator(".md").last).to_have_text(re.compile(r"\w+"))
    # Stops it, unless it has come to its end.
    await talk.page.keyboard.press("Escape")
    await expect(talk.last.locator("footer .cost")).to_be_visible()
    assert talk.said == []
