"""Alternatives in a real browser: edited, retried, switched by pointer and keyboard, followed elsewhere."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.web.chat.test_browser import (
    ChatYard,
    begin,
    is_same_page,
    looking_at,
    say,
    turn,
    wait_for_turn_end,
)
from tests.web.chat.test_browser import yard as yard

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


def place(page: Page) -> Locator:
    return page.locator(".alternatives")


async def edit(page: Page, number: int, text: str) -> None:
    """Edit a message of the page, and send it."""
    await turn(page, number).hover()
    await turn(page, number).get_by_role("link", name="Edit message").click()
    await expect(page.locator("#editing")).to_contain_text("Editing a message")
    await say(page, text)


async def test_a_message_is_edited_and_one_goes_back_and_forth_between_its_versions(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await say(page, "say Two.")
        await expect(page.locator(".turn")).to_have_count(2)
        await wait_for_turn_end(page)
        # Text that was not sent yet is there again after the edit.
        await page.get_by_label("Message", exact=True).fill("not sent yet")
        await turn(page, 0).hover()
        await turn(page, 0).get_by_role("link", name="Edit message").click()
        box = page.get_by_label("Message", exact=True)
        await expect(box).to_have_value("say One.")
        await expect(box).to_be_focused()
        await page.get_by_role("link", name="Cancel").click()
        await expect(box).to_have_value("not sent yet")
        await expect(page.locator("#editing")).to_be_hidden()
        await edit(page, 0, "say Other.")
        await expect(place(page)).to_have_text("2 of 2")
        await expect(page.locator(".bubble")).to_have_text(["say Other."])
        await wait_for_turn_end(page)
        await expect(box).to_have_value("not sent yet")
        await expect(page.locator("#editing")).to_be_hidden()
        # By keyboard: the focus stays on the buttons, though everything around them is new.
        await page.get_by_role("button", name="Previous alternative").focus()
        await page.keyboard.press("Enter")
        await expect(place(page)).to_have_text("1 of 2")
        await expect(page.locator(".bubble")).to_have_text(["say One.", "say Two."])
        # The button of the first version is disabled: the other one has the focus.
        await expect(page.get_by_role("button", name="Previous alternative")).to_be_disabled()
        await expect(page.get_by_role("button", name="Next alternative")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator(".bubble")).to_have_text(["say Other."])
        await expect(page.get_by_role("button", name="Previous alternative")).to_be_focused()
        assert await is_same_page(page)
        # A reload, the export and the API show the same.
        await page.reload()
        await expect(place(page)).to_have_text("2 of 2")
        await expect(page.locator(".bubble")).to_have_text(["say Other."])
        chat = page.url.split("/")[-1].split("#")[0]
        export = await (await page.request.get(f"/api/v1/chats/{chat}/export")).text()
        assert ("say Other." in export, "say Two." in export) == (True, False)
        turns = (await (await page.request.get(f"/api/v1/chats/{chat}/turns")).json())["items"]
        assert [len(each["alternatives"]) for each in turns] == [2]


async def test_a_turn_in_the_middle_is_retried_and_the_chat_goes_on_from_there(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        for number, text in enumerate(("say Two.", "say Three."), 2):
            await say(page, text)
            await expect(page.locator(".turn")).to_have_count(number)
            await wait_for_turn_end(page)
        await turn(page, 1).get_by_role("button", name="Try again").click()
        await expect(page.locator(".bubble")).to_have_text(["say One.", "say Two."])
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await wait_for_turn_end(page)
        await expect(place(page)).to_have_text("2 of 2")
        await say(page, "say Four.")
        await expect(page.locator(".bubble")).to_have_text(["say One.", "say Two.", "say Four."])
        await wait_for_turn_end(page)
        await page.get_by_role("button", name="Previous alternative").click()
        await expect(page.locator(".bubble")).to_have_text(["say One.", "say Two.", "say Three."])
        assert await is_same_page(page)


async def test_other_tabs_follow_and_the_second_that_edits_gets_the_newer_version(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as first, looking_at(chromium, yard) as second:
        page = first.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        other = second.page
        await other.goto(page.url)
        await other.evaluate("window.stillThere = true")
        await turn(other).hover()
        await turn(other).get_by_role("link", name="Edit message").click()
        await other.get_by_label("Message", exact=True).fill("say Second tab.")
        await edit(page, 0, "say First tab.")
        await wait_for_turn_end(page)
        # The other tab follows, and keeps what is typed there.
        await expect(other.locator(".bubble")).to_have_text(["say First tab."])
        await wait_for_turn_end(other)
        await other.get_by_label("Message", exact=True).press("Enter")
        alerts = other.locator("#alerts")
        await expect(alerts).to_contain_text("Its newer version is: “say First tab.”")
        await expect(alerts).to_contain_text("Send it again to replace the newer version, or cancel.")
        await expect(other.get_by_label("Message", exact=True)).to_have_value("say Second tab.")
        # The browser reports the status itself.
        assert ["409" in each for each in second.said] == [True]
        second.said.clear()
        await other.get_by_label("Message", exact=True).press("Enter")
        for tab in (other, page):
            await expect(tab.locator(".bubble")).to_have_text(["say Second tab."])
            await expect(place(tab)).to_have_text("3 of 3")
            await wait_for_turn_end(tab)
        await expect(alerts).to_be_empty()
        await other.get_by_role("button", name="Previous alternative").click()
        for tab in (other, page):
            await expect(tab.locator(".bubble")).to_have_text(["say First tab."])
            await expect(place(tab)).to_have_text("2 of 3")
            assert await is_same_page(tab)
        # The chat is deleted in one tab while the other edits.
        await edit_only(other)
        chat = page.url.split("/")[-1].split("#")[0]
        await page.goto(f"/ui/chat/{chat}/delete")
        await page.get_by_role("button", name="Delete").click()
        await expect(other.locator("#alerts")).to_contain_text("This chat was deleted.")
        await expect(other.get_by_label("Message", exact=True)).to_have_value("say First tab.")


async def edit_only(page: Page) -> None:
    await turn(page).hover()
    await turn(page).get_by_role("link", name="Edit message").click()
    await expect(page.locator("#editing")).to_contain_text("Editing a message")


async def test_a_running_turn_offers_no_edit_and_no_switch(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await edit(page, 0, "say Other.\nhold")
        await expect(place(page)).to_contain_text("2 of 2")
        await expect(page.get_by_role("button", name="Previous alternative")).to_be_hidden()
        await expect(page.get_by_role("link", name="Edit message")).to_be_hidden()
        await page.get_by_role("button", name="Stop").click()
        await wait_for_turn_end(page)
        await expect(page.get_by_role("button", name="Previous alternative")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_head_of_a_long_chat_stays_in_view(chromium: Browser, yard: ChatYard, width: int) -> None:
    size = {"width": width, "height": 700}
    async with looking_at(chromium, yard, f"/ui/chat/{yard.ids['long']}", viewport=size) as context:
        title = context.page.locator("#chat-title")
        await expect(turn(context.page).locator(".md")).to_be_in_viewport()
        await expect(title).to_be_in_viewport()
        # Nothing covers it: the navigation of a phone is above it.
        await context.page.get_by_role("button", name="Keyboard shortcuts").click()
        await expect(context.page.locator("#keys")).to_be_visible()


async def test_a_version_is_deleted_and_another_tab_that_still_shows_it_is_told(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await edit(page, 0, "say Other.")
        await expect(place(page)).to_have_text("2 of 2")
        await wait_for_turn_end(page)
        other_tab = await page.context.new_page()
        await other_tab.goto(page.url)
        await expect(place(other_tab)).to_have_text("2 of 2")
        await page.get_by_role("link", name="Delete this version").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.locator(".bubble")).to_have_text(["say One."])
        await expect(place(page)).to_have_count(0)
        # The other tab follows.
        await expect(other_tab.locator(".bubble")).to_have_text(["say One."])
        await expect(place(other_tab)).to_have_count(0)
        # A form of the deleted version, as of a tab that was offline.
        chat = page.url.split("/")[-1].split("#")[0].split("?")[0]
        status = await page.request.get(f"/ui/chat/{chat}/turns/999/delete")
        assert status.status == 404


async def test_an_edit_of_a_version_that_another_tab_deleted_gets_the_newer_version(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as first, looking_at(chromium, yard) as second:
        page, other = first.page, second.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await say(page, "say Two.")
        await expect(page.locator(".turn")).to_have_count(2)
        await wait_for_turn_end(page)
        await edit(page, 1, "say Other.")
        await expect(place(page)).to_have_text("2 of 2")
        await wait_for_turn_end(page)
        await other.goto(page.url)
        await turn(other).hover()
        await turn(other).get_by_role("link", name="Edit message").click()
        await expect(other.locator("#editing")).to_contain_text("Editing a message")
        await page.get_by_role("link", name="Delete this version").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.locator(".bubble")).to_have_text(["say One.", "say Two."])
        await expect(other.locator(".bubble")).to_have_text(["say One.", "say Two."])
        await say(other, "say Mine.")
        alerts = other.locator("#alerts")
        await expect(alerts).to_contain_text("Its newer version is: “say Two.”")
        await expect(other.get_by_label("Message", exact=True)).to_have_value("say Mine.")
        assert ["409" in each for each in second.said] == [True]
        second.said.clear()
        await other.get_by_label("Message", exact=True).press("Enter")
        for tab in (other, page):
            await expect(tab.locator(".bubble")).to_have_text(["say One.", "say Mine."])
            await expect(place(tab)).to_have_text("2 of 2")
            await wait_for_turn_end(tab)


async def test_a_version_that_another_tab_continued_is_deleted_only_after_another_confirmation(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await edit(page, 0, "say Other.")
        await expect(place(page)).to_have_text("2 of 2")
        await wait_for_turn_end(page)
        other_tab = await page.context.new_page()
        await other_tab.goto(page.url)
        await page.get_by_role("link", name="Delete this version").click()
        await expect(page.get_by_role("dialog")).not_to_contain_text("later turn")
        await say(other_tab, "say More.")
        await expect(other_tab.locator(".turn")).to_have_count(2)
        await wait_for_turn_end(other_tab)
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        confirmation = page.locator("#confirm")
        await expect(confirmation).to_contain_text(
            "This version has been continued since you opened the chat."
        )
        await expect(confirmation).to_contain_text("1 later turn in this version will be deleted, too.")
        await expect(other_tab.locator(".bubble")).to_have_text(["say Other.", "say More."])
        assert ["409" in each for each in context.said] == [True]
        context.said.clear()
        await confirmation.get_by_role("button", name="Delete").click()
        await expect(page.locator(".bubble")).to_have_text(["say One."])
        await expect(other_tab.locator(".bubble")).to_have_text(["say One."])


async def test_a_version_that_is_gone_cannot_be_edited_and_the_page_says_why(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, box = context.page, context.page.get_by_label("Message", exact=True)
        await begin(page, "say One.")
        await wait_for_turn_end(page)
        await edit(page, 0, "say Other.")
        await expect(place(page)).to_have_text("2 of 2")
        await wait_for_turn_end(page)
        # As on a page without a connection, which does not learn of the deletion.
        await page.evaluate("closeChatStream()")
        chat = page.url.split("/")[-1].split("#")[0]
        [item] = (await (await page.request.get(f"/api/v1/chats/{chat}/turns")).json())["items"]
        assert (await page.request.delete(f"/api/v1/chats/{chat}/turns/{item['turn']}")).ok
        await box.fill("not sent yet")
        await turn(page).hover()
        await turn(page).get_by_role("link", name="Edit message").click()
        await expect(page.locator("#alerts")).to_contain_text("it may have been deleted", ignore_case=True)
        await expect(box).to_have_value("not sent yet")
        assert ["404" in each for each in context.said] == [True]
        context.said.clear()
