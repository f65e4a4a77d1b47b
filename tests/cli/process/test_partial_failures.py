"""One server or one tool that cannot be used is set aside with the reason, and the rest work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolyard.cli.output.notices import configuration_notices
from toolyard.types.server import Configuration, Server, StdioSpec

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_a_missing_variable_disables_one_server_only(cli: Cli, unusual_server: dict[str, Any]) -> None:
    cli.write(
        {"mcpServers": {"odd": unusual_server, "key": {"command": "x", "env": {"KEY": "${NO_SUCH_KEY}"}}}}
    )
    reason = "env.KEY needs the variable NO_SUCH_KEY, which is not set"
    result = cli("tools")
    assert result.code == 0
    assert "odd_typed\t" in result.out
    assert f"note: server 'key' is disabled: {reason}\n" in result.err
    assert f"key\tdisabled\t-\t-\t-\t{reason}" in cli("servers").lines
    checked_result = cli("check")
    assert (checked_result.code, f"server 'key': is disabled: {reason}" in checked_result.out) == (0, True)
    called_result = cli("call", "key_anything")
    assert (called_result.code, called_result.err.splitlines()[1]) == (
        4,
        f"hint: server 'key' is disabled: {reason}",
    )


def test_a_broken_definition_is_set_aside_alone(cli_with_server: Cli) -> None:
    result = cli_with_server("tools")
    reason = "tool 'broken' of server 'odd' is quarantined: inputSchema must be a JSON Schema"
    assert result.code == 0
    assert "odd_broken" not in result.out
    assert f"note: {reason}" in result.err
    assert reason in cli_with_server("check").out
    why = cli_with_server("why", "odd/broken")
    assert (why.code, "-> definition" in why.out, "in quarantine: inputSchema" in why.out) == (0, True, True)
    assert cli_with_server("call", "odd_broken").code == 4


def test_notices_about_quarantined_tools_and_dead_servers_appear_once(
    cli: Cli, unusual_server: dict[str, Any]
) -> None:
    entries: dict[str, Any] = {"odd": unusual_server, "gone": {"command": "/no/such/program"}}
    cli.write({"mcpServers": entries})
    first = cli("tools").err
    assert "tool 'broken' of server 'odd' is quarantined" in first
    assert "error: server 'gone': command not found" in first
    again = cli("tools").err
    assert "quarantined" not in again
    assert "error" not in again
    assert "note: still failing: gone\nhint: `toolyard servers` shows the causes\n" in again
    assert "quarantined" not in cli("servers").err
    # On request they are shown; and a failure that ends and returns is reported again.
    assert "is quarantined" in cli("tools", "--all").err
    assert "error: server 'gone': command not found" in cli("tools", "--server", "gone").err
    assert "is quarantined" in cli("check").out
    cli.write({"mcpServers": {"odd": unusual_server}})
    assert "failing" not in cli("tools").err
    cli.write({"mcpServers": entries})
    assert "error: server 'gone': command not found" in cli("tools").err


def test_an_emoji_in_a_name_becomes_a_name_that_can_be_called(cli_with_server: Cli) -> None:
    names = [line.split("\t")[0] for line in cli_with_server("tools").lines]
    assert "odd_party__" in names
    assert cli_with_server("call", "odd_party__", "{}").out == "{}\n"
    assert "odd_party__ (odd/party 🎉): allow" in cli_with_server("why", "odd/party 🎉").out


def test_names_that_collide_are_told_apart_and_check_says_so(cli_with_server: Cli) -> None:
    names = [
        name for line in cli_with_server("tools").lines if (name := line.split("\t")[0]).startswith("odd_a_b")
    ]
    assert len(names) == 2
    assert all(len(name) > len("odd_a_b") for name in names)
    output = cli_with_server("check").out
    for name, own in zip(sorted(names), ("a b", "a.b"), strict=False):
        assert f"exposed as '{name}': 'odd_a_b' is also claimed by odd/" in output, own


def test_a_server_that_fails_leaves_the_others_working(cli: Cli, unusual_server: dict[str, Any]) -> None:
    dies = {"command": "sh", "args": ["-c", "echo its last words >&2; exit 9"]}
    cli.write({"mcpServers": {"odd": unusual_server, "dies": dies}})
    result = cli("tools")
    assert result.code == 0
    assert "odd_typed\t" in result.out
    assert "error: server 'dies': exited with code 9: its last words\n" in result.err


def test_escape_sequences_of_a_server_do_not_reach_the_list(cli_with_server: Cli) -> None:
    result = cli_with_server("tools", "--server", "odd")
    assert "\x1b" not in result.out + result.err
    assert "odd_fail\t\ufffd[31mAlways\ufffd[0m fails" in result.lines


def test_a_server_is_reported_with_any_text_as_its_reason() -> None:
    server = Server("local", StdioSpec("npx"), enabled=False, disabled_reason="not approved of by its owner")
    notices = configuration_notices(Configuration({"local": server}))
    assert [notice.text for notice in notices] == ["server 'local' is disabled: not approved of by its owner"]
