"""``toolyard check`` of a valid configuration, and its remarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_nothing_configured_is_fine(cli: Cli) -> None:
    result = cli("check")
    assert (result.code, result.lines[-1]) == (0, "no problems, 0 notes")
    assert not cli.data.exists()


def test_notes_stop_nothing(cli: Cli, unusual_server: dict[str, Any]) -> None:
    npx = {"command": "npx", "args": ["-y", "some-server"]}
    entry = {**unusual_server, "denyTools": ["nope*"], "allwaysAllow": []}
    path = cli.write({"mcpServers": {"odd": entry, "npx": npx, "off": {**unusual_server, "disabled": True}}})
    cli("tools", "--server", "odd")
    result = cli("check")
    assert result.code == 0
    for words in (
        f"{path}:14: mcpServers.odd.allwaysAllow",
        "server 'odd': 'nope*' in denyTools matches no tool of the server",
        f"{path}:3: tool 'broken' of server 'odd' is quarantined",
        "server 'npx': runs the latest version of 'some-server', which can change at any time",
        "server 'npx': has not been listed yet",
        "server 'off': is disabled: turned off in its entry",
    ):
        assert words in result.out, result.out


def test_servers_that_are_not_listed_yet_share_one_note(cli: Cli, unusual_server: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"odd": unusual_server, "even": unusual_server}})
    result = cli("check")
    assert "note: not listed yet, so their tools are unknown: odd, even\nhint: " in result.out
    assert result.lines[-1] == "no problems, 1 note"


def test_agent_patterns_are_held_against_the_stored_catalogue(cli_with_server: Cli) -> None:
    path = cli_with_server.agents(
        "## Reader\n---\ntools: [odd_typed, odd_tipped, later_*, view_file]\n---\nRead.\n"
    )
    before = cli_with_server("check")
    assert (before.code, "'odd_tipped' matches no tool yet; not listed so far: 'odd'" in before.out) == (
        0,
        True,
    )
    cli_with_server("tools")
    after = cli_with_server("check")
    assert after.code == 1
    wrong = f"error: {path}:1: Reader.tools: unknown tool 'odd_tipped'\nhint: did you mean 'odd_typed'?"
    assert wrong in after.out
    assert f"note: {path}:1: Reader.tools: 'later_*' matches no tool" in after.out


def test_an_agent_with_a_bundle_that_there_is_not(cli_with_server: Cli) -> None:
    path = cli_with_server.agents("## Reader\n---\nbundles: [nothing]\n---\nRead.\n")
    result = cli_with_server("check")
    assert (result.code, f"error: {path}:1: Reader.bundles: unknown bundle 'nothing'" in result.out) == (
        1,
        True,
    )


def test_a_naming_template_that_cannot_be_used(cli: Cli) -> None:
    result = cli("check", TOOLYARD_NAMING_TEMPLATE="nothing")
    assert (result.code, "'nothing' must contain {tool} once" in result.out) == (1, True)
    assert cli("tools", TOOLYARD_NAMING_TEMPLATE="nothing").code == 2


def test_a_file_that_waits_is_told_with_the_command_that_approves_it(
    cli: Cli, unusual_server: dict[str, Any], starts_file: Path
) -> None:
    path = cli.write({"mcpServers": {"odd": unusual_server}}, "toolyard.mcp.json")
    result = cli("check")
    assert result.code == 0
    assert f"note: {path}: needs your approval\nhint: review it with `toolyard approve {path}`" in result.out
    assert "server 'odd': is disabled: not approved" in result.out
    assert not starts_file.exists()


def test_json_says_whether_it_is_fine(cli_with_server: Cli) -> None:
    document = cli_with_server("check", "--json").json
    assert (document["ok"], document["problems"], document["agents"]) == (True, [], None)
    assert document["configuration"]["servers"] == {"odd": {"enabled": True, "disabled_reason": None}}


def test_two_issuers_on_the_shared_redirect_address_are_a_note(cli: Cli) -> None:
    def check(**more: bool) -> Any:
        entries = {
            name: {
                "url": f"https://{name}.example/mcp",
                "oauth": {"clientId": "toolyard", "issuer": f"https://login.{name}.example", **more},
            }
            for name in ("one", "two")
        }
        cli.write({"mcpServers": entries})
        return cli("check")

    result = check()
    assert result.code == 0
    assert "server 'one': its client id has the same redirect URI as 'two'" in result.out
    assert '"issuerRedirect": true' in result.out
    assert "redirect URI" not in check(issuerRedirect=True).out
