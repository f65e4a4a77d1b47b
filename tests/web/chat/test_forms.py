"""Chats without script: every form works, the page shows what came of it, and nothing typed is lost."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.reachable import find_keys
from tests.web.chat.chat_client import ROOT, models_at
from tests.web.conftest import InProcessApp, Opening
from tests.web.pages.test_render import check
from tests.web.scriptless_browser import PageElement, ScriptlessBrowser, ScriptlessPage

from toolyard.agents.chat.result_event import result_event
from toolyard.types.agent import Agent
from toolyard.types.audit import AuditEntry, UsageGroup
from toolyard.types.chat import Kind, NewChatEvent, TurnState
from toolyard.types.tool import Result

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

CHAT_SERVER = ROOT / "tests/servers/chat_server.py"
PLAYGROUND = {
    "label": "Playground",
    "command": sys.executable,
    "args": ["-I", "-m", "toolyard.cli.playground_server"],
}
RESEARCHER = Agent("researcher", "Researcher", tools=("demo_*",))


@dataclass
class ChatFormSite:
    """A Toolyard with a model, and a browser of the one person."""

    local: InProcessApp
    browser: ScriptlessBrowser

    async def settled(
        self, page: ScriptlessPage, wanted: Callable[[ScriptlessPage], bool] | None = None
    ) -> ScriptlessPage:
        """The page, once its turn is over, or once it shows what is wanted."""
        ready = wanted or (
            lambda each: bool(each.root.all("div", class_="foot-line")) and "Working" not in each.text
        )
        path = page.path.split("#")[0]
        async with asyncio.timeout(30):
            while not ready(page := await self.browser.get(path)):
                await asyncio.sleep(0.05)
        check(page)
        return page

    async def say(self, text: str, page: ScriptlessPage | None = None, **more: str) -> ScriptlessPage:
        page = page or await self.browser.get("/ui/chat")
        return await self.browser.send(page, page.form_with("text"), {"text": text, **more})

    async def press(self, page: ScriptlessPage, **button_name: str) -> ScriptlessPage:
        """Press a button that belongs to the form at the page's end, by its text or value."""
        for button in page.root.all("button", form="action-form"):
            if button_name["value"] == button.attrs.get("value"):
                pairs = [
                    *page.fields(page.root.one("form", id="action-form")),
                    (button.attrs["name"], button.attrs["value"]),
                ]
                return await self.browser.go("POST", button.attrs["formaction"], pairs, {})
        raise AssertionError(f"no button {button_name}")


@pytest.fixture
async def yard(
    open_site: Opening, model_program: ListeningProgram, demo: dict[str, Any], tmp_path: Path
) -> ChatFormSite:
    asking_server = {**demo, "args": ["-I", "-S", str(CHAT_SERVER), str(tmp_path / "journal")]}
    servers = {"demo": {**demo, "label": "Demo"}, "playground": PLAYGROUND, "asking": asking_server}
    local = await open_site(
        servers, models=models_at(model_program.url), agents=[RESEARCHER], write_tools="ask"
    )
    return ChatFormSite(local, ScriptlessBrowser(local.client()))


@pytest.fixture
async def console(open_site: Opening, demo: dict[str, Any]) -> ChatFormSite:
    """Without a model."""
    servers = {"demo": {**demo, "label": "Demo"}, "playground": PLAYGROUND}
    local = await open_site(servers, write_tools="ask")
    return ChatFormSite(local, ScriptlessBrowser(local.client()))


# Talking.


async def test_a_message_begins_a_chat_and_its_answer_is_there_after_a_reload(yard: ChatFormSite) -> None:
    page = await yard.say(
        'say Here is **it**.\ncall demo_weekday {"date": "2026-07-28"}\nthen\nsay A Tuesday.'
    )
    assert re.fullmatch(r"/ui/chat/[0-9a-f]+", page.path)
    page = await yard.settled(page)
    assert page.root.one("strong").text == "it"
    card = page.root.one("article", class_="tool-card")
    assert "demo_weekday" in card.text
    assert "2026-07-28 is a Tuesday." in card.text
    assert "Done" in card.one("header").text
    assert "A Tuesday." in page.text
    assert re.search(r"\d+ tokens in · \d+ out", page.text)
    assert page.path in [each.attrs["href"] for each in page.root.one("div", id="chat-list").all("a")]


async def test_a_message_in_a_chat_goes_on_in_it(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("say One."))
    again = await yard.settled(await yard.say("say Two.", page), lambda each: "Two." in each.text)
    assert again.path == page.path
    assert len(again.root.all("article", class_="turn")) == 2


@pytest.mark.parametrize("text", ["", "  \n "])
async def test_nothing_at_all_is_not_sent(yard: ChatFormSite, text: str) -> None:
    page = await yard.say(text)
    assert page.status == 409
    assert "The message is empty" in page.text or "the message is empty" in page.text
    assert (await yard.local.services.chats.list("local")) == []


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_any_text_of_the_maximum_length_can_be_sent(yard: ChatFormSite) -> None:
    page = await yard.say("say Read.\n" + "字" * (200_000 - 10))
    assert page.status == 200
    [chat] = await yard.local.services.chats.list("local")
    [event] = await yard.local.services.chats.list_events("local", chat.id, limit=1)
    assert len(event.body["text"]) == 200_000


async def test_text_is_kept_when_it_cannot_be_sent(yard: ChatFormSite) -> None:
    page = await yard.say("Some long thoughts", model="gone:nothing")
    assert page.status >= 400
    assert page.value("text") == "Some long thoughts"
    assert "unknown model" in page.text.lower()
    assert (await yard.local.services.chats.list("local")) == []


async def test_choices_are_kept_when_they_cannot_be_sent(yard: ChatFormSite) -> None:
    page = await yard.say("", agent="researcher", model="fake")
    assert page.status == 409
    assert page.value("agent") == "researcher"
    assert page.value("model") == "fake"


def bubbles(page: ScriptlessPage) -> list[str]:
    return [each.text for each in page.root.all("div", class_="bubble")]


def places(page: ScriptlessPage) -> list[str]:
    """The places among alternatives that the page shows."""
    return [each.text.strip() for each in page.root.all("span", class_="alternatives")]


def is_over_after(text: str) -> Callable[[ScriptlessPage], bool]:
    """Whether the turn of the last message, which has this text, is over."""
    return lambda page: bubbles(page)[-1:] == [text] and "Working" not in page.text


def is_at(place: str) -> Callable[[ScriptlessPage], bool]:
    return lambda page: places(page) == [place] and "Working" not in page.text


async def test_a_turn_is_tried_again_and_the_first_try_is_one_press_away(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("fault 500 times=9"))
    assert "The model request failed" in page.text
    assert places(page) == []
    page = await yard.press(page, value="retry 1")
    page = await yard.settled(page, is_at("2 of 2"))
    assert len(page.root.all("article", class_="turn")) == 1
    page = await yard.press(page, value="choose 1")
    assert (places(page), page.root.one("article", class_="turn").attrs["id"]) == (["1 of 2"], "t1")


async def test_a_message_is_edited_without_a_script_and_both_versions_are_kept(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("say One.\nhold-not"))
    page = await yard.settled(await yard.say("say Two.", page), is_over_after("say Two."))
    first = page.root.all("a", class_="edit")[0].attrs["href"]
    form = await yard.browser.get(first)
    check(form)
    assert form.value("text") == "say One.\nhold-not"
    assert "Editing a message. The earlier version is kept." in form.text
    page = await yard.say("say Other.", form)
    page = await yard.settled(page, is_over_after("say Other."))
    assert (bubbles(page), places(page)) == (["say Other."], ["2 of 2"])
    # The form is one for new messages again.
    page = await yard.settled(await yard.say("say Three.", page), is_over_after("say Three."))
    assert (bubbles(page), places(page)) == (["say Other.", "say Three."], ["2 of 2"])
    page = await yard.press(page, value="choose 1")
    assert (bubbles(page), places(page)) == (["say One. hold-not", "say Two."], ["1 of 2"])


async def test_the_second_of_two_tabs_that_edit_a_message_gets_the_newer_version(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("say One."))
    chat = page.path.split("#")[0]
    forms = [await yard.browser.get(f"{chat}?edit=1") for _ in range(2)]
    await yard.settled(await yard.say("say First tab.", forms[0]), is_at("2 of 2"))
    refusal = await yard.say("say Second tab.", forms[1])
    check(refusal)
    assert (refusal.status, refusal.value("text")) == (409, "say Second tab.")
    assert (
        "This message has been changed since you opened it. Its newer version is: “say First tab.”."
        in refusal.text
    )
    assert "Your text is kept. Send it again to replace the newer version, or cancel." in refusal.text
    assert bubbles(refusal) == ["say First tab."]
    page = await yard.say("say Second tab.", refusal)
    page = await yard.settled(page, is_at("3 of 3"))
    assert bubbles(page) == ["say Second tab."]


async def test_an_edit_in_a_chat_that_is_busy_or_gone_ends_clearly(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("say One."))
    chat = page.path.split("#")[0]
    form = await yard.browser.get(f"{chat}?edit=1")
    await yard.say("say Two.\nhold", page)
    refusal = await yard.say("say Other.", form)
    assert (refusal.status, refusal.value("text")) == (409, "say Other.")
    assert "A turn is already running" in refusal.text
    assert "Editing a message" in refusal.text
    await yard.press(await yard.browser.get(chat), value="stop")
    for value, status in (("choose 99", 404), ("choose", 404), ("retry x", 409), ("edit 99", 404)):
        data = [*page.fields(page.root.one("form", id="action-form")), ("do", value), ("text", "x")]
        answer = await yard.browser.go("POST", chat, data, {})
        assert answer.status in (status, 200), value
        check(answer)
    assert (await yard.browser.get(f"{chat}?edit=99")).status == 404
    await yard.local.services.chats.delete("local", chat.split("/")[-1])
    missing_page = await yard.say("say Other.", form)
    assert (
        missing_page.status,
        "Chat not found" in missing_page.text or "chat not found" in missing_page.text,
    ) == (404, True)


async def test_a_turn_is_stopped(yard: ChatFormSite) -> None:
    page = await yard.say("say Begins\nhold")
    page = await yard.settled(
        page,
        lambda each: (
            "Begins" in each.root.one("div", id="turns").all("div", class_="md")[0].text
            if each.root.all("div", class_="md")
            else False
        ),
    )
    assert page.root.one("section", id="chat").attrs["data-state"] == "running"
    page = await yard.settled(await yard.press(page, value="stop"))
    assert "Stopped" in page.text
    assert "Begins" in page.text


async def test_agent_and_model_are_chosen_and_no_key_is_shown(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("tools?", agent="researcher"))
    assert "demo_weekday" in page.text
    assert "playground_chart" not in page.text
    assert "good" not in page.html.replace("pill good", "").replace("chip good", "").replace("alert good", "")
    form = page.root.one("form", id="settings-form")
    page = await yard.browser.send(page, form, {"agent": "", "model": "fake"})
    chat = (await yard.local.services.chats.list("local"))[0]
    assert (chat.agent, chat.model) == (None, "fake")


# The tools of a chat.


async def test_tools_are_ticked_and_a_hidden_one_says_why(yard: ChatFormSite) -> None:
    page = await yard.settled(await yard.say("say Hello.", agent="researcher"))
    panel = await yard.browser.get(f"{page.path}/tools")
    check(panel)
    hidden = [
        each
        for each in panel.root.all("li", class_="hidden-tool")
        if "playground_chart" in each.text or "Draw" in each.text
    ]
    assert "Hidden:" in hidden[0].text
    assert "disabled" in hidden[0].one("input").attrs
    form = panel.form(f"{page.path}/tools")
    after = await yard.browser.send(panel, form, {"tool": ["demo/weekday"]}, press=("which", "some"))
    assert "applies from your next message" in after.flash
    assert (await yard.local.services.chats.list("local"))[0].choice == ("demo/weekday",)
    assert "1 tool" in after.root.one("div", id="settings").text
    page = await yard.settled(await yard.say("tools?", after), lambda each: "demo_weekday" in each.text)
    assert "demo_count" not in page.text
    panel = await yard.browser.get(f"{page.path.split('?')[0]}/tools")
    await yard.browser.send(panel, form, {}, press=("which", "all"))
    assert (await yard.local.services.chats.list("local"))[0].choice is None


# Approvals and questions.


async def test_a_call_that_writes_waits_for_a_yes(yard: ChatFormSite) -> None:
    page = await yard.say('call playground_note {"text": "milk"}\nthen\nsay Noted.')
    page = await yard.settled(page, lambda each: "Needs approval" in each.text)
    assert page.root.one("section", id="chat").attrs["data-state"] == "waiting"
    card = page.root.one("article", class_="tool-card")
    assert "Your approval is needed." in card.text
    assert "readOnlyHint" not in card.text
    assert '"milk"' in card.one("div", class_="ask").text
    home = await yard.browser.get("/ui/")
    assert "1 chat needs your attention" in home.text
    page = await yard.settled(await yard.press(page, value="once"))
    assert "You approved this call" in page.text
    assert "- milk" in page.text
    assert "Noted." in page.text


async def test_no_is_an_answer(yard: ChatFormSite) -> None:
    page = await yard.say('call playground_note {"text": "milk"}\nthen\nsay Well.')
    page = await yard.settled(page, lambda each: "Needs approval" in each.text)
    page = await yard.settled(await yard.press(page, value="no"))
    assert "Declined" in page.root.one("article", class_="tool-card").text
    assert "Well." in page.text


async def test_a_call_of_a_stopped_turn_is_stopped(yard: ChatFormSite) -> None:
    page = await yard.say('call playground_note {"text": "milk"}')
    page = await yard.settled(page, lambda each: "Needs approval" in each.text)
    page = await yard.settled(await yard.press(page, value="stop"))
    card = page.root.one("article", class_="tool-card")
    assert card.one("span", class_="pill").text == "Stopped"
    assert "Not called: the turn ended before" in card.text
    assert "Error output" not in card.text


async def test_an_approval_for_an_hour_says_when_it_ends(yard: ChatFormSite) -> None:
    page = await yard.say('call playground_note {"text": "milk"}\nthen\nsay Noted.')
    await yard.settled(page, lambda each: "Needs approval" in each.text)
    after = await yard.press(await yard.browser.get("/ui/approvals"), value="these")
    assert re.search(r"With exactly .*, in every chat and for programs, ends in (60|5\d) min\.", after.text)


async def test_approvals_are_answered_on_their_page_and_taken_back(yard: ChatFormSite) -> None:
    page = await yard.say('call playground_note {"text": "milk"}\nthen\nsay Noted.')
    await yard.settled(page, lambda each: "Needs approval" in each.text)
    approvals = await yard.browser.get("/ui/approvals")
    check(approvals)
    assert "playground_note" in approvals.text
    assert "milk" in approvals.text
    assert approvals.root.all("a", href=page.path)
    after = await yard.press(approvals, value="here")
    assert "Call approved." in after.flash
    assert "Nothing to approve" in after.text
    assert "With any arguments" in after.text
    revoke = next(each for each in after.root.all("button") if each.text == "Revoke")
    page = await yard.settled(page)
    again = await yard.settled(
        await yard.say('call playground_note {"text": "bread"}\nthen\nsay Again.', page),
        lambda each: "- bread" in each.text and each.text.count("Again.") > 1,
    )
    assert "You approved this call" in page.text
    missing_page = await yard.browser.press(after, revoke.attrs["formaction"])
    assert "No standing approvals" in missing_page.text
    page = await yard.say('call playground_note {"text": "more"}', again)
    await yard.settled(page, lambda each: "Needs approval" in each.text)
    twice = await yard.browser.press(after, revoke.attrs["formaction"])
    assert twice.status == 404


async def test_an_approval_is_answered_once(yard: ChatFormSite) -> None:
    page = await yard.say('call playground_note {"text": "milk"}\nthen\nsay Noted.')
    page = await yard.settled(page, lambda each: "Needs approval" in each.text)
    await yard.press(page, value="once")
    after = await yard.press(page, value="no")
    assert "is no longer waiting for an answer" in after.flash


def question(page: ScriptlessPage) -> tuple[PageElement, list[str]]:
    """The form of a question, and the names of its fields."""
    form = page.root.one("section", class_="question").one("form")
    return form, [name for name, _ in page.fields(form) if re.match(r"q\d", name)]


async def test_an_incomplete_reply_is_shown_again_with_its_values(yard: ChatFormSite) -> None:
    page = await yard.say("call playground_greet {}\nthen\nsay Greeted.")
    page = await yard.settled(page, lambda each: "is asking" in each.text)
    form, (name, language) = question(page)
    refused_page = await yard.browser.send(
        page, form, {name: " ", language: '"de"'}, press=("reply", "accept")
    )
    assert refused_page.status == 422
    check(refused_page)
    assert "is required" in refused_page.error(name)
    form, _ = question(refused_page)
    assert dict(refused_page.fields(form))[language] == '"de"'
    page = await yard.browser.send(refused_page, form, {name: "Ada"}, press=("reply", "accept"))
    assert "Hallo, Ada!" in (await yard.settled(page)).text


async def test_a_reply_reaches_the_server(yard: ChatFormSite) -> None:
    page = await yard.say("call playground_greet {}\nthen\nsay Greeted.")
    page = await yard.settled(page, lambda each: "is asking" in each.text)
    form, (name, language) = question(page)
    page = await yard.browser.send(page, form, {name: "Ada", language: '"no"'}, press=("reply", "accept"))
    page = await yard.settled(page)
    assert "Hei, Ada!" in page.text
    assert "You answered." in page.text
    late = await yard.browser.send(page, form, {name: "Bob"}, press=("reply", "accept"))
    assert late.status == 409


async def test_a_reply_can_be_declined(yard: ChatFormSite) -> None:
    page = await yard.say("call playground_greet {}\nthen\nsay Greeted.")
    page = await yard.settled(page, lambda each: "is asking" in each.text)
    form = page.root.one("section", class_="question").one("form")
    page = await yard.settled(await yard.browser.send(page, form, press=("reply", "decline")))
    assert "Nobody was greeted." in page.text
    assert "You declined." in page.text


async def test_a_server_asks_to_open_a_page_and_the_person_sees_its_host(yard: ChatFormSite) -> None:
    page = await yard.say('call asking_ask {"url": "https://evil.test:8443/x?y=1"}\nthen\nsay Ok.')
    page = await yard.settled(page, lambda each: "asks you to open a page" in each.text)
    question_section = page.root.one("section", class_="question")
    assert "This opens evil.test." in question_section.text
    link = question_section.one("a", target="_blank")
    assert link.attrs["href"] == "https://evil.test:8443/x?y=1"
    assert link.attrs["rel"] == "noopener noreferrer nofollow"
    page = await yard.settled(
        await yard.browser.send(page, question_section.one("form"), press=("reply", "accept"))
    )
    assert '"action": "accept"' in page.text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//evil.test", "https://", "file:///x"]
)
async def test_an_address_that_is_not_a_page_is_only_shown(yard: ChatFormSite, url: str) -> None:
    page = await yard.say(f'call asking_ask {{"url": "{url}"}}\nthen\nsay Ok.')
    page = await yard.settled(page, lambda each: "Working" not in each.text or "asks you" in each.text)
    assert not [
        each for each in page.root.one("div", id="turns").all("a") if url in each.attrs.get("href", "")
    ]


@pytest.mark.parametrize(
    ("reply", "confirmation"), [("accept", "You said: Be brief and kind"), ("decline", "did not")]
)
async def test_a_server_that_wants_the_model_is_allowed_or_not(
    yard: ChatFormSite, reply: str, confirmation: str
) -> None:
    page = await yard.say('call asking_think {"text": "Be brief and kind"}\nthen\nsay Ok.')
    page = await yard.settled(page, lambda each: "wants to use your model" in each.text)
    question_section = page.root.one("section", class_="question")
    assert "Be brief and kind" in question_section.one("pre").text
    page = await yard.settled(
        await yard.browser.send(page, question_section.one("form"), press=("reply", reply))
    )
    assert confirmation in page.root.one("article", class_="tool-card").text


# Cost.


@contextlib.contextmanager
def instance_queries(yard: ChatFormSite) -> Iterator[list[str]]:
    """Collect the queries for instances."""
    queries, reader = list[str](), yard.local.services.database.executor.engines.reader

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM instances" in statement:
            queries.append(statement)

    event.listen(reader, "before_cursor_execute", note)
    yield queries
    event.remove(reader, "before_cursor_execute", note)


async def until_changes_are_heard(yard: ChatFormSite) -> None:
    yard.local.services.instances.max_read_age_seconds = 3_600.0
    async with asyncio.timeout(30):
        while not yard.local.services.database.signals.is_listening:
            await asyncio.sleep(0.01)


async def test_a_message_that_begins_a_chat_uses_the_instances_that_its_page_has_read(
    yard: ChatFormSite,
) -> None:
    await until_changes_are_heard(yard)
    page = await yard.browser.get("/ui/chat")
    with instance_queries(yard) as queries:
        sent = await yard.say("say Hello.", page)
        assert queries == []
    await yard.settled(sent)


async def test_a_tool_that_begins_a_chat_uses_the_instances_that_its_page_has_read(
    console: ChatFormSite,
) -> None:
    await until_changes_are_heard(console)
    tool = await console.browser.get("/ui/chat/console?tool=demo_weekday")
    with instance_queries(console) as queries:
        sent = await console.browser.send(tool, tool.form_with("tool"), {"arg-0": "2026-07-28"})
        assert queries == []
    assert "2026-07-28 is a Tuesday." in (await console.settled(sent)).text


async def test_the_tokens_of_a_turn_are_in_the_usage(yard: ChatFormSite) -> None:
    await yard.settled(await yard.say('call demo_weekday {"date": "2026-07-28"}\nthen\nsay Done.'))
    database, today = yard.local.services.database, datetime.now(UTC).date()
    await database.audit.write(AuditEntry(0.0, "test.flush", ""))
    days = (today - timedelta(1), today)
    (tool,) = await database.usage.sum_by(UsageGroup.TOOL, *days, person="local")
    agents = await database.usage.sum_by(UsageGroup.AGENT, *days, person="local")
    # The title, which is written later, has a key of its own.
    (model,) = [each for each in agents if not each.key]
    assert (tool.key, tool.calls) == ("demo/weekday", 1)
    assert model.requests == 2
    assert min(model.input_tokens, model.output_tokens) > 0


async def test_requests_of_the_api_that_begin_a_chat_read_the_instances_once(yard: ChatFormSite) -> None:
    await until_changes_are_heard(yard)
    client = yard.local.client()
    with instance_queries(yard) as queries:
        chat = (await client.post("/api/v1/chats", {})).json["id"]
        assert len(queries) == 1
        assert (await client.post(f"/api/v1/chats/{chat}/messages", {"text": "say Hello."})).status == 202
        assert len(queries) == 1


async def test_a_form_that_begins_no_chat_leaves_none_behind(console: ChatFormSite) -> None:
    tool = await console.browser.get("/ui/chat/console?tool=playground_plan_trip")
    page = await console.browser.send(tool, tool.form_with("tool"), {})
    assert page.status == 422
    assert not await console.local.services.chats.list("local")
    # Nothing in memory is kept for the id of a chat.
    keys = find_keys(console.local.app.state, "")
    assert [key for key in keys if re.fullmatch("[0-9a-f]{24}", key)] == []


# The console.


async def test_the_console_names_the_rule_that_hides_a_tool(
    open_site: Opening, model_program: ListeningProgram, demo: dict[str, Any]
) -> None:
    shy = Agent("shy", "Shy", mode="meta", tools=("demo_*",))
    local = await open_site({"demo": demo}, models=models_at(model_program.url), agents=[shy])
    browser = ScriptlessBrowser(local.client())
    for query in ("", "?find=forget+a+thing"):
        hidden = (await browser.get(f"/ui/chat/console{query}")).root.one("details", id="console-hidden")
        assert hidden.one("summary").text == "1 hidden tool (can change data)"
        # A tool without a title of its own is named once.
        assert hidden.one("li").text.startswith("demo_forgetHidden: this tool can change data")
    page = await browser.get("/ui/chat/console?tool=demo_forget")
    assert page.status == 404
    assert "“demo_forget” is hidden: this tool can change data" in page.text
    # A person runs tools directly, also those that the chat's model has through the meta tools.
    chat = (await local.client().post("/api/v1/chats", {"agent": "shy"})).json["id"]
    tool = await browser.get(f"/ui/chat/{chat}/console?tool=demo_weekday")
    assert (tool.status, tool.form_with("tool") is not None) == (200, True)


async def test_without_a_model_the_page_is_the_console(console: ChatFormSite) -> None:
    page = await console.browser.get("/ui/chat")
    assert page.h1 == "Run a tool"
    assert not page.root.all("textarea", name="text")
    assert page.root.one("div", id="greeting").one("a", href="/ui/admin/models/new").text == "add one"
    response = await console.browser.get("/ui/chat/console?find=which+day+of+the+week")
    assert (
        response.root.one("ul", class_="tool-choices")
        .all("a")[0]
        .attrs["href"]
        .endswith("?tool=demo_weekday")
    )
    tool = await console.browser.get("/ui/chat/console?tool=demo_weekday")
    page = await console.browser.send(tool, tool.form_with("tool"), {"arg-0": "2026-07-28"})
    assert re.match(r"/ui/chat/[0-9a-f]+\?run=&tool=demo_weekday", page.path)
    page = await console.settled(page)
    assert "2026-07-28 is a Tuesday." in page.text
    assert "You ran demo_weekday" in page.text
    chat = page.path.split("?")[0]
    again = await console.browser.get(f"{chat}/console?tool=demo_weekday")
    assert again.value("arg-0") == "2026-07-28"


async def test_without_a_model_a_user_is_told_to_ask_an_admin(
    password_site: InProcessApp,
) -> None:
    ann = ScriptlessBrowser((await password_site.person("ann")).browser)
    greeting = (await ann.get("/ui/chat")).root.one("div", id="greeting")
    assert "ask an admin to add one" in greeting.text
    assert not greeting.all("a")


async def test_a_nested_form_grows_and_is_run(console: ChatFormSite) -> None:
    page = await console.browser.get("/ui/chat/console?tool=playground_plan_trip")
    names = {label.attrs["for"]: label.text for label in page.root.all("label") if "for" in label.attrs}
    city = next(name for name, text in names.items() if text == "city")
    stops = city.split("-e")[0]
    form = page.form_with("tool")
    form_values = {"arg-0": "2026-12-24", city: "Oslo", city.removesuffix("0") + "1": "2"}
    page = await console.browser.send(page, form, form_values, press=("form-add", stops))
    assert page.status == 200
    assert page.value(city) == "Oslo"
    second = city.replace("-e0-", "-e1-")
    assert page.value(second) == ""
    page = await console.browser.send(page, page.form_with("tool"), {second: "Bergen"})
    assert page.status == 422
    assert "is required" in page.text
    assert page.value(second) == "Bergen"
    page = await console.browser.send(page, page.form_with("tool"), {second.removesuffix("0") + "1": "1"})
    page = await console.settled(page)
    assert "home 2026-12-27" in page.text


async def test_form_values_are_kept_when_the_tool_cannot_be_run(console: ChatFormSite) -> None:
    page = await console.browser.get("/ui/chat/console?tool=demo_count")
    page = await console.browser.send(page, page.form_with("tool"), {"arg-0": str(2**70)})
    assert page.status == 409
    assert "64 bits" in page.text
    assert page.value("arg-0") == str(2**70)
    assert (await console.local.services.chats.list("local")) == []


async def test_a_picture_is_shown_as_a_picture(console: ChatFormSite) -> None:
    tool = await console.browser.get("/ui/chat/console?tool=playground_chart")
    page = await console.settled(await console.browser.send(tool, tool.form_with("tool")))
    picture = page.root.one("ul", class_="pictures").one("img")
    answer = await console.browser.client.get(picture.attrs["src"])
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.body.startswith(b"\x89PNG")


async def test_a_tool_that_there_is_not_is_told(console: ChatFormSite) -> None:
    assert (await console.browser.get("/ui/chat/console?tool=nothing")).status == 404
    nothing = await console.browser.get("/ui/chat/console?find=zzzzqqqq")
    check(nothing)


# Keeping chats.


async def test_chats_are_found_renamed_and_deleted(yard: ChatFormSite) -> None:
    one = await yard.settled(await yard.say("say Cucumbers."))
    two = await yard.settled(await yard.say("say Pumpkins."))
    response = await yard.browser.get(f"{one.path}?q=pumpkins")
    links = [
        each.attrs["href"]
        for each in response.root.one("div", id="chat-list").all("a", aria_current="page")
        or response.root.one("div", id="chat-list").all("a")
    ]
    assert two.path in links
    assert one.path not in links
    rename = await yard.browser.get(f"{one.path}/rename")
    page = await yard.browser.send(rename, f"{one.path}/rename", {"title": "<b>Green</b> \u202ethings"})
    assert page.h1 == "<b>Green</b> \\u202ethings"
    confirm = await yard.browser.get(f"{one.path}/delete")
    assert "Green" in confirm.h1
    page = await yard.browser.send(confirm, f"{one.path}/delete")
    assert page.path == "/ui/chat"
    assert "was deleted" in page.flash
    assert (await yard.browser.get(one.path)).status == 404
    export = await yard.browser.client.get(
        next(each.attrs["href"] for each in two.root.all("a") if "export" in each.attrs["href"])
    )
    assert export.text.startswith("# ")
    assert "Pumpkins." in export.text


async def long_chat(yard: ChatFormSite, turns: int) -> str:
    """A chat of so many turns, as the database has it."""
    services = yard.local.services
    chat = await services.chats.create("local", title="Long")
    store = services.database.chats
    for number in range(turns):
        first_events = [
            NewChatEvent(
                Kind.USER, {"text": f"Question {number}", "model": None, "agent": None, "again": None}
            )
        ]
        message_body = {"text": f"Answer {number}", "reasoning": "", "model": "fake", "calls": 0}
        end = {"why": "done", "error": None, "hint": None, "seconds": 0.1}
        assert await store.claim(chat.id, "r", TurnState.IDLE, first_events, new_turn=True) is not None
        await store.append(
            chat.id,
            "r",
            [NewChatEvent(Kind.MODEL_MESSAGE, message_body, "step-1"), NewChatEvent(Kind.END, end)],
            next_state=TurnState.IDLE,
        )
    return chat.id


async def test_a_long_chat_opens_at_its_end_and_has_the_rest_on_demand(yard: ChatFormSite) -> None:
    chat = await long_chat(yard, 95)
    page = await yard.browser.get(f"/ui/chat/{chat}")
    check(page)
    texts = [each.text for each in page.root.all("div", class_="bubble")]
    assert texts == [f"Question {number}" for number in range(87, 95)]
    shown_before = texts
    while links := [each for each in page.root.all("a") if "data-earlier" in each.attrs]:
        page = await yard.browser.get(links[0].attrs["href"])
        check(page)
        shown_before = [each.text for each in page.root.all("div", class_="bubble")] + shown_before
    assert shown_before == [f"Question {number}" for number in range(95)]


async def test_a_long_result_shows_its_head_and_the_rest_on_demand(yard: ChatFormSite) -> None:
    services = yard.local.services
    chat = await services.chats.create("local")
    text = "".join(f"line {number} <script>\n" for number in range(40_000))
    call = {
        "id": "1",
        "name": "big",
        "tool": "x/big",
        "server": "X",
        "native": False,
        "title": None,
        "arguments": {},
    }
    run = [
        NewChatEvent(Kind.RUN, {"name": "big", "arguments": {}, "again": None}),
        NewChatEvent(Kind.CALL, call),
    ]
    assert await services.database.chats.claim(chat.id, "r", TurnState.IDLE, run, new_turn=True)
    end = NewChatEvent(Kind.END, {"why": "done", "error": None, "hint": None, "seconds": 1.0})
    result = result_event("1", Result(None, text), ok=True, seconds=0.5)
    await services.database.chats.append(chat.id, "r", [result, end], next_state=TurnState.IDLE)
    page = await yard.browser.get(f"/ui/chat/{chat.id}")
    check(page)
    assert len(page.html) < 60_000
    head = page.root.one("details", class_="result").one("code").children[0]
    assert text.startswith(str(head))
    read, link = "", page.root.one("details", class_="result").one("a")
    while True:
        page = await yard.browser.get(link.attrs["href"])
        check(page)
        read += str(page.root.one("main").one("code").children[0])
        if not (links := [each for each in page.root.all("a") if "data-more" in each.attrs]):
            break
        link = links[0]
    assert read == text
