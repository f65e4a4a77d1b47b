"""``toolyard chat -p``: one turn for scripts, its streams and exit codes; and the same chats in the web."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests import prefork
from tests.processes import is_running

from toolyard.store import Database
from toolyard.types.stored_model import ModelAudience, StoredModel

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, CliWithChat

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(0.02)


def script(*lines: str) -> str:
    return "\n".join(lines)


# Output streams.


def test_the_answer_is_on_standard_output_and_all_else_beside_it(cli_with_chat: CliWithChat) -> None:
    result = cli_with_chat(
        "chat",
        "-p",
        script(
            "think hm, well", 'call chat_look {"text": "there"}', "then", "say All is well.", "say Really."
        ),
    )
    assert (result.code, result.out) == (0, "All is well.Really.\n")
    assert (
        result.err == 'hm, well\n● chat_look (chat) {"text": "there"}\n' + result.err.splitlines()[-1] + "\n"
    )
    assert result.err.splitlines()[-1].endswith("look: there")
    assert cli_with_chat.noted == ['look {"text": "there"}']


def test_words_before_and_after_calls_errors_in_full_and_pictures_described(
    cli_with_chat: CliWithChat,
) -> None:
    calls = ("call chat_fail {}", "call chat_none {}", "call chat_picture {}")
    result = cli_with_chat("chat", "-p", "-", input=script("say First.", *calls, "then", "say Sorry."))
    assert (result.code, result.out) == (0, "First.\nSorry.\n")
    assert "it failed" in result.err
    assert "no tool named 'chat_none' is available" in result.err
    assert "a picture" in result.err
    assert "[image/png, " in result.err
    assert cli_with_chat("chat", "-p", "-", input=" \n").code == 2


# Exit codes.


def test_failing_servers_are_reported_once(cli_with_chat: CliWithChat) -> None:
    entries = json.loads((cli_with_chat.data / "mcp.json").read_text())["mcpServers"]
    dead = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    other = {"command": "no-such-program-anywhere"}

    def run_turn() -> str:
        command_result = cli_with_chat("chat", "-p", "say Done.")
        assert (command_result.code, command_result.out) == (0, "Done.\n")
        return command_result.err

    cli_with_chat.write({"mcpServers": {**entries, "dead": dead}})
    assert "note: the tools of dead cannot be listed" in run_turn()
    repeated_notice = (
        "note: 1 earlier note still applies\nhint: `toolyard servers` shows the servers that fail\n"
    )
    assert run_turn() == repeated_notice
    cli_with_chat.write({"mcpServers": {**entries, "dead": dead, "other": other}})
    assert "the tools of other cannot be listed" in (result := run_turn())
    assert "the tools of dead" not in result
    # A failure that ends and comes back is reported again.
    cli_with_chat.write({"mcpServers": entries})
    assert run_turn() == ""
    cli_with_chat.write({"mcpServers": {**entries, "dead": dead}})
    assert "note: the tools of dead cannot be listed" in run_turn()


def test_a_server_that_timed_out_before_is_waited_for_only_shortly(cli_with_chat: CliWithChat) -> None:
    entries = json.loads((cli_with_chat.data / "mcp.json").read_text())["mcpServers"]
    hang = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}

    def configure(seconds: int) -> None:
        cli_with_chat.write({"mcpServers": {**entries, "hang": {**hang, "timeouts": {"connect": seconds}}}})

    configure(1)
    assert "did not answer within 1 s" in cli_with_chat("tools").err
    # As if it had been tried an hour ago, with the longer timeout.
    configure(300)
    with contextlib.closing(sqlite3.connect(cli_with_chat.data / "catalogue.db")) as database, database:
        database.execute(
            "UPDATE failures SET failed_at = failed_at - 3600, entry_hash = replace(entry_hash, ' 1', ' 300')"
        )
    result = cli_with_chat("chat", "-p", "say Done.")
    assert (result.code, result.out) == (0, "Done.\n")
    assert "note: the tools of hang cannot be listed: did not answer within 1 s" in result.err


def test_a_model_that_fails_is_3(cli_with_chat: CliWithChat) -> None:
    result = cli_with_chat("chat", "-p", "fault 401")
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("error: ")
    assert "hint: " in result.err
    half = cli_with_chat("chat", "-p", "fault die")
    assert (half.code, half.out) == (3, "Half an ans\n")


def test_a_limit_is_6(cli_with_chat: CliWithChat) -> None:
    result = cli_with_chat("chat", "-p", script("call chat_look {}", "then", "say x"), TOOLYARD_MAX_STEPS="1")
    assert result.code == 6
    assert "error: " in result.err


def test_without_a_terminal_calls_are_refused_with_exit_code_4(cli_with_chat: CliWithChat) -> None:
    words = script('call chat_put {"text": "x"}', "then", "results?")
    result = cli_with_chat("chat", "-p", words, TOOLYARD_WRITE_TOOLS="ask")
    assert result.code == 4
    assert "chat_put was refused: it needs an approval, and nobody is here to give it" in result.err
    assert "the call was refused: it needs approval, and nobody is here to give it" in result.out
    assert cli_with_chat.noted == []
    requested_result = cli_with_chat("chat", "-p", script("call chat_ask {}", "then", "results?"))
    assert requested_result.code == 4
    assert '{"action": "decline"}' in requested_result.out
    assert "chat asked a question, and nobody is here to answer it" in requested_result.err


def test_an_interrupt_stops_the_turn_and_it_is_130(cli_with_chat: CliWithChat) -> None:
    process = cli_with_chat.start(
        "chat", "-p", script("say Wait", "call chat_wait {}"), start_new_session=True
    )
    try:
        until(lambda: cli_with_chat.noted == ["wait {}"])
        (child,) = _children(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (130, "Wait\n")
        assert "stopped" in err
        until(lambda: not is_running(child))
    finally:
        process.kill()
    ((_, state),) = cli_with_chat.chats
    assert state == "idle"


def test_an_interrupt_ends_the_call_of_the_model(cli_with_chat: CliWithChat) -> None:
    process = cli_with_chat.start("chat", "-p", script("say Now", "hold"), start_new_session=True)
    try:
        until(lambda: len(cli_with_chat.asked) == 1)
        assert process.stdout.read(3) == "Now"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        until(lambda: cli_with_chat.asked[0]["ended"] == "aborted")
    finally:
        process.kill()


def test_without_a_model_it_says_how_to_configure_one(cli: Cli) -> None:
    # As on a machine without a local model.
    (cli.home / "sitecustomize.py").write_text("import sys\nsys.modules['xllamacpp'] = None\n")
    result = cli("chat", "-p", "hello", PYTHONPATH=str(cli.home))
    assert result.code == 2
    assert result.err.startswith("error: no model is configured\nhint: ")
    for word in ("toolyard.toml", "OPENAI_API_KEY", "model_base_url", "toolyard[local]"):
        assert word in result.err
    assert not (cli.data / "toolyard.db").exists()


def test_a_model_that_is_named_needs_no_entry(cli_with_chat: CliWithChat) -> None:
    (cli_with_chat.data / "toolyard.toml").unlink()
    env = {"OPENAI_API_KEY": "good", "OPENAI_BASE_URL": f"{cli_with_chat.model}/v1"}
    result = cli_with_chat("chat", "--model", "openai:fake-2", "-p", "say Named.", **env)
    assert (result.code, result.out) == (0, "Named.\n")
    assert cli_with_chat.asked[0]["model"] == "fake-2"


def test_models_of_the_web_app_are_there_unless_they_are_for_others(cli_with_chat: CliWithChat) -> None:
    (cli_with_chat.data / "toolyard.toml").unlink()

    async def store() -> None:
        database = await Database.open(cli_with_chat.data, url=None, secret_key=None)
        stored_model = StoredModel(
            "house",
            "openai",
            "fake-3",
            base_url=f"{cli_with_chat.model}/v1",
            private_addresses=True,
            api_key="good",
            input_price=1.0,
            output_price=1.0,
        )
        await database.models.add_model(stored_model)
        for_ann = replace(stored_model, name="anns", audience=ModelAudience.PEOPLE, people=("ann",))
        await database.models.add_model(for_ann)
        await database.close()

    asyncio.run(store())
    result = cli_with_chat("chat", "-p", "say Stored.")
    assert (result.code, result.out) == (0, "Stored.\n"), result.err
    assert cli_with_chat.asked[0]["model"] == "fake-3"
    refused_result = cli_with_chat("chat", "--model", "anns", "-p", "say x")
    assert refused_result.code == 2
    assert "unknown model 'anns'" in refused_result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--agent", "none", "-p", "x"), "unknown agent 'none'"),
        (("--model", "none", "-p", "x"), "unknown model 'none'"),
        (("--resume", "abc", "-p", "x"), "abc: chat not found"),
        (("--resume", "-p", "x"), "no chat to resume"),
        (("--bundle", "none", "-p", "x"), "none"),
        (("-p", " "), "the prompt is empty"),
        (("--json",), '"message": "--json requires -p or --list"'),
        ((), "a conversation requires a terminal"),
    ],
)
def test_contradictory_options_are_reported(
    cli_with_chat: CliWithChat, words: tuple[str, ...], message: str
) -> None:
    result = cli_with_chat("chat", *words)
    assert result.code == 2
    assert message in result.err + result.out
    assert cli_with_chat.chats == []


# Chat and model options.


def test_an_agent_decides_which_tools_are_available(cli_with_chat: CliWithChat) -> None:
    cli_with_chat.agents("## Looker\n---\ntools: [chat_look]\n---\nLook.\n")
    result = cli_with_chat("chat", "--agent", "Looker", "-p", "tools?")
    assert (result.code, result.out) == (0, "chat_look\n")
    assert cli_with_chat.asked[0]["messages"][0] == {"role": "system", "content": "Look."}


def test_a_bundle_decides_too(cli_with_chat: CliWithChat) -> None:
    server = json.loads((cli_with_chat.data / "mcp.json").read_text())["mcpServers"]["chat"]
    strict = {"trust": "trusted", "transport": {"type": "stdio", **server}}
    bundle = {"serverId": "chat", "mode": "direct", "allowTools": ["look", "fail"]}
    cli_with_chat.write({"servers": {"chat": strict}, "bundles": {"few": bundle}})
    result = cli_with_chat("chat", "--bundle", "few", "-p", "tools?")
    assert {"chat_look", "chat_fail"} == set(result.out.split()) - {"web_fetch"}


def test_a_chat_is_gone_on_with_and_listed(cli_with_chat: CliWithChat) -> None:
    (cli_with_chat.data / "toolyard.db").unlink()
    assert cli_with_chat("chat", "--list").err.startswith("note: no chats yet")
    assert not (cli_with_chat.data / "toolyard.db").exists()
    cli_with_chat("chat", "-p", "say One.")
    cli_with_chat("chat", "-p", "say Two.")
    first = cli_with_chat("chat", "--list", "--json").json[-1]
    assert first["title"] == "say One."
    result = cli_with_chat("chat", "--resume", first["id"][:8], "-p", "say Three.")
    assert (result.code, result.out) == (0, "Three.\n")
    contents = [message["content"] for message in cli_with_chat.asked[-1]["messages"]]
    assert contents == ["say One.", "One.", "say Three."]
    lines = cli_with_chat("chat", "--list").lines
    assert [line.split("\t")[1] for line in lines] == ["say One.", "say Two."]


@pytest.fixture
def web(cli_with_chat: CliWithChat) -> Iterator[Callable[..., Any]]:
    """``web(path)``: request a page of a Toolyard on the same data directory, started on demand."""
    processes: list[tuple[subprocess.Popen[str], str]] = []

    def ask(path: str, body: object = None) -> Any:
        if not processes:
            words = cli_with_chat.words("serve", "--port", "0")
            process = prefork.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=cli_with_chat.environment(),
                cwd=cli_with_chat.home,
            )
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("Toolyard is listening on "))
            processes.append((process, line.split()[-1].rstrip("/")))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            processes[0][1] + path, data, {"Content-Type": "application/json", "Accept": "*/*"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    yield ask
    for process, _ in processes:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def test_the_web_app_and_the_terminal_have_the_same_chats(cli_with_chat: CliWithChat, web: Any) -> None:
    result = cli_with_chat(
        "chat", "-p", script('call chat_look {"text": "x"}', "then", "say Done."), "--json"
    )
    assert (result.code, result.err) == (0, "")
    events = [json.loads(line) for line in result.lines]
    kinds = [one["kind"] for one in events]
    assert (kinds[0], kinds[-1]) == ("user", "end")
    # Streamed text is left out if the whole message was complete before it was written.
    assert {"call", "result", "said", "usage"} <= set(kinds)
    (chat,) = web("/api/v1/chats")["items"]
    at = f"/api/v1/chats/{chat['id']}"
    pieces = ("text", "reasoning", "progress")
    assert [one for one in events if one["kind"] not in pieces] == web(f"{at}/events")["items"]
    entries = web("/api/v1/audit?action=tool.call")["items"]
    assert [one["target"] for one in entries] == ["chat/look"]
    # And vice versa.
    web(f"{at}/messages", {"text": "say In the web."})
    until(lambda: web(at)["state"] == "idle")
    assert cli_with_chat("chat", "--resume", "-p", "say Again here.").out == "Again here.\n"
    contents = [message["content"] for message in cli_with_chat.asked[-1]["messages"]]
    assert contents[-3:] == ["say In the web.", "In the web.", "say Again here."]


def _children(pid: int) -> list[int]:
    import psutil

    return [
        child.pid for child in psutil.Process(pid).children() if "chat_server" in " ".join(child.cmdline())
    ]


def test_the_list_of_exit_codes_matches_the_code() -> None:
    from toolyard.cli.chat.chat_run import EXIT_CODES
    from toolyard.types.chat import TurnOutcome

    assert set(EXIT_CODES) == set(TurnOutcome)


def test_chats_and_events_have_the_shape_of_the_api() -> None:
    from toolyard.cli.chat.chat_run import event_json
    from toolyard.cli.commands.chat import chat_json
    from toolyard.types.chat import Chat, ChatEvent, Kind
    from toolyard.web.api.chat_models import ChatResponse, EventResponse

    chat = Chat("c1", "local", "Ünïcode", 1.5, 2_000_000_000.25, choice=("s/one",))
    assert json.loads(json.dumps(chat_json(chat))) == ChatResponse.of(chat).model_dump(mode="json")
    event = ChatEvent("c1", 3, 1, Kind.USER, 1_700_000_000.125, {"text": "é"})
    assert json.loads(json.dumps(event_json(event))) == EventResponse.of(event).model_dump(mode="json")
