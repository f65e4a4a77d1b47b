"""Run every coding agent through every situation, and print the table.

``python -m tests.agents_matrix [--only CLIENT] [--column TITLE] [--write-docs]``. Each cell has a machine of
its own: a home, a data directory and a background process. Exits with 1 if a cell is not as expected.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import os
import re
import signal
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.agents_matrix.coding_agents import AGENTS, PROMPT, CodingAgent
from tests.agents_matrix.scripted_model import Call, ScriptedModel
from tests.background.conftest import Machine, make_machine, wait_until
from tests.processes import is_running

DOCS = Path(__file__).parents[2] / "docs/agents-matrix.md"
PROMPTS_SERVER = Path(__file__).with_name("prompt_and_resource_server.py")
RESULTS_SERVER = Path(__file__).parents[1] / "servers/results_server.py"
LONG_RESULT_CHARACTERS = 200_000
MAX_NOTE = 300

MEANINGS = {
    "lists tools": "the first request to the model declares Toolyard's tools",
    "calls a tool": "the model gets the result",
    "long result": f"of {LONG_RESULT_CHARACTERS:,} characters, "
    f"the model gets the beginning and Toolyard's link to the whole",
    "picture": "the model gets the picture of a result as a picture",
    "resource": "the model reads a server's resource by a tool of the agent",
    "prompt": "the command that the agent makes of a server's prompt sends the prompt's text to the model",
    "write tool refused": "with `write_tools` at `reject`, it is not declared; a call ends with a message",
    "meta mode": "with `--mode meta`, only the meta tools are declared, and `tools_call` calls a tool",
    "background process killed": "the agent is attached to it; after `kill -9` its next call works",
    "tools changed": "a server that is added during the session is declared in a request within five seconds",
    "approval": "with `write_tools` at `ask`, the tool does not run without a person, and a message says so",
    "question": (
        "nobody answers a server's question here: the call ends with `decline` or `cancel`, or after "
        "`ask_wait` with a link to the page that asks"
    ),
    "question with a URL": "the same for a question that asks the person to open a page",
    "first client": (
        "the agent starts while no background process runs, and starts it; "
        "a call works once the tools are listed"
    ),
}
"""The meaning of "yes" in each column."""

LIMITS = {
    ("codex", "long result"): (
        "the model gets the first and the last 6,000 characters, without the link in the middle; the second "
        "text, which has the link too, is left out: `[omitted 1 text items ...]`. In Codex's source, "
        "`utils/output-truncation/src/lib.rs` gives one budget to all texts of a result"
    ),
    ("codex", "tools changed"): (
        "another client of the same process listed the new tool; the requests of Codex in the five seconds "
        "after that did not declare it. In Codex's source, `on_tool_list_changed` in "
        "`rmcp-client/src/logging_client_handler.rs` only writes a line to the log"
    ),
    ("codex", "approval"): (
        "with `--dangerously-bypass-approvals-and-sandbox`, the tool runs. In Codex's source, "
        "`can_auto_accept_elicitation` in `codex-mcp/src/elicitation.rs` then accepts every form without "
        "fields, and Toolyard's question is one. Without this option it refuses the call: `MCP tool call "
        "requires approval, but approval policy is never`"
    ),
    ("codex", "prompt"): "the model gets the command as it was written",
    ("claude-code", "long result"): (
        "Claude Code stores a result of this length in a file, and gives the model the first 2 kB and the "
        "file's path"
    ),
    ("copilot", "long result"): (
        "Copilot CLI stores a result of this length in a file, and gives the model the first 500 characters "
        "and the file's path"
    ),
    ("copilot", "picture"): (
        "Copilot CLI prints `[Image: [image/png] 64x64]`, and gives the model an empty result; tried with "
        "the model name `claude-sonnet-4.5` only"
    ),
    ("copilot", "resource"): "Copilot CLI declares no tool that reads resources",
    ("copilot", "prompt"): "the model gets the command as it was written",
    ("cline", "long result"): (
        "cline cuts the result's JSON to 8,000 characters in its middle: `...[truncated 56077 chars]...`"
    ),
    ("cline", "picture"): "cline gives the model the result's JSON as text, with the picture in base64",
    ("cline", "resource"): "cline declares no tool that reads resources",
    ("cline", "prompt"): (
        "without a terminal, cline refuses it: `Unknown command or unquoted prompt`; not tried in its user "
        "interface"
    ),
    ("cline", "tools changed"): (
        "another client of the same process listed the new tool; the requests of cline in the five seconds "
        "after that did not declare it"
    ),
    ("qwen", "lists tools"): (
        "Qwen Code declares no tools of servers. It names them in a text, and the model calls them by "
        "`tool_call`, as it does in the other columns"
    ),
    ("qwen", "long result"): (
        "Qwen Code stores a result of this length in a file, and gives the model the first 2,000 characters "
        "and the file's path"
    ),
    ("qwen", "picture"): (
        "Qwen Code replaces the picture with `[image: image/png]`; tried with a model name that it does not "
        "know only"
    ),
    ("qwen", "tools changed"): "as in the column *lists tools*: no tool of a server is declared",
}
"""The clients' own limits, with the evidence."""


@dataclass(frozen=True)
class Cell:
    passed: bool
    note: str = ""


@dataclass(frozen=True)
class AgentSession:
    """One agent on one machine."""

    agent: CodingAgent
    machine: Machine

    def run(
        self, *script: Call, mode: str = "direct", prompt: str = PROMPT, is_first: bool = False
    ) -> ScriptedModel:
        self.agent.connect(self.machine, mode=mode)
        if not is_first:
            self.machine.start().initialize()
        with ScriptedModel(script) as model:
            output = self.agent.run(self.machine, model.url, prompt=prompt)
        if not model.requests:
            raise AssertionError(f"no request came: {output[-500:]}")
        return model

    def add_results_server(self) -> None:
        self.machine.write_config(results={"command": sys.executable, "args": ["-I", str(RESULTS_SERVER)]})

    def add_prompts_server(self) -> None:
        self.machine.write_config(more={"command": sys.executable, "args": ["-I", str(PROMPTS_SERVER)]})


def weekday(day: int, before: Callable[[], object] = lambda: None) -> Call:
    return Call("demo_weekday", {"date": f"2026-07-{day}"}, before)


def list_tools(session: AgentSession) -> Cell:
    model = session.run()
    return Cell(model.requests[0].find("demo_weekday") is not None)


def call_tool(session: AgentSession) -> Cell:
    model = session.run(weekday(28))
    return Cell("is a Tuesday." in "".join(model.results))


def read_long_result(session: AgentSession) -> Cell:
    session.add_results_server()
    result = "".join(session.run(Call("results_long", {"size": LONG_RESULT_CHARACTERS})).results)
    has_link = "0123456789" in result and "toolyard://results/" in result
    words = re.sub(r"(0123456789){2,}\d*", "0123456789… ", result)
    return Cell(has_link, f"{len(result):,} characters: {words}")


def see_picture(session: AgentSession) -> Cell:
    session.add_results_server()
    arguments = {"mime": "image/png", "data": base64.b64encode(make_picture()).decode()}
    model = session.run(Call("results_media", arguments))
    return Cell(model.requests[-1].has_picture, "".join(model.results))


def make_picture(size: int = 64) -> bytes:
    """Return a red square as PNG."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * size) * size
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def read_resource(session: AgentSession) -> Cell:
    session.add_prompts_server()
    resources = session.machine.start().initialize().ask("resources/list")["result"]["resources"]
    uri = next(each["uri"] for each in resources if "greeting" in each["uri"])
    arguments = {"server_name" if session.agent.client == "qwen" else "server": "toolyard", "uri": uri}
    tool = "ReadMcpResourceTool" if session.agent.client == "claude-code" else "read_mcp_resource"
    result = "".join(session.run(Call(tool, arguments)).results)
    return Cell("Good morning from the resource" in result, result)


def use_prompt(session: AgentSession) -> Cell:
    session.add_prompts_server()
    client = session.machine.start().initialize()
    prompts = client.ask("prompts/list")["result"]["prompts"]
    name = next(each["name"] for each in prompts if "greet" in each["name"])
    command = session.agent.prompt_command.replace("NAME", name)
    request = session.run(prompt=command).requests[0]
    return Cell("Good morning from the prompt" in request.text, command if command in request.text else "")


def refuse_write_tool(session: AgentSession) -> Cell:
    model = session.run(Call("demo_forget", {}))
    is_hidden = all(request.find("demo_forget") is None for request in model.requests)
    return Cell(is_hidden, "".join(model.results))


def use_meta_mode(session: AgentSession) -> Cell:
    call = Call("tools_call", {"name": "demo_weekday", "arguments": {"date": "2026-07-28"}})
    model = session.run(call, mode="meta")
    is_short = model.requests[0].find("demo_weekday") is None
    return Cell(is_short and "is a Tuesday." in "".join(model.results), "".join(model.results))


def survive_restart(session: AgentSession) -> Cell:
    machine = session.machine
    clients: list[object] = []

    def kill() -> None:
        clients.extend(machine.status()["clients"])
        owner = machine.owner
        os.kill(owner, signal.SIGKILL)
        wait_until(lambda: not is_running(owner))

    model = session.run(weekday(28), weekday(29, kill))
    words = "".join(model.results[1:])
    return Cell(len(clients) == 2 and "is a Wednesday." in words, words)


def see_changed_tools(session: AgentSession) -> Cell:
    machine = session.machine

    def add_server() -> None:
        config = json.loads((machine.data / "mcp.json").read_text())
        machine.write_config(more=config["mcpServers"]["demo"])
        client = machine.clients[0]
        wait_until(lambda: "more_weekday" in json.dumps(client.ask("tools/list")))

    # The agent is notified and lists the tools again, because the model takes its time.
    later = [weekday(30, lambda: time.sleep(1)) for _ in range(5)]
    model = session.run(weekday(28), weekday(29, add_server), *later)
    return Cell(model.requests[-1].find("more_weekday") is not None)


def ask_for_approval(session: AgentSession) -> Cell:
    (session.machine.data / "toolyard.toml").write_text('write_tools = "ask"\n')
    words = "".join(session.run(Call("demo_forget", {})).results)
    return Cell("Nothing to delete" not in words and "approv" in words, words)


def ask_question(session: AgentSession, **arguments: str) -> Cell:
    (session.machine.data / "toolyard.toml").write_text("ask_wait = 5\n")
    session.add_results_server()
    words = "".join(session.run(Call("results_ask", arguments)).results)
    # Slashes and quotation marks are escaped in the results of some agents.
    is_cancel = re.search(r"action\W+(decline|cancel)\b", words) is not None
    return Cell(is_cancel or re.search(r"http:\S+/ui/", words) is not None, words)


def ask_to_open_page(session: AgentSession) -> Cell:
    return ask_question(session, url="https://example.org/where")


def start_background_process(session: AgentSession) -> Cell:
    machine = session.machine
    # The first request may come before the tools are listed.
    model = session.run(
        weekday(28, lambda: wait_until(lambda: len(machine.status().get("clients", [])) == 1)),
        weekday(29, lambda: time.sleep(1)),
        weekday(30),
        is_first=True,
    )
    words = (
        "" if model.requests[0].find("demo_weekday") else "the first request declares no tools of Toolyard"
    )
    return Cell(len(machine.backgrounds) == 1 and "is a Thursday." in "".join(model.results), words)


CHECKS: dict[str, Callable[[AgentSession], Cell]] = {
    "lists tools": list_tools,
    "calls a tool": call_tool,
    "long result": read_long_result,
    "picture": see_picture,
    "resource": read_resource,
    "prompt": use_prompt,
    "write tool refused": refuse_write_tool,
    "meta mode": use_meta_mode,
    "background process killed": survive_restart,
    "tools changed": see_changed_tools,
    "approval": ask_for_approval,
    "question": ask_question,
    "question with a URL": ask_to_open_page,
    "first client": start_background_process,
}


def check(agent: CodingAgent, column: str) -> Cell:
    with make_machine() as machine:
        try:
            cell = CHECKS[column](AgentSession(agent, machine))
        except AssertionError as error:
            cell = Cell(False, str(error))
        # Without the parts that differ from run to run.
        note = re.sub(rf"{re.escape(str(machine.home.parent))}\S+", "FILE", cell.note)
        note = re.sub(r"http://127\.0\.0\.1:\d+/open/[\w-]+", "http://127.0.0.1:PORT/open/KEY", note)
        note = re.sub(r"Wall time: [\d.]+ seconds", "", note)
    return Cell(cell.passed, re.sub(r"\s+", " ", note).strip()[-MAX_NOTE:])


def format_page(agents: Sequence[CodingAgent], cells: Mapping[tuple[str, str], Cell]) -> str:
    lines = [f"| agent | version | {' | '.join(CHECKS)} |", "|---" * (len(CHECKS) + 2) + "|"]
    for agent in agents:
        marks = ["yes" if cells[agent.client, column].passed else "no" for column in CHECKS]
        lines.append(f"| {agent.title} | {agent.version} | {' | '.join(marks)} |")
    lines += ["", "| column | yes |", "|---|---|"]
    lines += [f"| {column} | {meaning} |" for column, meaning in MEANINGS.items()]
    lines += ["", "## Why not", "", "| agent | column | reason |", "|---|---|---|"]
    for agent in agents:
        for column in CHECKS:
            if not cells[agent.client, column].passed:
                reason = LIMITS.get((agent.client, column), "not known yet")
                lines.append(f"| {agent.title} | {column} | {reason} |")
    lines += ["", "## The last words that the model got", "", "| agent | column | words |", "|---|---|---|"]
    for agent in agents:
        for column in CHECKS:
            words = html.escape(cells[agent.client, column].note, quote=False).replace("|", "\\|")
            if words:
                lines.append(f"| {agent.title} | {column} | {words} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", help="the name of a client for `toolyard connect`")
    parser.add_argument("--column", action="append")
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    agents = [each for each in AGENTS if not options.only or each.client in options.only]
    cells: dict[tuple[str, str], Cell] = {}
    for agent in agents:
        for column in options.column or CHECKS:
            cell = cells[agent.client, column] = check(agent, column)
            print(f"{agent.client:12} {column:26} {'yes' if cell.passed else 'no':4} {cell.note}", flush=True)
    if options.write_docs:
        head, mark, _ = DOCS.read_text().partition("<!-- matrix -->\n")
        DOCS.write_text(head + mark + "\n" + format_page(agents, cells))
    unexpected = [key for key, cell in cells.items() if cell.passed == (key in LIMITS)]
    for client, column in unexpected:
        print(f"not as expected: {client}, {column}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    raise SystemExit(main())
