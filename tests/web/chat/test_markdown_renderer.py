"""Long Markdown is rendered by a child process, within limits, and once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from tests.loop_watch import LoopWatch
from tests.processes import own_descendants

from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState
from toolyard.web.rendering import renderer as markdown_renderer
from toolyard.web.rendering.markdown import render_markdown, render_preformatted
from toolyard.web.rendering.renderer import DeferredMarkdown, MarkdownRenderer

if TYPE_CHECKING:
    from tests.web.conftest import Opening

LONG = "A **strong** word.\n" * 200
SLOW = "- a\n" * 40_000
"""Takes seconds."""


@pytest.fixture
async def renderer() -> AsyncGenerator[MarkdownRenderer]:
    markdown_renderer = MarkdownRenderer(page_seconds=60, batch_seconds=60)
    yield markdown_renderer
    await markdown_renderer.close()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were rendered in this process."""
    texts: list[str] = []

    def record_text(text: str) -> Any:
        texts.append(text)
        return render_markdown(text)

    monkeypatch.setattr(markdown_renderer, "render_markdown", record_text)
    return texts


async def test_long_texts_are_rendered_by_the_child_and_kept(
    renderer: MarkdownRenderer, in_process: list[str]
) -> None:
    code = "```python\nx = 1\n```\n" * 100
    for _ in range(2):
        assert await renderer.render([LONG, code, LONG]) == [
            render_markdown(LONG),
            render_markdown(code),
            render_markdown(LONG),
        ]
        assert renderer.texts_sent == 2
    assert in_process == []


async def test_a_text_is_rendered_once_the_child_can_be_started(
    renderer: MarkdownRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        assert await renderer.render([LONG]) == [render_preformatted(LONG)]
    assert await renderer.render([LONG]) == [render_markdown(LONG)]


async def test_short_texts_need_no_child(renderer: MarkdownRenderer, in_process: list[str]) -> None:
    for _ in range(2):
        assert await renderer.render(["*a*", "*b*"]) == [render_markdown("*a*"), render_markdown("*b*")]
    assert (renderer.texts_sent, in_process) == (0, ["*a*", "*b*"])


async def test_many_short_texts_go_to_the_child(renderer: MarkdownRenderer, in_process: list[str]) -> None:
    texts = [f"Number *{number}*." for number in range(500)]
    assert await renderer.render(texts) == [render_markdown(text) for text in texts]
    assert (renderer.texts_sent, in_process) == (500, [])


async def test_a_text_that_takes_too_long_is_shown_as_written_and_not_tried_again(
    in_process: list[str],
) -> None:
    renderer = MarkdownRenderer(batch_seconds=0.01, page_seconds=60)
    try:
        for _ in range(2):
            assert await renderer.render([SLOW]) == [render_preformatted(SLOW)]
            assert renderer.texts_sent == 1
        assert in_process == []
    finally:
        await renderer.close()


async def test_a_slow_text_does_not_take_others_with_it() -> None:
    renderer = MarkdownRenderer(batch_seconds=1.0, batch_characters=1_000_000, page_seconds=120)
    try:
        slow = "[" * 7_900 + "\n\n" + ("[" * 7_900 + "\n\n") * 20
        rendered = await renderer.render([LONG, slow])
        assert rendered == [render_markdown(LONG), render_preformatted(slow)]
    finally:
        await renderer.close()


async def test_a_page_has_a_budget(in_process: list[str]) -> None:
    renderer = MarkdownRenderer(page_characters=len(LONG) + 10, page_seconds=60, batch_seconds=60)
    try:
        other = LONG.replace("word", "text")
        assert await renderer.render([LONG, other]) == [render_markdown(LONG), render_preformatted(other)]
        assert (renderer.texts_sent, in_process) == (1, [])
    finally:
        await renderer.close()


async def test_a_child_that_is_gone_is_replaced(renderer: MarkdownRenderer) -> None:
    before = own_descendants()
    assert await renderer.render([LONG]) == [render_markdown(LONG)]
    (child,) = own_descendants() - before
    child.kill()
    child.wait()
    assert await renderer.render([LONG + "x"]) == [render_markdown(LONG + "x")]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_child_that_ended_while_idle_is_replaced(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def render_twice() -> None:
        renderer, before = MarkdownRenderer(page_seconds=60, batch_seconds=60), own_descendants()
        await renderer.render([LONG])
        (child,) = own_descendants() - before
        child.kill()
        # The event loop notices the end of the child, and closes the pipe.
        while child.is_running():
            await asyncio.sleep(0.01)
        assert await renderer.render([LONG + "x"]) == [render_markdown(LONG + "x")]
        await renderer.close()

    run(render_twice())


async def test_no_more_is_kept_than_the_cache_may_hold(in_process: list[str]) -> None:
    renderer = MarkdownRenderer(cache_characters=1_000)
    for number in range(100):
        await renderer.render([f"*{number}*"])
    in_process.clear()
    kept_count = 0
    for number in range(99, -1, -1):
        (html,) = await renderer.render([text := f"*{number}*"])
        if in_process:
            break
        kept_count += len(text) + len(html)
    assert 900 < kept_count <= 1_000


async def test_other_tasks_run_while_a_long_page_is_filled() -> None:
    renderer = MarkdownRenderer(page_characters=0)
    deferred_markdown = DeferredMarkdown(renderer)
    texts = [f"{number} {'x' * 3_000_000}" for number in range(3)]
    page = "".join(map(deferred_markdown, [*texts, *["short"] * 200_000]))
    async with LoopWatch() as watch:
        (filled_page,) = await deferred_markdown.fill([page])
    assert filled_page == "".join(
        [*map(render_preformatted, texts), *[render_preformatted("short")] * 200_000]
    )
    assert watch.longest_seconds < 0.15


async def test_placeholders_cannot_be_forged_by_a_text(renderer: MarkdownRenderer) -> None:
    deferred_markdown = DeferredMarkdown(renderer)
    first, second = deferred_markdown("*one*"), deferred_markdown("a \x000\x00 b")
    (page,) = await deferred_markdown.fill([f"{first}|{second}"])
    assert page.count("<em>one</em>") == 1
    assert r"\u00000\u0000" in page


async def test_the_page_of_a_chat_is_rendered_apart(open_site: Opening, in_process: list[str]) -> None:
    local = await open_site({})
    services = local.services
    answers = [f"{number} {LONG}" for number in range(5)]
    await services.database.chats.create(Chat("c0", "local", "long", 1.0, 1.0))
    for answer in answers:
        user = NewChatEvent(Kind.USER, {"text": "go", "model": None, "agent": None, "again": None})
        new_chat_event = NewChatEvent(
            Kind.MODEL_MESSAGE, {"text": answer, "reasoning": "", "model": "x", "calls": 0}, "step-1"
        )
        end = NewChatEvent(Kind.END, {"why": "done", "error": None, "hint": None, "seconds": 1.0})
        assert await services.database.chats.claim("c0", "nobody", TurnState.IDLE, [user], new_turn=True)
        await services.database.chats.append("c0", "nobody", [new_chat_event, end], next_state=TurnState.IDLE)
    for _ in range(2):
        page = await local.client().get("/ui/chat/c0")
        assert page.status == 200
        assert page.text.count("<strong>strong</strong>") == 1_000
        assert local.part(MarkdownRenderer).texts_sent == 5
    assert in_process == []
