"""``toolyard --remote URL``: the same commands on a Toolyard that runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import prefork

from toolyard.types.account import Right, TokenScope

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class RemoteCommandResult:
    code: int
    out: str
    err: str


@pytest.fixture
def remote(tmp_path: Path) -> Any:
    """``await remote(url, "tools", …, TOOLYARD_REMOTE_TOKEN=…)``: the command, as a process of its own."""

    async def run(url: str, *words: str, **env: str) -> RemoteCommandResult:
        keep = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(tmp_path / "own")}
        result = await asyncio.to_thread(
            prefork.run,
            [sys.executable, "-m", "toolyard", "--remote", url, *words],
            timeout=60,
            cwd=tmp_path,
            env={**keep, **env},
        )
        assert "Traceback" not in result.stderr, result.stderr
        return RemoteCommandResult(result.returncode, result.stdout, result.stderr)

    return run


def local(data: Path, *words: str) -> RemoteCommandResult:
    env = {"PATH": os.environ["PATH"], "HOME": str(data), "TOOLYARD_DATA_DIR": str(data)}
    result = prefork.run([sys.executable, "-m", "toolyard", *words], timeout=60, cwd=data, env=env)
    return RemoteCommandResult(result.returncode, result.stdout, result.stderr)


async def test_the_output_is_that_of_the_local_commands(
    local_site: InProcessApp, remote: Any, tmp_path: Path
) -> None:
    data = local_site.services.data_dir
    commands = ("tools", "tools --all", "call demo_weekday date=2026-07-28", "servers")
    searches = (
        "search day of a date",
        "search",
        "search count --limit 1",
        "search nothing",
        "search date --json",
    )
    for words in (command.split() for command in (*commands, *searches)):
        here = await asyncio.to_thread(local, data, *words)
        result = await remote(local_site.url, *words)
        assert (result.code, result.out, result.err) == (here.code, here.out, here.err), words
    here = await asyncio.to_thread(local, data, "tools", "--json")
    result = await remote(local_site.url, "tools", "--json")
    assert json.loads(result.out)["tools"] == json.loads(here.out)["tools"]
    for words in (("servers", "--json"), ("call", "demo_weekday", '{"date": "2026-07-28"}', "--json")):
        here = await asyncio.to_thread(local, data, *words)
        result = await remote(local_site.url, *words)
        document, other_document = json.loads(here.out), json.loads(result.out)
        if words[0] == "servers":
            document, other_document = document[0], other_document[0]
            # Each has a process of its own, with another id.
            assert {**document, "processes": 0, "server_info": 0, "listed_seconds_ago": 0} == {
                **other_document,
                "processes": 0,
                "server_info": 0,
                "listed_seconds_ago": 0,
            }
        else:
            assert document == other_document
    for provider in ("openai", "anthropic"):
        here = await asyncio.to_thread(local, data, "tools", "--provider", provider)
        assert (await remote(local_site.url, "tools", "--provider", provider)).out == here.out
    assert not (tmp_path / "own").exists(), "nothing of our own is touched"


async def test_errors_end_as_they_do_locally(local_site: InProcessApp, remote: Any) -> None:
    result = await remote(local_site.url, "call", "demo_forget")
    assert result.code == 4
    assert result.err.startswith("error: 'demo_forget' is hidden: this tool can change data ")
    assert "\nhint: GET /api/v1/tools/{name}/why explains all rules" in result.err
    failed_result = await remote(local_site.url, "call", "demo_weekday", "date=soon")
    assert failed_result.code == 1
    assert "returned an error" in failed_result.err
    late = await remote(local_site.url, "call", "demo_count", "to=50", "--timeout", "0.5")
    assert late.code == 6
    assert (await remote(local_site.url, "tools", "--server", "nothing")).code == 2
    assert (await remote(local_site.url, "tools", "--agent", "nobody")).code == 2
    as_json = await remote(local_site.url, "call", "demo_forget", "--json")
    assert json.loads(as_json.out)["error"]["kind"] == "ToolRefused"


async def test_a_server_that_cannot_be_used_is_told(
    open_site: Opening, remote: Any, demo: dict[str, Any]
) -> None:
    services = await open_site({"bad": {"command": "no-such-program"}, "demo": demo})
    servers = await remote(services.url, "servers", "--fail")
    assert servers.code == 3
    assert "command not found: no-such-program" in servers.out
    tools = await remote(services.url, "tools")
    assert tools.code == 0
    assert "error: server 'bad': command not found" in tools.err
    call = await remote(services.url, "call", "bad_anything")
    assert call.code == 3
    assert call.err.startswith("error: server 'bad': command not found")


async def test_a_server_without_a_feature_is_named_as_it_is_locally(
    open_site: Opening, remote: Any, demo: dict[str, Any]
) -> None:
    wary = {**demo, "trust": "untrusted", "allowTools": ["weekday"]}
    local_site = await open_site({"demo": demo, "wary": wary})
    here = await asyncio.to_thread(local, local_site.services.data_dir, "servers")
    result = await remote(local_site.url, "servers")
    assert "note: server 'wary' offers nothing: " in result.err
    assert (result.out, result.err) == (here.out, here.err)
    counts = {
        each["server"]: each for each in json.loads((await remote(local_site.url, "servers", "--json")).out)
    }
    assert counts["wary"]["hidden"] == counts["wary"]["tools"]
    assert 0 < counts["demo"]["hidden"] < counts["demo"]["tools"]
    local_output = await asyncio.to_thread(local, local_site.services.data_dir, "servers", "--json")
    assert {each["server"]: each["hidden"] for each in json.loads(local_output.out)} == {
        name: each["hidden"] for name, each in counts.items()
    }


async def test_a_server_is_restarted(local_site: InProcessApp, remote: Any) -> None:
    await remote(local_site.url, "tools")
    before = local_site.services.core.manager.status("demo").pid
    result = await remote(local_site.url, "restart", "demo")
    assert (result.code, result.out.split("\t")[:2]) == (0, ["demo", "ready"])
    assert local_site.services.core.manager.status("demo").pid not in (None, before)
    missing = await remote(local_site.url, "restart", "nothing")
    assert missing.code == 2
    assert "hint: " in missing.err


def test_without_a_remote_there_is_nothing_to_restart(tmp_path: Path) -> None:
    result = local(tmp_path, "restart", "demo")
    assert result.code == 2
    assert "--remote" in result.err


async def test_other_commands_do_not_take_it(remote: Any) -> None:
    result = await remote("http://127.0.0.1:1", "check")
    assert result.code == 2
    assert "does not work with --remote" in result.err


async def test_a_token_comes_from_the_environment_or_a_file(
    password_site: InProcessApp, remote: Any, tmp_path: Path
) -> None:
    ada = await password_site.person("ada", scope=TokenScope(frozenset({Right.READ}), tools=("demo_w*",)))
    nobody = await remote(password_site.url, "tools")
    assert nobody.code == 5
    assert "TOOLYARD_REMOTE_TOKEN" in nobody.err
    tools = await remote(password_site.url, "tools", TOOLYARD_REMOTE_TOKEN=ada.secret)
    assert (tools.code, tools.out.split("\t")[0]) == (0, "demo_weekday")
    file = tmp_path / "token"
    file.write_text(f"{ada.secret}\n")
    assert (await remote(password_site.url, "tools", "--token-file", str(file))).out == tools.out
    call = await remote(
        password_site.url, "call", "demo_weekday", "date=2026-07-28", TOOLYARD_REMOTE_TOKEN=ada.secret
    )
    assert call.code == 4
    assert "right" in call.err
    assert ada.secret not in tools.err + call.err
    missing = await remote(password_site.url, "tools", "--token-file", str(tmp_path / "none"))
    assert missing.code == 2
    file.write_text("not a token at all\nreally")
    assert (await remote(password_site.url, "tools", "--token-file", str(file))).code == 2


async def test_a_closed_port_and_other_servers_are_reported(
    remote: Any, hostile_http: ListeningProgram
) -> None:
    nothing = await remote("http://127.0.0.1:1", "tools")
    assert nothing.code == 3
    assert "cannot be reached" in nothing.err
    other = await remote(f"{hostile_http.url}/html/remote", "tools")
    assert other.code == 3
    assert "is not Toolyard" in other.err
    assert (await remote("ftp://example.com", "tools")).code == 2
    assert (await remote("nonsense", "servers")).code == 2


async def test_media_are_written_to_files(
    open_site: Opening, remote: Any, everything_server: str, tmp_path: Path
) -> None:
    services = await open_site({"all": {"command": everything_server, "args": ["stdio"]}})
    result = await remote(services.url, "call", "all_get-tiny-image", "--save", str(tmp_path / "media"))
    assert result.code == 0, result.err
    assert [each.suffix for each in (tmp_path / "media").iterdir()] == [".png"]


async def test_instances_are_among_the_servers(
    password_site: InProcessApp, remote: Any, hostile_http: ListeningProgram
) -> None:
    admin = await password_site.person("root", "admin")
    body = {"name": "S", "url": f"{hostile_http.url}/good/api-remote", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    await admin.token.post("/api/v1/instances", {"server_id": server, "slug": "mine"})
    result = await remote(password_site.url, "servers", TOOLYARD_REMOTE_TOKEN=admin.secret)
    assert [line.split("\t")[:3] for line in result.out.splitlines()] == [
        ["demo", "ready", "3"],
        ["mine", "ready", "1"],
    ]
    answer = await remote(
        password_site.url, "call", "mcp_mine__echo", "text=hi", TOOLYARD_REMOTE_TOKEN=admin.secret
    )
    assert (answer.code, answer.out) == (0, "hi\n")


async def test_a_token_file_that_every_user_can_read_is_reported(
    password_site: InProcessApp, remote: Any
) -> None:
    ada = await password_site.person("ada")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "token")
        file.write_text(ada.secret)
        for mode, modes in ((0o644, True), (0o600, False)):
            file.chmod(mode)
            result = await remote(password_site.url, "tools", "--token-file", str(file))
            assert result.code == 0
            assert ("all users of this machine can read this file" in result.err) is modes
            assert ada.secret not in result.err
