"""A chat's page: the same from events as from changes to it, however they were split or what was lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reachable import reachable_objects
from tests.web.chat.chat_events import CHAT, Log, logs, select_stored_events
from tests.web.scriptless_browser import PageElement, read

from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.types.chat import ChatEvent, Kind
from toolyard.web.ui.chat.fragments import FragmentContext, render_turn
from toolyard.web.ui.chat.page_updates import TURNS_ELEMENT_ID, ChatPageUpdater, PageChange

FRAME = FragmentContext(CHAT, "token")
FEWER = settings(max_examples=40)
"""Whole pages are made and compared each time."""


def page(view: ChatSnapshot) -> PageElement:
    """The turns as the page shows them."""
    inner = "".join(str(render_turn(turn, FRAME)) for turn in view.turns)
    return read(f'<div id="{TURNS_ELEMENT_ID}">{inner}</div>')


def tree(node: PageElement) -> object:
    """What is compared: elements, attributes and texts, without the blanks between elements."""
    children = [
        tree(each) if isinstance(each, PageElement) else " ".join(each.split()) for each in node.children
    ]
    return (node.tag, sorted(node.attrs.items()), [each for each in children if each != ""])


def apply(root: PageElement, changes: list[PageChange]) -> None:
    """What the script does."""
    for change in changes:
        if "html" in change:
            children = next(each for each in read(change["html"]).children if isinstance(each, PageElement))
            assert children.attrs["id"] == change["id"]
            if not replace_element(root, change["id"], children):
                root.one(id=change["into"]).children.append(children)
        elif "text" in change:
            root.one(id=change["id"]).children.append(change["text"])


def replace_element(node: PageElement, id_: str, replaced_element: PageElement) -> bool:
    for at, child in enumerate(node.children):
        if isinstance(child, PageElement):
            if child.attrs.get("id") == id_:
                node.children[at] = replaced_element
                return True
            if replace_element(child, id_, replaced_element):
                return True
    return False


def since(events: list[ChatEvent], seq: int) -> list[ChatEvent]:
    """The turn that this event belongs to, up to it: what a page that comes back is followed from."""
    before = [each for each in events if each.seq <= seq]
    return [each for each in before if before and each.turn == before[-1].turn]


# The view.


@FEWER
@given(logs())
def test_any_beginning_of_a_chat_is_a_page(log: Log) -> None:
    for length in range(len(log.events) + 1):
        root = page(ChatSnapshot.from_events(log.stored(length)))
        ids = [each.attrs["id"] for each in root.all() if "id" in each.attrs]
        assert len(ids) == len(set(ids))
        assert not root.all("script")


@given(logs(ended=True))
def test_pieces_and_their_replacement_render_alike(log: Log) -> None:
    assert ChatSnapshot.from_events(log.events) == ChatSnapshot.from_events(log.stored())


@given(logs(), st.integers(0, 200))
def test_a_view_goes_on_where_it_was(log: Log, cut: int) -> None:
    events = log.events
    assert ChatSnapshot.from_events(events[:cut]).apply(events[cut:]) == ChatSnapshot.from_events(events)


# Changes.


@FEWER
@given(logs(ended=True), st.integers(0, 200), st.lists(st.integers(1, 30), max_size=8))
def test_a_followed_page_equals_a_loaded_one(log: Log, start: int, batches: list[int]) -> None:
    stored_events = log.stored(start)
    root, following = (
        page(ChatSnapshot.from_events(stored_events)),
        ChatPageUpdater(FRAME, ChatSnapshot.from_events(stored_events)),
    )
    rest = log.events[start:]
    for size in [*batches, len(log.events)]:
        if rest:
            apply(root, following.changes(rest[:size]))
            rest = rest[size:]
    assert tree(root) == tree(page(ChatSnapshot.from_events(log.stored())))
    assert following.last == log.events[-1].seq


@FEWER
@given(logs(ended=True), st.lists(st.tuples(st.integers(1, 12), st.integers(0, 25)), max_size=6))
def test_nothing_is_lost_or_doubled_when_the_line_breaks(log: Log, breaks: list[tuple[int, int]]) -> None:
    """The page gets some events, the line breaks, more happens, pieces are deleted, and it comes back."""
    root, last_seen, position = page(ChatSnapshot()), 0, 0
    for received_count, meanwhile in [*breaks, (len(log.events), 0)]:
        position = min(max(position, last_seen) + meanwhile, len(log.events))
        stored_events = log.stored(position)
        following = ChatPageUpdater(FRAME, ChatSnapshot.from_events(since(stored_events, last_seen)))
        unseen_events = [each for each in stored_events if each.seq > last_seen] + log.events[position:]
        taken_events = (
            select_stored_events(unseen_events)[:received_count]
            if received_count < len(unseen_events)
            else unseen_events
        )
        apply(root, following.changes(taken_events))
        last_seen = max([last_seen, *(each.seq for each in taken_events)])
        position = max(position, last_seen)
    assert tree(root) == tree(page(ChatSnapshot.from_events(log.stored())))


@pytest.mark.parametrize("unit", ["word ", "- item\n", "| a |\n", "> said\n"])
def test_long_blocks_grow_by_plain_text_and_are_whole_in_the_end(unit: str) -> None:
    log = Log()
    log.add(Kind.USER, text="Go", model=None, agent=None)
    root, following = (
        page(ChatSnapshot.from_events(log.events)),
        ChatPageUpdater(FRAME, ChatSnapshot.from_events(log.events)),
    )
    plain = 0
    for _ in range(6_000 // len(unit)):
        changes = following.changes([log.add(Kind.TEXT, "step-1", delta=unit)])
        plain += sum("text" in change for change in changes)
        apply(root, changes)
    letters = [char for char in root.one(class_="md").text if char.isalpha()]
    assert len(letters) == len([char for char in unit if char.isalpha()]) * (6_000 // len(unit))
    assert plain > 100
    text = unit * (6_000 // len(unit))
    apply(
        root,
        following.changes(
            [log.add(Kind.MODEL_MESSAGE, "step-1", text=text, reasoning="", model="", calls=0)]
        ),
    )
    assert tree(root) == tree(page(ChatSnapshot.from_events(log.stored())))


def test_progress_that_is_gone_does_not_stay_on_the_page() -> None:
    log = Log()
    log.add(Kind.RUN, name="count", arguments={})
    log.add(Kind.CALL, id="c", name="count", tool="d/count", server="D", native=False, title="", arguments={})
    progress = log.add(Kind.PROGRESS, "c", id="c", progress=1, total=2, message="half")
    root = page(ChatSnapshot.from_events(log.events))
    assert root.all("progress")
    result = log.add(Kind.RESULT, "c", id="c", ok=True, text="x", length=1, cause=None, seconds=1.0, media=[])
    following = ChatPageUpdater(FRAME, ChatSnapshot.from_events(since(log.stored(), progress.seq)))
    apply(root, following.changes([result]))
    assert not root.all("progress")
    assert tree(root) == tree(page(ChatSnapshot.from_events(log.stored())))


def test_a_question_on_the_approvals_page_is_linked_from_its_call() -> None:
    log = Log()
    log.add(Kind.RUN, name="ask", arguments={})
    call = log.add(
        Kind.CALL, id="c", name="ask", tool="d/ask", server="D", native=False, title="", arguments={}
    )
    root = page(ChatSnapshot.from_events(log.stored()))
    assert "Working" in root.text
    message = "waiting for your answer to a question at https://yard.test/ui/approvals#q-0a1b"
    progress = log.add(Kind.PROGRESS, "c", id="c", progress=0, total=None, message=message)
    following = ChatPageUpdater(FRAME, ChatSnapshot.from_events(since(log.stored(), call.seq)))
    apply(root, following.changes([progress]))
    assert tree(root) == tree(page(ChatSnapshot.from_events(log.events)))
    assert root.one("a", href="/ui/approvals#q-0a1b").text == "Answer it on the Approvals page"
    assert ("Waiting for you" in root.text, "Working" in root.text) == (True, False)
    progress_event = log.add(Kind.PROGRESS, "c", id="c", progress=1, total=None, message="half")
    apply(root, following.changes([progress_event]))
    assert ("Waiting for you" in root.text, "Working" in root.text) == (False, True)


@pytest.mark.parametrize(
    "unit",
    ["Some words of a paragraph. ", "Words.\n\n", "- an item\n", "```\ncode\n```\n\n", "x", "| a | b |\n"],
)
def test_rendering_an_answer_is_linear_in_its_length(unit: str) -> None:
    costs: list[float] = []
    for length in (8_000, 40_000):
        log = Log()
        log.add(Kind.USER, text="Go", model=None, agent=None)
        following = ChatPageUpdater(FRAME, ChatSnapshot.from_events(log.events))
        sent_count = 0
        for _ in range(length // len(unit)):
            event = log.add(Kind.TEXT, "step-1", delta=unit)
            sent_count += sum(len(str(change)) for change in following.changes([event]))
            log.events[1:] = []
        costs.append(sent_count / length)
    assert costs[1] < 1.6 * costs[0] + 1


def test_the_hint_about_a_failed_call_is_separate_from_its_cause() -> None:
    log = Log()
    log.add(Kind.RUN, name="count", arguments={})
    log.add(Kind.CALL, id="c", name="count", tool="d/count", server="D", native=False, title="", arguments={})
    failed_result = {"ok": False, "text": "MCP server unreachable", "length": 22, "seconds": 1.0, "media": []}
    log.add(Kind.RESULT, "c", id="c", **failed_result, cause="exited with code 3\nhint: restart it")
    alert = page(ChatSnapshot.from_events(log.events)).one(role="alert")
    assert alert.one(class_="alert-text").text == "Exited with code 3."
    assert alert.one(class_="hint").text == "Restart it."


def test_form_values_are_left_alone() -> None:
    log = Log()
    log.add(Kind.RUN, name="ask", arguments={})
    log.add(Kind.CALL, id="c", name="ask", tool="d/ask", server="D", native=False, title="", arguments={})
    log.add(
        Kind.QUESTION,
        id="q",
        call="c",
        server="D",
        kind="form",
        message="?",
        schema={"properties": {"a": {"type": "string"}}},
    )
    following = ChatPageUpdater(FRAME, ChatSnapshot.from_events(log.events))
    progress = log.add(Kind.PROGRESS, "c", id="c", progress=1, total=2, message=None)
    assert not [each for each in following.changes([progress]) if each.get("id") == "q3"]
    answer_event = log.add(Kind.QUESTION_ANSWER, id="q", action="accept")
    assert [each for each in following.changes([answer_event]) if each.get("id") == "q3"]


def test_a_page_that_stays_open_holds_one_turn() -> None:
    log, following, sizes = Log(), ChatPageUpdater(FRAME, ChatSnapshot()), list[int]()
    for _ in range(50):
        user_event = log.add(Kind.USER, text="Go", model=None, agent=None)
        model_event = log.add(
            Kind.MODEL_MESSAGE, "step-1", text="words " * 50, reasoning="", model="", calls=0
        )
        following.changes([user_event, model_event])
        # A second answer is stopped in the middle.
        for _ in range(10):
            following.changes([log.add(Kind.TEXT, "step-2", delta="words ")])
        following.changes([log.add(Kind.END, why="stopped", error=None, hint=None, seconds=0.1)])
        sizes.append(sum(1 for _ in reachable_objects(following)))
    assert max(sizes) <= sizes[0] + 10


# Addresses that servers want opened.


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/a?b=c", "example.com"),
        ("https://good.example@evil.example/", "evil.example"),
        ("https://g\u043e\u043egle.example/", "xn--ggle-55da.example"),
        ("https://\u24d4vil.example/", "evil.example"),
    ],
)
def test_a_page_question_names_the_host_of_the_address(url: str, host: str) -> None:
    assert FragmentContext.is_web(url)
    assert FragmentContext.host(url) == host


@pytest.mark.parametrize(
    "url",
    [
        r"https://evil.example\@good.example/",
        r"https://evil.example\.good.example/",
        "https://evil.example\t@good.example/",
        "https://%65vil.example/",
        "https://evil\u00ad.example/",
        "javascript://good.example/%0aalert(1)",
    ],
)
def test_ambiguous_addresses_are_not_links(url: str) -> None:
    assert not FragmentContext.is_web(url)
