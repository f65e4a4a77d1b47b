"""Chats in a real browser: followed without a reload, kept whole, harmless, by keyboard, on a phone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect
from tests.conftest import ListeningProgram, ProgramStarter
from tests.demo_chats import fill_chats
from tests.gateway.conftest import ModernClient
from tests.web.chat.test_markdown import ATTACKS
from tests.web.pages.test_browser import CONTRAST, BrowserWindow, schemes, window

from toolyard.agents.chat.result_event import result_event
from toolyard.store import Database
from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState
from toolyard.types.tool import Result

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "tests/servers/openai_server.py"
RUNNER = "nobody"
END = NewChatEvent(Kind.END, {"why": "done", "error": None, "hint": None, "seconds": 1.0})
AGENTS = "## Counter\n---\ndescription: Counts\ntools: [demo_count]\n---\nYou count.\n"


@dataclass
class ChatYard:
    """A real ``toolyard serve`` with a model behind it, and chats in it."""

    url: str
    model: ListeningProgram
    ids: dict[str, str]

    def release(self) -> None:
        """The model goes on."""
        urllib.request.urlopen(urllib.request.Request(f"{self.model.url}/release", method="POST")).read()


async def _turns(database: Database, chat_id: str, turns: list[list[NewChatEvent]]) -> None:
    await database.chats.create(Chat(chat_id, "local", chat_id.rstrip("0"), time.time(), time.time()))
    for first_turn, *rest in turns:
        assert await database.chats.claim(chat_id, RUNNER, TurnState.IDLE, [first_turn], new_turn=True)
        await database.chats.append(chat_id, RUNNER, rest, next_state=TurnState.IDLE)


def _build_model_event(text: str, step: int = 1) -> NewChatEvent:
    return NewChatEvent(
        Kind.MODEL_MESSAGE, {"text": text, "reasoning": text, "model": "x", "calls": 0}, f"step-{step}"
    )


def _user(text: str) -> NewChatEvent:
    return NewChatEvent(Kind.USER, {"text": text, "model": None, "agent": None, "again": None})


def _call(text: str) -> list[NewChatEvent]:
    """Somebody else's words wherever a call has words."""
    call = {"id": "1", "name": text, "tool": "x/y", "server": text, "native": False, "title": text}
    question = {
        "id": "q",
        "call": "1",
        "server": text,
        "kind": "url",
        "message": text,
        "url": text,
        "request": text,
    }
    return [
        NewChatEvent(Kind.CALL, {**call, "arguments": {text: text}}),
        NewChatEvent(Kind.PROGRESS, {"id": "1", "progress": 1, "total": 2, "message": text}, "1"),
        NewChatEvent(Kind.QUESTION, {**question, "schema": {"properties": {text: {"description": text}}}}),
        NewChatEvent(Kind.NOTE, {"text": text, "hint": text}),
        result_event("1", Result(None, text, is_error=True, cause=text), ok=False, seconds=0.1),
    ]


async def _fill(data: Path) -> dict[str, str]:
    database = await Database.open(data, url=None, secret_key=None)
    ids = await fill_chats(database, "local")
    end = [NewChatEvent(Kind.END, {"why": "failed", "error": ATTACKS[0], "hint": ATTACKS[3], "seconds": 1.0})]
    ids["hostile"] = "hostile".ljust(24, "0")
    clean = [each.replace("\0", "") for each in ATTACKS]
    await _turns(
        database,
        ids["hostile"],
        [[_user(each), _build_model_event(each), *_call(each), *end] for each in clean[-38:]],
    )
    ids["hostile-2"] = "hostile2".ljust(24, "0")
    everything = "\n\n".join(clean)
    await _turns(
        database,
        ids["hostile-2"],
        [[_user(everything), _build_model_event(everything), *_call(everything), *end]],
    )
    ids["long"] = "long".ljust(24, "0")
    await _turns(
        database,
        ids["long"],
        [[_user(f"Question {n}"), _build_model_event(f"Answer {n}"), END] for n in range(130)],
    )
    ids["big"] = "big".ljust(24, "0")
    big = "".join(f"line {n:06}: some words of a long result\n" for n in range(120_000))
    run = NewChatEvent(Kind.RUN, {"name": "big", "arguments": {}, "again": None})
    call = {
        "id": "1",
        "name": "big",
        "tool": "x/big",
        "server": "X",
        "native": False,
        "title": None,
        "arguments": {},
    }
    result = result_event("1", Result(None, big), ok=True, seconds=0.5)
    await _turns(database, ids["big"], [[run, NewChatEvent(Kind.CALL, call), result, END]])
    await database.close()
    return ids


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatYard]:
    data, programs = tmp_path_factory.mktemp("chats"), ProgramStarter()
    model = programs(sys.executable, MODEL, "{port}")
    demo = {"label": "Demo", "command": sys.executable, "args": ["-I", "-m", "toolyard.cli.demo_server"]}
    playground = {**demo, "label": "Playground", "args": ["-I", "-m", "toolyard.cli.playground_server"]}
    servers = {"mcpServers": {"demo": demo, "playground": playground}}
    (data / "mcp.json").write_text(json.dumps(servers), "utf-8")
    (data / "AGENTS.md").write_text(AGENTS, "utf-8")
    (data / "toolyard.toml").write_text(
        f'write_tools = "ask"\n[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\n'
        'api_key = "good"\nlabel = "Fake one"\n',
        "utf-8",
    )
    ids = asyncio.run(_fill(data))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ChatYard(server_program.url, model, ids)
    programs.stop()


@contextlib.asynccontextmanager
async def looking_at(
    chromium: Browser, yard: ChatYard, path: str = "/ui/chat", **options: object
) -> AsyncIterator[BrowserWindow]:
    async with window(chromium, yard, **options) as open_window:  # type: ignore[arg-type]
        await open_window.page.goto(path)
        await open_window.page.evaluate("window.stillThere = true")
        yield open_window


async def say(page: Page, *lines: str) -> None:
    """Write a message, and send it by Enter."""
    box = page.get_by_label("Message", exact=True)
    await box.fill("\n".join(lines))
    await box.press("Enter")


async def begin(page: Page, *lines: str) -> None:
    """The same in a new chat, whose page comes then."""
    await say(page, *lines)
    await page.wait_for_url("**/ui/chat/*")
    await page.evaluate("window.stillThere = true")


def turn(page: Page, number: int = -1) -> Locator:
    return page.locator(".turn").nth(number)


async def wait_for_turn_end(page: Page, number: int = -1) -> Locator:
    """The last turn, once it is over."""
    await expect(turn(page, number).locator(".foot-line")).to_be_visible()
    await expect(page.locator("#chat")).to_have_attribute("data-state", "idle")
    return turn(page, number)


async def is_same_page(page: Page) -> bool:
    """Return whether the page was not loaded again."""
    return await page.evaluate("window.stillThere === true")


TURNS = """() => [...document.querySelectorAll("#turns .turn")].map((turn) => {
  const copy = turn.cloneNode(true);
  copy.querySelectorAll("[data-copy], details").forEach((one) => one.removeAttribute("open"));
  // The cost of the chat's title may arrive at any time after its first turn.
  return copy.textContent.replace(/\\s+/g, " ").replace(/ · Title: .*$/, "").trim();
})"""


async def same_after_reload(page: Page) -> None:
    """What was put together piece by piece is what a page shows that is loaded now."""
    before = await page.evaluate(TURNS)
    await page.reload()
    assert await page.evaluate(TURNS) == before


# Following.


async def test_an_answer_is_followed_without_a_reload(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(
            page,
            "think Let me see.",
            'call demo_weekday {"date": "2026-07-28"}',
            'call playground_chart {"values": [1, 2, 3]}',
            "then",
            r"say # It is **Tuesday**\n\n- one\n- two\n\n```python\nx = 1\n```",
            "hold",
        )
        await expect(turn(page).locator(".md").get_by_text("Tuesday")).to_be_visible()
        await expect(turn(page).locator(".md li")).to_have_count(2)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await expect(page.get_by_role("button", name="Send")).to_be_hidden()
        cards = turn(page).locator(".tool-card")
        await expect(cards).to_have_count(2)
        await expect(cards.nth(0)).to_contain_text("2026-07-28 is a Tuesday.")
        await expect(cards.nth(1).locator("img")).to_have_js_property("naturalWidth", 480)
        yard.release()
        await wait_for_turn_end(page)
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        assert await is_same_page(page)
        await say(page, "say Once more.")
        await expect(turn(page).locator(".md").last).to_have_text("Once more.")
        await wait_for_turn_end(page)
        await expect(page.locator(".turn")).to_have_count(2)
        assert await is_same_page(page)
        await same_after_reload(page)


async def test_a_reload_in_the_middle_loses_and_doubles_nothing(chromium: Browser, yard: ChatYard) -> None:
    words = [f"word{n}" for n in range(40)]
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "pace 0.03", "think " + " ".join(words), "say " + " ".join(words), "hold")
        for number in (3, 17, 31):
            await expect(turn(page).locator(".md")).to_contain_text(words[number])
            await page.reload()
        # Made of pieces alone: the whole answer, which would mend everything, has not come yet.
        await expect(turn(page).locator(".md")).to_have_text(" ".join(words))
        await expect(turn(page).locator(".thoughts")).to_have_text(" ".join(words))
        yard.release()
        await wait_for_turn_end(page)
        await expect(turn(page).locator(".md")).to_have_text(" ".join(words))
        await same_after_reload(page)


async def test_a_line_that_breaks_is_taken_up_again(chromium: Browser, yard: ChatYard) -> None:
    words = [f"word{n}" for n in range(60)]
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "pace 0.03", "say " + " ".join(words), "hold")
        for number in (5, 20, 35):
            await expect(turn(page).locator(".md")).to_contain_text(words[number])
            await page.evaluate("closeChatStream(); openChatStream()")
        await expect(turn(page).locator(".md")).to_have_text(" ".join(words))
        await page.context.set_offline(True)
        await page.evaluate("closeChatStream()")
        yard.release()
        await page.context.set_offline(False)
        await page.evaluate("openChatStream()")
        await wait_for_turn_end(page)
        await expect(turn(page).locator(".md")).to_have_text(" ".join(words))
        assert await is_same_page(page)
        await same_after_reload(page)
        context.said[:] = [each for each in context.said if "ERR_INTERNET_DISCONNECTED" not in each]


async def test_two_windows_show_the_same(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as one:
        await begin(one.page, "say Both see this.")
        await wait_for_turn_end(one.page)
        async with looking_at(chromium, yard, one.page.url) as two:
            await say(one.page, 'call playground_note {"text": "x"}', "then", "say Seen.")
            await two.page.get_by_role("button", name="Allow once").click()
            for page in (one.page, two.page):
                await expect((await wait_for_turn_end(page)).locator(".md").last).to_have_text("Seen.")
            assert await is_same_page(one.page)


async def test_pieces_leave_nothing_behind_on_the_page(chromium: Browser, yard: ChatYard) -> None:
    elements = "document.querySelectorAll('*').length"
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say Early." + " word" * 50, "hold", "say Later." + " word" * 600, "hold")
        await expect(turn(page).locator(".md")).to_have_text(re.compile("Early.( word){50}"))
        early = await page.evaluate(elements)
        yard.release()
        await expect(turn(page).locator(".md")).to_have_text(re.compile("Later.( word){600}"))
        assert await page.evaluate(elements) <= early + 3
        yard.release()
        await wait_for_turn_end(page)
        await say(page, 'call demo_count {"to": 100, "pause": 0.01}', "then", "say Done.")
        await expect(turn(page).locator(".tool-card")).to_contain_text("Counted to 100.")
        await wait_for_turn_end(page)
        await expect(page.locator("progress")).to_have_count(0)


async def test_the_page_follows_to_the_end_unless_the_reader_scrolled_up(
    chromium: Browser, yard: ChatYard
) -> None:
    at_end = "scrollY + innerHeight >= document.documentElement.scrollHeight - 130"
    async with looking_at(chromium, yard, viewport={"width": 1280, "height": 500}) as context:
        page = context.page
        await begin(page, "say " + r"A line.\n\n" * 40)
        await wait_for_turn_end(page)
        await page.wait_for_function(at_end)
        await say(page, "say " + r"More lines.\n\n" * 30, "hold")
        await expect(turn(page).get_by_text("More lines.").nth(29)).to_be_attached()
        await page.wait_for_function(at_end)
        await page.evaluate("scrollTo(0, 0)")
        await expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
        yard.release()
        await wait_for_turn_end(page)
        assert await page.evaluate("scrollY") < 50
        await page.get_by_role("button", name="Jump to latest").click()
        await page.wait_for_function(at_end)
        await expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()


# Stopping, answering.


async def test_the_page_stays_usable_while_a_model_writes_five_megabytes(
    chromium: Browser, yard: ChatYard
) -> None:
    paragraph = r"A **line** of many. " + "word " * 1_000 + r"\n\n"
    async with looking_at(chromium, yard) as context:
        page, box = context.page, context.page.get_by_label("Message", exact=True)
        await begin(page, f"fill 1000000 {paragraph}", "hold", f"fill 4000000 {paragraph}")
        await expect(turn(page).locator(".md p").nth(150)).to_be_attached()
        await box.press_sequentially("What next?")
        await expect(box).to_have_value("What next?")
        yard.release()
        over = await wait_for_turn_end(page)
        await expect(over).to_contain_text("was stopped after 2,000,000 characters")
        await expect(box).to_have_value("What next?")
        await page.reload()
        await expect(turn(page).locator(".md p").nth(300)).to_be_attached()
        await say(page, "say Next.")
        await expect(page.locator(".turn")).to_have_count(2)
        await expect((await wait_for_turn_end(page)).locator(".md")).to_have_text("Next.")


async def test_escape_stops_and_the_received_text_stays(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say Half an answer", "hold")
        await expect(turn(page).locator(".md")).to_contain_text("Half an answer")
        await page.keyboard.press("Escape")
        over = await wait_for_turn_end(page)
        await expect(over).to_contain_text("Stopped")
        await expect(over.locator(".md")).to_contain_text("Half an answer")
        await over.get_by_role("button", name="Retry").click()
        await expect(page.locator(".alternatives")).to_contain_text("2 of 2")
        await page.get_by_role("button", name="Stop").click()
        await wait_for_turn_end(page)
        assert await is_same_page(page)


async def test_escape_in_another_field_is_the_fields_own(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One", "hold", "say two.")
        await expect(page.locator(".answer")).to_contain_text("One")
        search = page.get_by_label("Search chats")
        await search.fill("words")
        await search.press("Escape")
        await expect(search).to_have_value("")
        yard.release()
        await expect(await wait_for_turn_end(page)).to_contain_text("two.")


async def test_a_call_is_allowed_in_its_card(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, 'call playground_note {"text": "milk"}', "then", "say Noted.")
        card = turn(page).locator(".tool-card")
        await expect(card.get_by_text("Needs approval")).to_be_visible()
        # The chat needs no link to itself.
        await expect(card.get_by_role("button", name="Always allow this tool of Playground")).to_be_visible()
        await expect(card.locator(".row-sub a")).to_be_hidden()
        await expect(page.locator(".chat-list .current")).to_contain_text("Waiting for you")
        await page.reload()
        await page.evaluate("window.stillThere = true")
        await card.get_by_role("button", name="Allow for this chat").click()
        await wait_for_turn_end(page)
        await expect(card).to_contain_text("Done")
        await say(page, 'call playground_note {"text": "bread"}', "then", "say Again.")
        await expect((await wait_for_turn_end(page)).locator(".md").last).to_have_text("Again.")
        await expect(turn(page).get_by_text("Needs approval")).to_have_count(0)
        assert await is_same_page(page)
        await page.goto("/ui/approvals")
        grant = page.locator("#grants li").filter(has_text="playground_note").filter(has_text="milk")
        await expect(grant.first).to_contain_text("With any arguments")


async def test_a_reply_is_typed_while_other_things_happen(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(
            page, "call playground_greet {}", 'call demo_count {"to": 40, "pause": 0.05}', "then", "say Hi."
        )
        name = page.get_by_label("Your name")
        await name.press_sequentially("Ada Lovelace", delay=60)
        await expect(name).to_have_value("Ada Lovelace")
        await page.get_by_label("Language").select_option("Norsk")
        await name.press("Enter")
        await expect(turn(page).get_by_text("You answered.")).to_be_visible()
        await expect(turn(page)).to_contain_text("Hei, Ada Lovelace!")
        await wait_for_turn_end(page)
        assert await is_same_page(page)


async def test_a_reply_that_lacks_something_says_so_beside_the_field(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "call playground_greet {}")
        await page.get_by_label("Language").select_option("Deutsch")
        await page.locator(".question").get_by_role("button", name="Send").last.click()
        await expect(page.locator(".question [role=alert]")).to_contain_text("“Your name” is required.")
        await expect(page.get_by_label("Language")).to_have_value('"de"')
        await page.get_by_label("Your name").fill("Ada")
        await page.locator(".question").get_by_role("button", name="Send").last.click()
        await expect(turn(page)).to_contain_text("Hallo, Ada!")
        assert await is_same_page(page)
        await wait_for_turn_end(page)
        context.said[:] = [each for each in context.said if "422" not in each]


async def test_a_chat_names_the_waiting_server_the_failure_and_the_scope_of_an_approval(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        # No server needs a new sign-in, and none is mentioned.
        await expect(page.locator("#reconnect .alert")).to_have_count(0)
        await begin(page, "call playground_greet {}", "then", "say Greeted.")
        foot, entry = page.locator(".turn-foot").last, page.locator(".chat-list .current")
        await expect(foot).to_have_text("Waiting for you")
        await expect(entry).to_contain_text("Waiting for you")
        await page.reload()
        await expect(foot).to_have_text("Waiting for you")
        await expect(entry).to_contain_text("Waiting for you")
        await page.get_by_label("Your name").fill("Ada")
        await page.get_by_label("Language").select_option("Deutsch")
        await page.locator(".question").get_by_role("button", name="Send").last.click()
        await wait_for_turn_end(page)
        await expect(page.locator(".turn")).to_contain_text("Greeted.")
        await expect(entry).not_to_contain_text("Waiting for you")

        await say(page, "say Half an answer", "fault die")
        await expect(page.locator(".turn")).to_have_count(2)
        broken = await wait_for_turn_end(page)
        await expect(broken.locator(".answer")).to_contain_text("Half an answer")
        await expect(broken.locator(".alert strong")).to_have_text("The answer is incomplete")
        await say(page, "fault 500 times=9")
        await expect(page.locator(".turn")).to_have_count(3)
        await expect((await wait_for_turn_end(page)).locator(".alert strong")).to_have_text(
            "The model request failed"
        )

        await say(page, 'call playground_note {"text": "everywhere"}', "then", "say Noted.")
        everywhere = "Allow these exact arguments for 1 hour, in all chats and clients"
        await turn(page).locator("summary", has_text="More choices").click()
        await page.get_by_role("button", name=everywhere).click()
        await expect((await wait_for_turn_end(page)).locator(".md").last).to_have_text("Noted.")
        approval_scope = "with these arguments, in all your chats and clients, for 1 hour"
        await expect(turn(page)).to_contain_text(approval_scope)
        await page.goto("/ui/chat")
        await begin(page, 'call playground_note {"text": "everywhere"}', "then", "say Again.")
        await expect((await wait_for_turn_end(page)).locator(".md").last).to_have_text("Again.")
        await say(page, 'call playground_note {"text": "other"}', "then", "say Other.")
        await expect(page.locator(".turn-foot").last).to_have_text("Waiting for you")
        await page.get_by_role("button", name="Decline").click()
        await wait_for_turn_end(page)
    async with aiohttp.ClientSession() as http:
        client = ModernClient(http, f"{yard.url}/mcp", {})
        assert not (await client.call("playground_note", {"text": "everywhere"})).result.get("isError")
        assert (await client.call("playground_note", {"text": "other"})).result["isError"]


async def test_a_message_that_cannot_be_sent_is_not_lost(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await page.context.set_offline(True)
        await say(page, "Some long thoughts")
        await expect(page.locator("#alerts")).to_contain_text("Toolyard is not responding")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("Some long thoughts")
        await page.context.set_offline(False)
        await page.get_by_label("Message", exact=True).press("Enter")
        await expect(page.locator(".turn")).to_have_count(2)
        await expect(page.get_by_label("Message", exact=True)).to_have_value("")
        await wait_for_turn_end(page)
        context.said[:] = [each for each in context.said if "ERR_INTERNET_DISCONNECTED" not in each]


# The console.


async def test_a_message_that_is_too_long_is_told_before_it_is_sent(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        box = context.page.get_by_role("textbox", name="Message")
        await box.fill("x" * 200_001)
        await box.press("Enter")
        validation_message = await box.evaluate("(one) => one.validationMessage")
        assert validation_message.startswith("The message has 200,001 characters; the limit is 200,000.")
        assert await box.evaluate("(one) => one.value.length") == 200_001
        await expect(context.page.locator("#turns .turn")).to_have_count(0)
        await box.fill("say One.")
        await box.press("Enter")
        await wait_for_turn_end(context.page)


async def test_a_tool_is_found_filled_in_and_run_in_place(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/chat?run=") as context:
        page = context.page
        await page.get_by_label("Find a tool").fill("plan a journey with stops")
        await expect(page.locator(".tool-choices a").first).to_contain_text("Plan a trip")
        await page.get_by_label("Find a tool").press("Enter")
        console = page.locator("#console")
        await console.get_by_label("start").fill("2026-12-24")
        await console.get_by_label("city").fill("Oslo")
        await console.get_by_label("nights").fill("2")
        await (
            console.locator("fieldset")
            .filter(has=page.get_by_text("stops", exact=True))
            .get_by_role("button", name="Add entry")
            .first.click()
        )
        await expect(console.get_by_label("city")).to_have_count(2)
        await expect(console.get_by_label("city").first).to_have_value("Oslo")
        await console.get_by_label("city").nth(1).fill("Bergen")
        await console.get_by_label("nights").nth(1).fill("1")
        await console.get_by_label("Kind of stay").select_option("Tent")
        await console.get_by_label("fire").select_option("yes")
        await console.get_by_label("mountains").check()
        assert await is_same_page(page)
        await console.get_by_role("button", name="Run", exact=True).last.click()
        await page.wait_for_url("**/ui/chat/*")
        over = await wait_for_turn_end(page)
        await expect(over.locator(".tool-card")).to_contain_text("home 2026-12-27")
        await expect(over.locator(".tool-card")).to_contain_text('"fire": true')
        await page.evaluate("window.stillThere = true")
        await expect(console.get_by_label("city").nth(1)).to_have_value("Bergen")
        await console.get_by_label("nights").nth(1).fill("3")
        await console.get_by_role("button", name="Run", exact=True).last.click()
        await expect(page.locator(".turn")).to_have_count(2)
        await expect((await wait_for_turn_end(page)).locator(".tool-card")).to_contain_text("home 2026-12-29")
        assert await is_same_page(page)


async def test_an_entry_is_not_removed_by_enter(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/chat?run=&tool=playground_chart") as context:
        page = context.page
        values = page.locator("#console").get_by_role("textbox", name="Entry")
        await expect(values).to_have_count(6)
        await values.nth(1).fill("7")
        await values.nth(1).press("Enter")
        await page.wait_for_url("**/ui/chat/*")
        await expect((await wait_for_turn_end(page)).locator(".tool-card")).to_contain_text(
            "6 bars, the highest is 9."
        )


async def test_the_tools_of_a_chat_are_chosen_in_a_dialog(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say Hello.")
        await wait_for_turn_end(page)

        async def slow(route: Route) -> None:
            await asyncio.sleep(0.5)
            await route.continue_()

        # Who is faster than the server sees what follows from the choice, not what was before it.
        await page.route(page.url.partition("#")[0], slow)
        await page.get_by_label("Agent").select_option("Counter")
        await page.get_by_role("link", name="All tools").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_text("Tools of the agent “Counter”.")).to_be_visible()
        hidden = dialog.locator(".hidden-tool").filter(has_text="demo_weekday")
        await expect(hidden).to_contain_text("Hidden: it is not among the tools of this agent.")
        await expect(hidden.get_by_role("checkbox")).to_be_disabled()
        await dialog.get_by_role("button", name="Clear").click()
        await dialog.get_by_role("checkbox", name="demo_count").check()
        await dialog.get_by_role("button", name="Use selected").click()
        await expect(dialog).to_be_hidden()
        await expect(page.get_by_role("link", name="1 tool", exact=True)).to_be_visible()
        await say(page, "tools?")
        await expect((await wait_for_turn_end(page)).locator(".md")).to_contain_text("demo_count")
        await expect(turn(page).locator(".md")).not_to_contain_text("demo_weekday")
        assert await is_same_page(page)


# What is long.


async def test_a_long_chat_opens_at_its_end_and_goes_back_as_one_scrolls(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['long']}") as context:
        page = context.page
        await expect(turn(page).locator(".md")).to_be_in_viewport()
        assert await page.locator(".turn").count() == 8
        for item_count in (48, 88, 128, 130):
            top = page.locator(".turn").first
            key = await top.get_attribute("id")
            await page.evaluate("scrollTo(0, 0)")
            await expect(page.locator(".turn")).to_have_count(item_count)
            # The reader stays at the turn that was read, below the new ones.
            await expect(page.locator(f"#{key}")).to_be_in_viewport()
        await expect(page.get_by_role("link", name="Show earlier turns")).to_have_count(0)
        texts = await page.locator(".bubble").all_text_contents()
        assert texts == [f"Question {n}" for n in range(130)]
        assert await is_same_page(page)


async def test_a_result_of_megabytes_shows_its_head_and_more_on_demand(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['big']}") as context:
        page = context.page
        text = page.locator(".result code")
        await expect(page.locator(".more-line")).to_contain_text("20,000 of")
        await page.get_by_role("link", name="Show more").click()
        await expect(page.locator(".more-line")).to_contain_text("220,000 of")
        shown_text = await text.text_content() or ""
        assert len(shown_text) == 220_000
        assert "".join(f"line {n:06}: some words of a long result\n" for n in range(6_000)).startswith(
            shown_text[:200_000]
        )
        assert await is_same_page(page)


# Harmless.


@pytest.mark.parametrize("which", ["hostile", "hostile-2"])
async def test_nothing_that_others_wrote_does_anything(chromium: Browser, yard: ChatYard, which: str) -> None:
    requested_urls: list[str] = []
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        page.on("request", lambda request: requested_urls.append(request.url))
        await page.goto(f"/ui/chat/{yard.ids[which]}")
        await expect(page.locator(".turn").first).to_be_attached()
        await page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        await page.mouse.move(400, 300)
        assert await page.evaluate("window.hacked") is None
        links = await page.evaluate(
            "[...document.querySelectorAll('#turns a')].map((a) => [a.protocol, a.rel, a.origin])"
        )
        assert links
        for protocol, rel, origin in links:
            assert protocol in ("http:", "https:", "mailto:")
            assert origin == yard.url or "nofollow" in rel
        never = page.locator("#turns").locator("script, iframe, object, embed, style, base, meta, link")
        await expect(never).to_have_count(0)
        assert [each for each in requested_urls if not each.startswith(yard.url)] == []


async def test_hostile_pieces_do_nothing_while_they_are_streamed(chromium: Browser, yard: ChatYard) -> None:
    requested_urls: list[str] = []
    lines = [each.replace("\n", r"\n") for each in ATTACKS if "\0" not in each][:60]
    async with looking_at(chromium, yard) as context:
        page = context.page
        page.on("request", lambda request: requested_urls.append(request.url))
        await begin(page, *(rf"say {each}\n\n" for each in lines))
        await wait_for_turn_end(page)
        assert await page.evaluate("window.hacked") is None
        assert [each for each in requested_urls if not each.startswith(yard.url)] == []
        await same_after_reload(page)


# By keyboard, on every screen.


async def test_shortcuts(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['long']}") as context:
        page = context.page
        box = page.get_by_label("Message", exact=True)
        await page.keyboard.press("/")
        await expect(box).to_be_focused()
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two?/")
        await expect(box).to_have_value("one\ntwo?/")
        await page.locator("#main").focus()
        await page.keyboard.press("?")
        await expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_hidden()
        await page.keyboard.press("Control+k")
        await page.get_by_role("dialog").get_by_role("link", name="New chat").click()
        await page.wait_for_url("**/ui/chat")
        await expect(box).to_be_focused()


async def test_a_turn_with_an_approval_works_by_keyboard_alone(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await page.keyboard.type('call playground_note {"text": "keys"}')
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("then")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("say By keys.")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/chat/*")
        await expect(turn(page).get_by_text("Needs approval")).to_be_visible()
        yes = turn(page).get_by_role("button", name="Allow once")
        # One can go on typing on the page of the new chat.
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        for _ in range(12):
            await page.keyboard.press("Shift+Tab")
            if await yes.evaluate("(one) => one === document.activeElement"):
                break
        await expect(yes).to_have_css("outline-style", "solid")
        await page.keyboard.press("Enter")
        await expect((await wait_for_turn_end(page)).locator(".md").last).to_have_text("By keys.")
        await expect(page.locator("#chat-log")).to_contain_text("By keys.")


PLACES = (
    "/ui/chat",
    "/ui/chat?run=",
    "/ui/chat?run=&tool=playground_plan_trip",
    "/ui/chat/{chat}",
    "/ui/chat/{chat-waits}",
    "/ui/chat/{chat-waits}?run=&tool=demo_count",
    "/ui/chat/{chat-waits}/tools",
    "/ui/chat/{hostile}",
    "/ui/approvals",
    "/ui/dev/parts",
)


@pytest.mark.parametrize("width", [1280, 360])
async def test_pages_are_quiet_fit_the_window_and_can_be_read(
    chromium: Browser, yard: ChatYard, width: int
) -> None:
    size = {"width": width, "height": 844}
    async with window(chromium, yard, viewport=size) as open_window:  # type: ignore[arg-type]
        for place in PLACES:
            path = place.format_map(yard.ids)
            await open_window.page.goto(path)
            await expect(open_window.page.locator("[data-load][aria-busy]")).to_have_count(0)
            async for scheme in schemes(open_window.page):
                wide = await open_window.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (path, scheme)
                assert await open_window.page.evaluate(CONTRAST) == [], (path, scheme)
            assert open_window.said == [], path


async def test_all_texts_of_a_call_are_as_large_as_its_result(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['chat-waits']}") as context:
        texts = context.page.locator(".code code, .result-view code")
        sizes = await texts.evaluate_all("(all) => all.map((each) => getComputedStyle(each).fontSize)")
        assert set(sizes) == {"15px"}


async def test_the_cost_of_a_turn_is_in_line_with_its_answer_on_a_narrow_page(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, viewport={"width": 300, "height": 844}) as context:
        await begin(context.page, "say One.")
        line = (await wait_for_turn_end(context.page)).locator(".foot-line")
        await expect(line).to_contain_text("Title: ")
        edges = """(line) => {
          const text = document.createRange();
          text.selectNodeContents(line.querySelector(".cost"));
          const [inner, outer] = [text, line.closest(".turn")].map((each) => each.getBoundingClientRect());
          return [inner.left - outer.left, outer.right - inner.right];
        }"""
        assert min(await line.evaluate(edges)) >= 0


async def test_the_title_of_a_chat_has_the_whole_width_of_the_list(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, viewport={"width": 1280, "height": 800}) as context:
        entry = context.page.locator(".chat-list li").first
        right = "(one) => one.getBoundingClientRect().right"
        assert await entry.locator("a").first.evaluate(right) == await entry.evaluate(right)
        # The menu appears under the pointer, and covers no text.
        await entry.hover()
        menu = entry.locator("summary")
        await expect(menu).to_have_css("opacity", "1")
        title = await entry.locator("bdi").first.evaluate(right)
        assert title <= await menu.evaluate("(one) => one.getBoundingClientRect().left")


async def test_the_menu_of_the_last_chat_in_view_opens_in_view(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, viewport={"width": 1280, "height": 420}) as context:
        entries = context.page.locator(".chat-list li")
        boxes = await entries.evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().bottom)")
        last = entries.nth(sum(bottom < 400 for bottom in boxes) - 1)
        await last.hover()
        await last.locator("summary").click()
        await expect(last.get_by_role("link", name="Delete")).to_be_in_viewport()


async def test_answers_from_right_to_left_have_their_bullets_inside(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        await begin(context.page, "say - \u05e9\u05dc\u05d5\u05dd\\n\\n> \u05e9\u05dc\u05d5\u05dd")
        answer = (await wait_for_turn_end(context.page)).locator(".md")
        await expect(answer.locator("ul")).to_have_css("padding-right", "24px")
        await expect(answer.locator("blockquote")).to_have_css("border-right-width", "3px")


async def test_on_a_phone_the_chats_are_behind_a_button(chromium: Browser, yard: ChatYard) -> None:
    size = {"width": 390, "height": 844}
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['chat']}", viewport=size) as context:
        page = context.page
        entry = page.locator("#chat-side").get_by_role("link", name="Release notes for 1.4")
        await expect(entry).to_be_hidden()
        await page.get_by_role("button", name="Chats", exact=True).click()
        await expect(entry).to_be_visible()
        await entry.click()
        await expect(page.locator("#chat-title")).to_have_text("Release notes for 1.4")


async def test_chats_are_searched_renamed_and_deleted(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say About cucumbers.")
        await wait_for_turn_end(page)
        await page.locator(".chat-head summary").click()
        await page.locator(".chat-head").get_by_role("link", name="Rename").click()
        await page.get_by_role("dialog").get_by_label("Title").fill("Green things")
        await page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        await expect(page.locator("#chat-title")).to_have_text("Green things")
        await page.get_by_label("Search chats").fill("cucumbers")
        await expect(page.locator(".chat-list li")).to_have_count(1)
        await expect(page.locator(".chat-list li")).to_contain_text("Green things")
        async with page.expect_download() as download:
            await page.locator(".chat-head summary").click()
            await page.locator(".chat-head").get_by_role("link", name="Export").click()
        assert (await download.value).suggested_filename == "green-things.md"
        await page.locator(".chat-head").get_by_role("link", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await page.wait_for_url("**/ui/chat")
        await expect(page.locator("#flash")).to_contain_text("“Green things” was deleted.")


async def test_an_answer_and_its_code_are_copied(chromium: Browser, yard: ChatYard) -> None:
    rights = ["clipboard-read", "clipboard-write"]
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['chat']}", permissions=rights) as context:
        page = context.page
        await page.get_by_role("button", name="Copy code").click()
        await expect(page.locator("#announcements")).to_have_text("Copied")
        assert "return sum(days) / 7" in await page.evaluate("navigator.clipboard.readText()")
        await page.get_by_role("button", name="Copy answer").click()
        await page.wait_for_function(
            "navigator.clipboard.readText().then((text) => text.startsWith('Let me look.'))"
        )


async def test_labels_of_values_are_not_keys(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        html = await context.page.content()
    assert "Fake one" in html
    assert 'value="good"' not in html
    assert f"{yard.model.url}/v1" not in html


async def test_older_chats_are_added_to_the_list(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page, entries = context.page, context.page.locator(".chat-list li")
        entry_count = await entries.count()
        for number in range(entry_count, 42):
            await page.request.post("/api/v1/chats", data={"title": f"Number {number}"})
        await page.reload()
        await expect(entries).to_have_count(40)
        await page.get_by_role("link", name="Older chats").click()
        await expect(entries).to_have_count(42)
        # The keyboard goes on at the first of them.
        await expect(entries.nth(40).locator("a").first).to_be_focused()
        await expect(page.get_by_role("link", name="Older chats")).to_have_count(0)
