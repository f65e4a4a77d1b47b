"""Every kind of exit has its code, and a message with a hint on standard error."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.conftest import ListeningProgram

MISSING_SERVER = {"command": "no-such-command-anywhere"}


def test_0_when_the_tool_answers(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_typed", "text=hi")
    assert (result.code, result.out, result.err) == (0, '{"text": "hi"}\n', "")


def test_1_when_the_tool_answers_with_an_error(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_fail")
    assert (result.code, result.out) == (1, "")
    assert result.err == "error: odd_fail returned an error: it went wrong\n"


def test_1_with_all_that_the_server_said_about_it(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_fail", '{"refuse": true}')
    assert (result.code, result.out) == (1, "")
    assert result.err == 'error: server \'odd\': not so (code -32602)\n{"field": "café"}\n'


def test_1_when_check_finds_problems(cli: Cli) -> None:
    cli.write({"mcpServers": {"a": {}}})
    assert cli("check").code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("no-such-command",),
        ("tools", "--no-such-option"),
        ("call",),
        ("call", "x", "--timeout", "0"),
        ("call", "x", "--timeout", "nan"),
        ("login", "x", "--timeout", "nan"),
        ("tools", "--provider", "nobody"),
        ("tools", "--server", "nobody"),
        ("tools", "--agent", "nobody"),
        ("tools", "--bundle", "nobody"),
        ("call", "odd_typed", "{"),
        ("call", "odd_typed", "[1]"),
        ("call", "odd_typed", "{}", "a=1"),
        ("call", "odd_typed", "word"),
        ("call", "odd_typed", "whole=much"),
        ("completion", "tcsh"),
        ("import", "no-such-file"),
        ("approve",),
        ("doctor", "nobody"),
    ],
    ids=" ".join,
)
def test_2_for_words_that_cannot_be_used(cli_with_server: Cli, words: tuple[str, ...]) -> None:
    result = cli_with_server(*words)
    assert result.code == 2
    assert result.err.startswith("error: ")


def test_2_names_the_nearest_command(cli: Cli) -> None:
    assert cli("setings").err == "error: unknown command 'setings'\nhint: did you mean 'settings'?\n"


def test_3_when_the_server_cannot_be_reached(cli: Cli) -> None:
    cli.write({"mcpServers": {"gone": MISSING_SERVER}})
    result = cli("call", "gone_tool", "a=1")
    assert result.code == 3
    assert result.err.startswith("error: server 'gone': command not found: no-such-command-anywhere\nhint: ")
    assert cli("call", "gone_tool").code == 3
    assert cli("tools", "--server", "gone").code == 3


def test_4_for_a_hidden_tool_with_the_rule_and_for_an_unknown_one(cli_with_server: Cli) -> None:
    hidden, missing = cli_with_server("call", "odd_write", "a=1"), cli_with_server("call", "odd_absent")
    assert (hidden.code, missing.code) == (4, 4)
    assert hidden.err.splitlines() == [
        "error: 'odd_write' is hidden: this tool can change data (readOnlyHint is false), "
        "and write_tools is 'reject'",
        "hint: set write_tools to 'ask' or 'allow' to use it; `toolyard why odd_write` explains all rules",
    ]
    assert missing.err.splitlines()[0] == "error: no tool named 'odd_absent' is available"


def test_4_for_a_misspelled_hidden_tool_suggests_it_with_the_rule(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_wirte", "a=1")
    assert (result.code, result.err.splitlines()) == (
        4,
        [
            "error: no tool named 'odd_wirte' is available",
            "hint: did you mean 'odd_write'? It is hidden (write tools): this tool can change data "
            "(readOnlyHint is false), and write_tools is 'reject'",
        ],
    )


def test_4_names_the_rule_of_an_agent_too(cli_with_server: Cli) -> None:
    cli_with_server.agents("## Reader\n---\ntools: [odd_image]\n---\nRead.\n")
    result = cli_with_server("call", "odd_typed", "--agent", "reader")
    assert (result.code, result.err.splitlines()) == (
        4,
        [
            "error: 'odd_typed' is hidden: no pattern of agent 'reader' matches 'odd_typed'",
            "hint: `toolyard why odd_typed --agent reader` explains all rules",
        ],
    )


def test_4_comes_before_complaints_about_arguments(cli_with_server: Cli) -> None:
    cli_with_server.agents("## Reader\n---\ntools: [odd_image]\n---\nRead.\n")
    result = cli_with_server("call", "odd_typed", "whole=much", "--agent", "reader")
    assert (result.code, "whole" in result.err) == (4, False)


def test_5_when_the_server_wants_credentials(cli: Cli, hostile_http: ListeningProgram) -> None:
    cli.write({"mcpServers": {"web": {"url": f"{hostile_http.url}/status-401/x?when=always"}}})
    result = cli("call", "web_echo")
    assert result.code == 5, result.err
    assert result.err.startswith("error: server 'web': ")


def test_6_when_it_takes_too_long(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_never", "--timeout", "0.5")
    assert (result.code, result.err) == (6, "error: 'odd_never' took longer than 0.5 s\n")


def test_6_also_while_it_is_being_started(cli: Cli) -> None:
    cli.write({"mcpServers": {"slow": {"command": "sleep", "args": ["30"]}}})
    assert cli("call", "slow_tool", "--timeout", "0.5").code == 6


def test_6_when_the_outcome_is_unknown(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_die")
    assert result.code == 6
    assert result.err.startswith("error: server 'odd': exited with code 7")
    assert "hint: the call may have been executed" in result.err


def test_errors_are_json_where_json_is_wanted(cli_with_server: Cli) -> None:
    for words, kind, code in [
        (("call", "odd_absent", "--json"), "ToolRefused", 4),
        (("--json", "call", "odd_die"), "OutcomeUnknown", 6),
        (("call", "odd_typed", "whole=much", "--json"), "Usage", 2),
        (("tools", "--no-such-option", "--json"), "Usage", 2),
    ]:
        result = cli_with_server(*words)
        error = result.json["error"]
        assert (result.code, error["exit_code"], error["kind"], result.err) == (code, code, kind, "")


def test_a_tools_own_error_is_json_too(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_fail", "--json")
    assert result.code == 1
    assert result.json["is_error"] is True
    assert result.json["error"]["message"] == "it went wrong"


def test_a_secret_does_not_show_in_an_error(cli: Cli) -> None:
    script = "import os, sys; sys.exit('refused ' + os.environ['API_TOKEN'])"
    entry = {"command": sys.executable, "args": ["-c", script], "env": {"API_TOKEN": "s3cret-value-1"}}
    cli.write({"mcpServers": {"leaky": entry}})
    for words in (
        ("call", "leaky_x", "a=1"),
        ("tools",),
        ("servers",),
        ("servers", "--json"),
        ("doctor",),
        ("tools", "--json"),
        ("why", "leaky/x"),
    ):
        result = cli(*words)
        assert "s3cret-value-1" not in result.out + result.err, words
        assert "refused" in result.out + result.err, words


def test_problems_are_json_with_their_places(cli: Cli) -> None:
    path = cli.write('{"servers": {\n  "a": {"trust": "trusted"}\n}}')
    result = cli("tools", "--json")
    assert result.code == 2
    (problem,) = result.json["error"]["problems"]
    assert (problem["file"], problem["line"]) == (str(path), 2)
    assert json.loads(cli("check", "--json").out)["problems"] == [problem]


def test_a_missing_folder_causes_no_traceback(cli: Cli) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m toolyard tools'
    result = cli.run(["sh", "-c", script, sys.executable])
    assert result.code == 1
    assert result.err.startswith("error: the current folder no longer exists")
