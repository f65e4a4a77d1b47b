"""A team in a real browser: the admin adds a server, a person connects two accounts, loses one, repairs it.

The authorization server is ``oidc-provider``, the MCP server is made with the official SDK and asks it about
every token. Nobody here knows Toolyard but Toolyard.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect
from tests import prefork
from tests.conftest import ListeningProgram
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
MODULES = ROOT / ".envs/node/node_modules"
PASSWORD = "correct horse battery staple"
NOBODY_ANSWERS = re.compile("net::ERR_(CONNECTION|EMPTY_RESPONSE|INCOMPLETE|NETWORK)")

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class TeamEnvironment:
    """Toolyard and its surroundings, each a process of its own."""

    registration: str
    url: str
    issuer: str
    mcp: str
    data: Path
    env: dict[str, str]
    model: str = ""
    served: subprocess.Popen[str] | None = None
    invite: str = ""

    def start(self) -> None:
        """``toolyard serve``, until it listens; the first time it prints a link for the first admin."""
        words = [sys.executable, "-m", "toolyard", "serve"]
        pipe = subprocess.PIPE
        self.served = prefork.Popen(words, stdout=pipe, stderr=pipe, text=True, env=self.env, cwd=self.data)
        assert self.served.stdout is not None
        for line in self.served.stdout:
            if match := re.search(r"https?://\S+/ui/invite/\S+", line):
                self.invite = match[0]
            if self.invite and (match or line.startswith("Toolyard is listening on ")):
                return
        raise AssertionError(self.served.stderr and self.served.stderr.read())

    def stop(self) -> None:
        if self.served is not None:
            self.served.terminate()
            self.served.communicate(timeout=30)

    def revoke(self, account: str) -> None:
        """The provider takes back what an account granted."""
        request = urllib.request.Request(f"{self.issuer}/control/revoke?account={account}", method="POST")
        urllib.request.urlopen(request, timeout=30).close()


@pytest.fixture(params=["dynamic", "entered", "document"])
def team(request: pytest.FixtureRequest, tmp_path: Path, start_program: object) -> Iterator[TeamEnvironment]:
    registration = str(request.param)
    port, mcp = free_port(), free_port()
    # A metadata document needs https, so there a proxy of TLS alone stands before Toolyard.
    base = f"http://localhost:{port}"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(tmp_path)}
    env |= {"TOOLYARD_PORT": str(port), "TOOLYARD_PEOPLE_MODE": "password"}
    more: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if registration == "document":
            authority, outside = trustme.CA(), free_port()
            authority.cert_pem.write_to_path(tmp_path / "ca.pem")
            stack.enter_context(TlsProxy(authority, outside, port))
            base = f"https://localhost:{outside}"
            more["NODE_EXTRA_CA_CERTS"] = str(tmp_path / "ca.pem")
        env["TOOLYARD_PUBLIC_URL"] = base
        model = start_program(sys.executable, ROOT / "tests/servers/openai_server.py", "{port}").url  # type: ignore[operator]
        entry = {"model": "openai:fake-1", "base_url": f"{model}/v1", "api_key": "good"}
        env["TOOLYARD_MODELS"] = json.dumps({"fake": entry})
        words = [str(MODULES), f"http://127.0.0.1:{mcp}/mcp", registration, f"{base}/ui/auth/mcp/callback"]
        issuer = start_program("node", ROOT / "tests/oauth/grants.mjs", "{port}", *words, **more).url  # type: ignore[operator]
        server = [sys.executable, str(ROOT / "tests/oauth/introspection_server.py"), str(mcp), issuer]
        stack.callback(ListeningProgram(server, mcp, {}).start().stop)
        team = TeamEnvironment(
            registration, base, issuer, f"http://127.0.0.1:{mcp}/mcp", tmp_path, env, model
        )
        team.start()
        stack.callback(team.stop)
        yield team


class TlsProxy:
    """Takes TLS off and passes bytes on, in an event loop of its own."""

    def __init__(self, authority: trustme.CA, outside: int, inside: int) -> None:
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(self._tls)
        self._outside, self._inside = outside, inside
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()

    def __enter__(self) -> TlsProxy:
        import threading

        started = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run(started)))
        self._thread.start()
        started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(30)
        self._loop.close()

    async def _run(self, start_event: object) -> None:
        server = await asyncio.start_server(self._pass, "localhost", self._outside, ssl=self._tls)
        start_event.set()  # type: ignore[attr-defined]
        await self._done.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_streams, here = await asyncio.open_connection("127.0.0.1", self._inside)
        except OSError:
            writer.close()
            return

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, ssl.SSLError):
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, here), pump(inner_streams, writer))


@dataclass
class BrowserUser:
    """Somebody with a browser of their own, and what its console complained of."""

    page: Page
    context: BrowserContext
    team: TeamEnvironment
    complaints: list[str] = field(default_factory=list[str])

    def hear(self, message: ConsoleMessage) -> None:
        """The provider's own pages may complain, also of late, and whoever asks while Toolyard is restarted;
        our pages may not."""
        where = message.location["url"] or self.page.url
        if message.type not in ("error", "warning") or NOBODY_ANSWERS.search(message.text):
            return
        if where.startswith(self.team.url):
            self.complaints.append(message.text)

    async def accept_invite(self, link: str) -> None:
        await self.page.goto(link)
        await self.page.get_by_label("Password", exact=True).fill(PASSWORD)
        await self.page.get_by_label("Repeat password").fill(PASSWORD)
        await self.page.get_by_role("button", name="Set password and sign in").click()
        await expect(self.page.get_by_role("heading", name="Welcome")).to_have_count(0)

    async def new_instance(self, slug: str) -> None:
        await self.page.goto("/ui/mcp/new")
        await self.page.get_by_role("link", name=re.compile("Guarded")).click()
        await self.page.get_by_label("Slug").fill(slug)
        await self.page.get_by_label("Name", exact=True).fill(f"Guarded {slug}")
        await self.page.get_by_role("button", name="Create").click()

    async def sign_in_at_provider(self, account: str, back: str = "/ui/mcp") -> None:
        """The provider's own pages, in the same window; they lead back."""
        await expect(self.page).to_have_url(re.compile(re.escape(self.team.issuer)))
        await self.page.get_by_placeholder("Enter any login").fill(account)
        await self.page.get_by_placeholder("and password").fill("anything")
        await self.page.get_by_role("button", name="Sign-in").click()
        await self.page.get_by_role("button", name="Continue").click()
        await self.page.wait_for_url(re.compile(re.escape(f"{self.team.url}{back}")))

    async def forget_provider(self) -> None:
        """As if another account were chosen there."""
        await self.context.clear_cookies(domain="127.0.0.1")

    def row(self, slug: str) -> Locator:
        return self.page.locator("li[data-live]").filter(has_text=f"mcp_{slug}__")

    async def call(self, slug: str) -> str:
        """Open the instance, its tool, and call it."""
        await self.page.goto("/ui/mcp")
        await self.page.get_by_role("link", name=f"Guarded {slug}", exact=True).click()
        await self.page.locator("#tools").get_by_role("link", name=re.compile("whoami")).first.click()
        return await self.call_again()

    async def call_again(self) -> str:
        """On the page of the tool: press Call, and read the answer to that."""
        await self.page.locator("#result").evaluate_all("old => old.forEach(one => one.remove())")
        await self.page.get_by_role("button", name="Call", exact=True).click()
        result = self.page.locator("#result")
        await expect(result).to_be_visible()
        return await result.inner_text()


@pytest_asyncio.fixture(loop_scope="session")
async def people(team: TeamEnvironment, chromium: Browser) -> AsyncIterator[list[BrowserUser]]:
    """Two people, each in a browser that knows nothing of the other."""
    browser_users: list[BrowserUser] = []
    for _ in range(2):
        context = await chromium.new_context(base_url=team.url, ignore_https_errors=True)
        context.set_default_timeout(60_000)
        person = BrowserUser(await context.new_page(), context, team)
        person.page.on("console", person.hear)
        browser_users.append(person)
    yield browser_users
    if folder := os.environ.get("TOOLYARD_TEST_SHOTS"):
        for index, person in enumerate(browser_users):
            await person.page.screenshot(path=f"{folder}/person{index}.png", full_page=True)


async def test_a_person_connects_two_accounts_loses_one_and_repairs_it(
    team: TeamEnvironment, people: list[BrowserUser]
) -> None:
    admin, ann = people

    # The first admin comes by the link that the start printed.
    await admin.accept_invite(team.invite)
    await admin.page.goto("/ui/admin/mcp/new")
    await admin.page.get_by_label("Name", exact=True).fill("Guarded")
    await admin.page.get_by_label("URL", exact=True).fill(team.mcp)
    choice = admin.page.locator("fieldset.choice")
    await choice.get_by_label("Kind").select_option("oauth")
    registration = {"dynamic": "auto", "entered": "entered", "document": "document"}[team.registration]
    await choice.get_by_label("Registration").select_option(registration)
    if team.registration == "entered":
        await choice.get_by_label("Client id").fill("toolyard")
        await choice.get_by_label("Client secret").fill("entered-by-the-admin")
    await admin.page.get_by_text("More options").click()
    await admin.page.get_by_label("Allow private network addresses").check()
    await admin.page.get_by_role("button", name="Add server").click()
    await expect(admin.page.get_by_role("heading", name="Guarded")).to_be_visible()
    assert "entered-by-the-admin" not in await admin.page.content()
    if team.registration == "entered":
        # The secret is sent nowhere before the admin confirms the issuer that the server names.
        await expect(admin.page.get_by_text(f"This server names {team.issuer}")).to_be_visible()
        await admin.page.get_by_role("button", name="Confirm issuer").click()
        await expect(admin.page.get_by_text(f"may now be sent to {team.issuer}")).to_be_visible()

    # The admin invites somebody, whose link is shown once.
    await admin.page.goto("/ui/admin/people")
    await admin.page.get_by_label("Invite someone").fill("ann")
    await admin.page.get_by_role("button", name="Create invite link").click()
    await ann.accept_invite(await admin.page.get_by_label("Link", exact=True).input_value())

    # Two instances of one server, each with an account of its own; that is so however we are registered, and
    # seen once.
    slugs = ("work", "home") if team.registration == "dynamic" else ("work",)
    for slug in slugs:
        await ann.forget_provider()
        await ann.new_instance(slug)
        await ann.page.get_by_role("button", name="Connect", exact=True).first.click()
        await ann.sign_in_at_provider(f"ann-at-{slug}")
        await expect(ann.row(slug)).to_contain_text("Ready")
    for slug in slugs:
        assert f"you are ann-at-{slug}" in await ann.call(slug)

    # A restart changes nothing.
    team.stop()
    team.start()
    assert "you are ann-at-work" in await ann.call("work")

    # The admin sees nothing of it.
    await admin.page.goto("/ui/mcp")
    await expect(admin.page.get_by_text("Guarded work")).to_have_count(0)

    # The provider takes one back: that instance says so, the other goes on.
    team.revoke("ann-at-work")
    answer = await ann.call_again()
    assert "you are" not in answer
    assert "sign" in answer
    await ann.page.goto("/ui/mcp")
    await expect(ann.row("work")).to_contain_text("Needs sign-in again")
    for slug in slugs[1:]:
        assert f"you are ann-at-{slug}" in await ann.call(slug)

    # Reconnect repairs it.
    await ann.forget_provider()
    await ann.page.goto("/ui/mcp")
    await ann.row("work").get_by_role("button", name="Reconnect").click()
    await ann.sign_in_at_provider("ann-at-work")
    await expect(ann.row("work")).to_contain_text("Ready")
    assert "you are ann-at-work" in await ann.call("work")

    if team.registration == "dynamic":
        await lose_it_in_a_chat(team, ann)
    assert admin.complaints == []
    assert ann.complaints == []


async def lose_it_in_a_chat(team: TeamEnvironment, ann: BrowserUser) -> None:
    """The grant is taken back in the middle of a turn: the model sees an error, the person a way out."""
    page, call = ann.page, "call mcp_work__whoami {}"
    # An instance that was never connected is no reason for a word in any chat.
    await ann.new_instance("unused")
    await page.goto("/ui/chat")
    await page.get_by_role("textbox", name="Message").fill(
        "\n".join([call, "then", "say Now it is held.", "hold", call, "then", "say I go on."])
    )
    await page.get_by_role("textbox", name="Message").press("Enter")
    cards = page.get_by_role("article", name="Call to mcp_work__whoami")
    await expect(cards.first).to_contain_text("you are ann-at-work")
    await expect(page.locator(".answer").last).to_contain_text("Now it is held.")
    await expect(page.locator("#reconnect .alert")).to_have_count(0)
    team.revoke("ann-at-work")
    urllib.request.urlopen(urllib.request.Request(f"{team.model}/release", method="POST"), timeout=30).close()
    await expect(page.locator("article.turn").last).to_contain_text("I go on.")
    await expect(cards.last).to_contain_text("Failed")
    # One banner, however many calls fail and messages follow.
    banner = page.locator("#reconnect .alert")
    await expect(banner).to_have_count(1)
    await expect(banner).to_contain_text("Guarded work needs a new sign-in.")
    await page.get_by_role("textbox", name="Message").fill("say Still here.")
    await page.get_by_role("textbox", name="Message").press("Enter")
    await expect(page.locator("article.turn").last).to_contain_text("Still here.")
    await expect(page.locator(".note")).to_have_count(0)
    await expect(page.get_by_role("button", name="Reconnect")).to_have_count(1)
    if folder := os.environ.get("TOOLYARD_TEST_SHOTS"):
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 800})
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                await page.screenshot(path=f"{folder}/reconnect-{width}-{scheme}.png")
    # Reconnect leads back to this chat, which goes on.
    await ann.forget_provider()
    chat = re.sub(r"[#?].*", "", page.url).removeprefix(team.url)
    await page.get_by_role("button", name="Reconnect").click()
    await ann.sign_in_at_provider("ann-at-work", chat)
    await expect(page.get_by_text("“Guarded work” is connected.")).to_be_visible()
    await expect(page.locator("#reconnect .alert")).to_have_count(0)
    await page.get_by_role("textbox", name="Message").fill(call)
    await page.get_by_role("textbox", name="Message").press("Enter")
    await expect(cards.last).to_contain_text("you are ann-at-work")
