"""Sign-in from a terminal: real commands, real authorization servers, a person who follows their pages."""

from __future__ import annotations

import asyncio
import html
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.conftest import ListeningProgram, ProgramStarter
from tests.ports import free_port
from tests.sqlite_template import copy_template
from yarl import URL

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[3]
MODULES = ROOT / ".envs/node/node_modules"
PROGRAM = ROOT / "tests/oauth/authorization_server.py"

FOLLOW = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode(), file=open(sys.argv[2], "w"))
"""


@dataclass
class Login:
    """A running ``toolyard login``."""

    process: subprocess.Popen[str]
    err: list[str] = field(default_factory=list)

    def url(self) -> str:
        """Return the address that it prints."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.err.append(line)
            if line.startswith("http"):
                return line.strip()
        raise AssertionError("".join(self.err))

    def end(self, text: str | None = None) -> tuple[int, str, str]:
        out, err = self.process.communicate(text, timeout=60)
        assert "Traceback" not in err, err
        return self.process.returncode, out, "".join(self.err) + err


@pytest.fixture
def start(cli: Cli) -> Iterator[Any]:
    logins: list[Login] = []

    def begin(*words: object, has_tables: bool = True) -> Login:
        if has_tables:
            copy_template(cli.data)
        logins.append(Login(cli.start("login", *words)))
        return logins[-1]

    yield begin
    for one in logins:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(30)
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()


def fetch(url: str, method: str = "GET", body: bytes | None = None) -> str:
    request = urllib.request.Request(url, body, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()


def read_redirect(url: str) -> str:
    """Return the redirect of the authorization server to the browser, without following it."""

    async def ask() -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(URL(url, encoded=True), allow_redirects=False) as response,
        ):
            return response.headers["Location"]

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def program() -> Iterator[ListeningProgram]:
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", PROGRAM, "{port}")
    programs.stop()


@pytest.fixture
def guarded_program(cli: Cli, program: ListeningProgram) -> ListeningProgram:
    """The test authorization servers, with the server 'guarded' in the configuration."""
    configure(program, "{}")
    cli.write({"mcpServers": {"guarded": {"url": f"{program.url}/mcp"}}})
    return program


def configure(program: Any, text: str, method: str = "PUT") -> None:
    fetch(f"{program.url}/control", method, text.encode())


# Sign-in.


def test_a_browser_comes_back_and_the_server_just_works(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    result = cli("call", "guarded_whoami")
    assert result.code == 5
    assert "hint: run `toolyard login guarded`" in result.err
    listed_result = cli("servers")
    assert "needs_auth" in listed_result.out
    assert "run `toolyard login guarded`" in listed_result.err
    assert not (cli.data / "toolyard.db").exists()

    login = start("guarded", "--no-browser")
    page = fetch(login.url())
    assert "You can close this window" in page
    code, out, err = login.end()
    assert (code, out) == (0, "signed in to 'guarded': 2 tools\n")
    assert "Sign in to 'guarded' at 127.0.0.1:" in err
    assert cli("call", "guarded_whoami").out == "somebody\n"
    assert "ready" in cli("servers").out
    assert cli("doctor", "guarded").code == 0

    assert cli("logout", "guarded").out == "signed out of 'guarded'\n"
    assert cli("logout", "guarded").out == "you were not signed in to 'guarded'\n"
    assert cli("call", "guarded_whoami").code == 5


def test_signing_in_again_does_not_register_again_unless_the_port_is_taken(
    guarded_program: ListeningProgram, start: Any
) -> None:
    def signed_in() -> str:
        login = start("guarded", "--no-browser")
        url = login.url()
        fetch(url)
        assert login.end()[0] == 0
        return URL(url).query["redirect_uri"]

    first = signed_in()
    assert signed_in() == first
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", URL(first).port))
        other.listen()
        assert signed_in() != first
    document = json.loads(fetch(f"{guarded_program.url}/log"))
    redirect_uris = [each["asked"]["redirect_uris"] for each in document if each["what"] == "register"]
    assert len(redirect_uris) == 2
    assert redirect_uris[0] == [first]


def test_tokens_are_not_readable_on_the_disk(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--no-browser", has_tables=False)
    fetch(login.url())
    assert login.end()[0] == 0
    cli("call", "guarded_whoami")
    tokens = {
        entry["token"] for entry in json.loads(fetch(f"{guarded_program.url}/log")) if entry.get("token")
    }
    assert tokens
    for path in cli.data.rglob("*"):
        if path.is_file():
            assert not any(token.encode() in path.read_bytes() for token in tokens), path
    assert (cli.data / "toolyard.db").stat().st_mode & 0o077 == 0


def test_a_sign_in_outlives_its_token(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    configure(guarded_program, '{"life": 1}')
    login = start("guarded", "--no-browser")
    fetch(login.url())
    assert login.end()[0] == 0
    time.sleep(1.1)
    assert cli("call", "guarded_whoami").out == "somebody\n"
    assert '"grant_type": "refresh_token"' in fetch(f"{guarded_program.url}/log")


def kill_during_refresh(cli: Cli, guarded: ListeningProgram, start: Any, settings: str) -> None:
    """Sign in, and kill a command after its refresh token was used and before it got the answer."""
    configure(guarded, settings)
    login = start("guarded", "--no-browser")
    fetch(login.url())
    assert login.end()[0] == 0
    fetch(f"{guarded.url}/forget?what=access", "POST")
    configure(guarded, '{"answer_waits": true}', "PATCH")
    process = cli.start("call", "guarded_whoami")
    deadline = time.monotonic() + 60
    while '"answer held"' not in fetch(f"{guarded.url}/log"):
        assert time.monotonic() < deadline, "no refresh"
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=30)
    configure(guarded, '{"answer_waits": false}', "PATCH")


def test_a_lost_answer_to_a_refresh_is_named_by_the_next_command(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    kill_during_refresh(cli, guarded_program, start, "{}")
    result = cli("call", "guarded_whoami")
    assert result.code == 5
    assert re.search(
        r"the last refresh, at 20\d\d-.* UTC, got no response, because Toolyard was killed", result.err
    )
    assert "toolyard login guarded" in result.err
    # Later commands only ask for the sign-in, which then works as before.
    assert "the last refresh" not in cli("call", "guarded_whoami").err
    login = start("guarded", "--no-browser")
    fetch(login.url())
    assert login.end()[0] == 0
    assert cli("call", "guarded_whoami").out == "somebody\n"


def test_a_refresh_without_an_answer_is_repeated_where_the_token_still_works(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    kill_during_refresh(cli, guarded_program, start, '{"rotate": false}')
    assert cli("call", "guarded_whoami").out == "somebody\n"


def test_the_answer_is_json_for_programs(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--no-browser", "--json", "--scope", "read", "--scope", "write")
    url = login.url()
    assert URL(url).query["scope"] == "read write"
    fetch(url)
    code, out, err = login.end()
    document = json.loads(out)
    assert (code, document["server"], document["signed_in"], document["state"]) == (
        0,
        "guarded",
        True,
        "ready",
    )
    assert (document["scopes"], document["tools"], document["refreshable"]) == (["read", "write"], 2, True)
    assert err.strip() == url


def test_the_browser_is_opened_by_itself(
    cli: Cli, guarded_program: ListeningProgram, start: Any, tmp_path: Path
) -> None:
    page, script = tmp_path / "page", tmp_path / "follow.py"
    script.write_text(FOLLOW)
    cli.env["BROWSER"] = f"{sys.executable} {script} %s {page}"
    login = start("guarded")
    assert login.end()[0] == 0
    assert "You can close this window" in page.read_text()


def test_more_scopes_that_a_tool_wanted_are_asked_for_next_time(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    configure(guarded_program, '{"challenge_scope": "read"}')
    login = start("guarded", "--no-browser")
    fetch(login.url())
    assert login.end()[0] == 0
    result = cli("call", "guarded_write")
    assert result.code == 5
    assert "needs the scopes write" in result.err
    again = start("guarded", "--no-browser")
    url = again.url()
    assert URL(url).query["scope"] == "read write"
    fetch(url)
    assert again.end()[0] == 0
    assert cli("call", "guarded_write").code == 0


def test_the_port_that_the_entry_names_is_listened_on(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
        port = probe.getsockname()[1]
        issuer = json.loads(fetch(f"{guarded_program.url}/control"))["as1"]
        oauth = {"callbackPort": port, "clientId": "mine", "clientSecret": "s", "issuer": issuer}
        cli.write({"mcpServers": {"guarded": {"url": f"{guarded_program.url}/mcp", "oauth": oauth}}})
        configure(guarded_program, '{"entered": {"mine": "s"}}')
        result = cli("login", "guarded", "--no-browser")
        assert result.code != 0
        assert f"cannot listen on port {port} of this machine" in result.err
    login = start("guarded", "--no-browser")
    url = login.url()
    assert URL(url).query["redirect_uri"] == f"http://127.0.0.1:{port}/callback"
    assert URL(url).query["client_id"] == "mine"
    fetch(url)
    assert login.end()[0] == 0


# The issuer of a client secret.


@pytest.fixture
def secretive(cli: Cli, guarded_program: ListeningProgram) -> str:
    """An entry with a client secret, and the issuer that its server names."""
    oauth = {"clientId": "mine", "clientSecret": "s", "grant": "client_credentials"}
    cli.write({"mcpServers": {"guarded": {"url": f"{guarded_program.url}/mcp", "oauth": oauth}}})
    configure(guarded_program, '{"entered": {"mine": "s"}}')
    return json.loads(fetch(f"{guarded_program.url}/control"))["as1"]


def test_a_script_confirms_the_issuer_by_naming_it(
    cli: Cli, guarded_program: ListeningProgram, secretive: str
) -> None:
    assert '"issuer": "https://…"' in cli("check").out
    result = cli("login", "guarded")
    assert result.code == 5
    assert f"toolyard login guarded --issuer {secretive}" in result.err
    assert secretive in cli("servers").out + cli("doctor", "guarded").out
    wrong = cli("login", "guarded", "--issuer", "https://login.example")
    assert wrong.code == 5
    assert '"grant_type"' not in fetch(f"{guarded_program.url}/log")
    assert cli("login", "guarded", "--issuer", secretive).code == 0
    assert cli("call", "guarded_whoami").code == 0
    assert f'"issuer": "{secretive}"' in cli("check").out


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_person_is_asked_about_the_issuer(
    cli: Cli, guarded_program: ListeningProgram, secretive: str, terminal: Any, answer: str
) -> None:
    terminal_session = terminal("login", "guarded", COLUMNS="2000")
    terminal_session.wait_for(f"signs in at {secretive}. Send the client secret")
    terminal_session.type(f"{answer}\n")
    assert terminal_session.end() == (0 if answer == "y" else 5)
    assert ('"grant_type"' in fetch(f"{guarded_program.url}/log")) == (answer == "y")


# Pasted addresses.


def test_the_address_can_be_pasted(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--paste", "--no-browser")
    address = read_redirect(login.url())
    code, out, _ = login.end(f"  {address}\n")
    assert (code, out) == (0, "signed in to 'guarded': 2 tools\n")
    assert cli("call", "guarded_whoami").code == 0


def test_a_code_alone_is_enough_only_at_the_shared_redirect_address(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    configure(guarded_program, '{"iss": null, "entered": {"mine": null}}')
    login = start("guarded", "--paste", "--no-browser")
    code = URL(read_redirect(login.url())).query["code"]
    result, _, err = login.end(f"{code}\n")
    assert result == 5
    assert "the code alone is not enough here" in err
    cli.write(
        {"mcpServers": {"guarded": {"url": f"{guarded_program.url}/mcp", "oauth": {"clientId": "mine"}}}}
    )
    login = start("guarded", "--paste", "--no-browser")
    code = URL(read_redirect(login.url())).query["code"]
    assert login.end(f"{code}\n")[0] == 0


def test_the_redirect_address_of_another_issuer_is_refused(
    cli: Cli, guarded_program: ListeningProgram, start: Any
) -> None:
    configure(guarded_program, '{"iss": null}')
    for how in ("--paste", "--no-browser"):
        login = start("guarded", how, "--no-browser")
        url = URL(read_redirect(login.url()))
        other = str(url.with_path("/callback/0123456789abcdef0123456789abcdef", keep_query=True))
        if how != "--paste":
            fetch(other)
        result, _, err = login.end(f"{other}\n")
        assert result == 5
        assert "redirect URI of another authorization server" in err
    assert '"grant_type"' not in fetch(f"{guarded_program.url}/log")


def test_a_wrong_paste_can_be_repeated(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--paste", "--no-browser")
    address = read_redirect(login.url())
    other = str(URL(address).update_query(state="other"))
    lines = ["nonsense here", URL(address).query["code"], other, "https://example.com/", address]
    code, _, err = login.end("\n".join(lines) + "\n")
    assert code == 0
    for words in ("neither an address nor a code", "not enough here", "another sign-in", "not the address"):
        assert words in err


def test_pasting_nothing_is_an_end(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--paste", "--no-browser")
    login.url()
    code, _, err = login.end("")
    assert code == 5
    assert "error: server 'guarded': nothing was pasted" in err
    assert cli("call", "guarded_whoami").code == 5


def test_at_a_terminal_either_way_will_do(cli: Cli, guarded_program: ListeningProgram, terminal: Any) -> None:
    terminal_session = terminal("login", "guarded", "--no-browser", COLUMNS="2000")
    terminal_session.wait_for("paste its final address here")
    url = next(line for line in terminal_session.plain.splitlines() if line.startswith("http"))
    terminal_session.type(f"{read_redirect(url)}\n")
    assert terminal_session.end() == 0
    assert "signed in to 'guarded': 2 tools" in terminal_session.plain

    again = terminal("login", "guarded", "--no-browser", COLUMNS="2000")
    again.wait_for("paste its final address here")
    fetch(next(line for line in again.plain.splitlines() if line.startswith("http")))
    assert again.end() == 0


# Failures.


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ('{"authorize_error": "access_denied"}', 5, "refused: access_denied (said no)"),
        ('{"iss": "https://other.example"}', 5, "comes from another authorization server"),
        ('{"token_trouble": ["invalid_grant"]}', 5, "invalid_grant"),
        ('{"token_trouble": [503]}', 3, "HTTP 503"),
    ],
)
def test_a_sign_in_that_fails_says_why_and_keeps_nothing(
    cli: Cli, guarded_program: ListeningProgram, start: Any, settings: str, code: int, words: str
) -> None:
    configure(guarded_program, settings)
    login = start("guarded", "--no-browser")
    fetch(login.url())
    result, out, err = login.end()
    assert (result, out) == (code, "")
    assert words in err
    assert "\nhint: " in err
    assert cli("call", "guarded_whoami").code == 5


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ('{"resource_places": [], "named_in_header": null}', 5, "not MCP-compliant"),
        ('{"metadata": {"registration_endpoint": null}}', 5, "does not support dynamic client registration"),
        ('{"metadata_status": 503}', 3, "HTTP 503"),
    ],
)
def test_a_sign_in_that_cannot_begin_says_why(
    cli: Cli, guarded_program: ListeningProgram, settings: str, code: int, words: str
) -> None:
    configure(guarded_program, settings)
    result = cli("login", "guarded", "--no-browser")
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("error: server 'guarded': ")
    assert words in result.err
    as_json = cli("login", "guarded", "--no-browser", "--json")
    assert words in as_json.json["error"]["message"]
    assert as_json.json["error"]["exit_code"] == code


def test_a_sign_in_without_an_answer_times_out(cli: Cli, guarded_program: ListeningProgram) -> None:
    result = cli("login", "guarded", "--no-browser", "--timeout", "0.3")
    assert result.code == 5
    assert "the sign-in was not completed within 0.3 s" in result.err


def test_an_interrupt_ends_it_at_once(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--no-browser")
    login.url()
    login.process.send_signal(signal.SIGINT)
    code, out, err = login.end()
    assert (code, out) == (130, "")
    assert "error" not in err


def test_a_server_that_needs_no_sign_in_is_said_to_need_none(
    cli: Cli, hostile_http: ListeningProgram
) -> None:
    cli.write({"mcpServers": {"plain": {"url": f"{hostile_http.url}/plain/mcp"}}})
    result = cli("login", "plain", "--no-browser")
    assert (result.code, result.out) == (0, "server 'plain' works without a sign-in\n")


def test_a_server_that_fails_without_asking_for_a_sign_in_says_why(
    cli: Cli, hostile_http: ListeningProgram
) -> None:
    cli.write({"mcpServers": {"broken": {"url": f"{hostile_http.url}/status-500/mcp?when=always"}}})
    result = cli("login", "broken", "--no-browser")
    assert result.code == 3
    assert "server 'broken': answered with HTTP 500" in result.err
    assert "without signing in" not in result.err


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "true"}, "is a local command"),
        ({"url": "http://x/", "headers": {"authorization": "Bearer x"}}, "sends an Authorization header"),
        ({"url": "http://x/", "authProviderId": "mine"}, "auth provider 'mine'"),
        ({"url": "http://x/${NO_SUCH_VARIABLE}"}, "is disabled"),
        (
            {
                "url": "http://x/",
                "oauth": {
                    "clientId": "a",
                    "clientSecret": "b",
                    "grant": "client_credentials",
                    "issuer": "https://login.example",
                },
            },
            "signs in automatically",
        ),
    ],
)
def test_servers_without_sign_in_are_refused(cli: Cli, entry: dict[str, Any], words: str) -> None:
    cli.write({"mcpServers": {"s": entry}})
    result = cli("login", "s")
    assert result.code == 2
    assert words in result.err
    assert not (cli.data / "toolyard.db").exists()


@pytest.mark.parametrize("command", ["login", "logout"])
def test_a_server_that_there_is_not(cli: Cli, command: str) -> None:
    cli.write({"mcpServers": {"s": {"url": "http://x/"}}})
    result = cli(command, "t")
    assert result.code == 2
    assert "unknown server 't'" in result.err
    assert "configured servers: s" in result.err


def test_signing_out_creates_nothing(cli: Cli) -> None:
    cli.write({"mcpServers": {"s": {"url": "http://x/"}}})
    assert cli("logout", "s", "--json").json == {"server": "s", "signed_out": False}
    assert not (cli.data / "toolyard.db").exists()


def test_a_wrong_key_is_a_clear_error(cli: Cli, guarded_program: ListeningProgram, start: Any) -> None:
    login = start("guarded", "--no-browser")
    fetch(login.url())
    assert login.end()[0] == 0
    wrong = {"TOOLYARD_SECRET_KEY": "another key, long enough for it"}
    for words in (("login", "guarded", "--no-browser"), ("logout", "guarded")):
        result = cli(*words, **wrong)
        assert result.code == 2
        assert "another secret key" in result.err
    called_result = cli("call", "guarded_whoami", **wrong)
    assert called_result.code == 3
    assert "another secret key" in called_result.err


# Third-party authorization servers.


@pytest.mark.slow
def test_an_sdk_server_is_signed_in_to(cli: Cli, start_program: ProgramStarter, start: Any) -> None:
    program = start_program(sys.executable, "-I", ROOT / "tests/oauth/sdk_server.py", "{port}")
    cli.write({"mcpServers": {"sdk": {"url": f"{program.url}/mcp"}}})
    login = start("sdk", "--no-browser")
    fetch(login.url())
    assert login.end()[:2] == (0, "signed in to 'sdk': 1 tool\n")
    assert cli("call", "sdk_hello", "name=you").out == "hello you\n"


async def person(url: str) -> str:
    """Complete the forms of the provider with consent; return the last page."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        method, at, data = "GET", URL(url, encoded=True), dict[str, str]()
        for _ in range(20):
            async with session.request(method, at, data=data or None, allow_redirects=False) as response:
                page = await response.text()
                if response.status in (302, 303):
                    method, at, data = "GET", at.join(URL(response.headers["Location"], encoded=True)), {}
                    continue
            form = re.search(r'<form[^>]*action="([^"]+)"', page)
            if form is None:
                return page
            data = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
            if 'name="login"' in page:
                data |= {"login": "ann", "password": "x"}
            method, at = "POST", at.join(URL(html.unescape(form[1])))
    raise AssertionError("the pages never end")


@pytest.mark.slow
def test_a_provider_with_pages_is_signed_in_to(cli: Cli, start_program: ProgramStarter, start: Any) -> None:
    if not (MODULES / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed; make unit installs it")
    port = free_port()
    resource = f"http://127.0.0.1:{port}/mcp"
    issuer = start_program("node", ROOT / "tests/oauth/oidc.mjs", "{port}", MODULES, resource).url
    words = [sys.executable, "-I", str(ROOT / "tests/oauth/resource_server.py"), str(port), issuer]
    program = ListeningProgram(words, port, {}).start()
    try:
        cli.write({"mcpServers": {"pages": {"url": resource}}})
        login = start("pages", "--no-browser")
        assert "You can close this window" in asyncio.run(person(login.url()))
        assert login.end()[:2] == (0, "signed in to 'pages': 1 tool\n")
        assert cli("call", "pages_whoami").out == "ann\n"
    finally:
        program.stop()
