from __future__ import annotations

import itertools
import mmap
import re
import tracemalloc
import weakref
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.protocol import framing
from toolyard.protocol.framing import LineFramer, OversizeLine, SseEvent, SseParser

KB, MB = 1024, 1024 * 1024
EXCERPT_BYTES = 4096

cuts = st.lists(st.integers(0, 400), max_size=30)
larges = st.sampled_from([0, 3, framing.LARGE_MESSAGE_BYTES])
"""From which size on memory is had in another way; nobody must notice."""


def cut_chunks(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The data cut at these places; a place that comes twice makes an empty chunk."""
    marks = [0, *sorted(place for place in places if place <= len(data)), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(marks)]


def lines_of(chunks: Iterable[bytes], limit: int, **sizes: int) -> list[bytes | OversizeLine | None]:
    framer = LineFramer(limit, **sizes)
    lines: list[bytes | OversizeLine | None] = [line for chunk in chunks for line in framer.feed(chunk)]
    return [*lines, framer.take_remainder()]


def events_of(chunks: Iterable[bytes], limit: int = MB, **sizes: int) -> list[SseEvent]:
    parser = SseParser(limit, **sizes)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def shorten_line(line: bytes, limit: int, edge: int) -> bytes | OversizeLine:
    return line if len(line) <= limit else OversizeLine(line[:edge], line[-edge:], len(line))


# Lines.


def test_a_chunk_gives_the_lines_that_it_completes() -> None:
    framer = LineFramer(100)
    assert framer.feed(b"one\ntwo\nthr") == [b"one", b"two"]
    assert framer.feed(b"ee") == []
    assert framer.feed(b"\n\n") == [b"three", b""]
    assert framer.take_remainder() is None


def test_bytes_after_the_last_line_feed_are_returned_once_as_the_rest() -> None:
    framer = LineFramer(100)
    assert framer.feed(b"one\ntw") == [b"one"]
    assert framer.feed(b"o") == []
    assert framer.take_remainder() == b"two"
    assert framer.take_remainder() is None
    assert framer.feed(b"three\n") == [b"three"]


def test_only_a_line_feed_ends_a_line() -> None:
    assert LineFramer(100).feed("a\rb\x0bc\x85d\u2028e\n".encode()) == ["a\rb\x0bc\x85d\u2028e".encode()]


@settings(deadline=None)
@given(st.binary(max_size=400) | st.text(alphabet="ab\n", max_size=400).map(str.encode), cuts, larges)
def test_any_chunking_gives_the_same_lines(data: bytes, places: list[int], large: int) -> None:
    *whole, rest = data.split(b"\n")
    lines = lines_of(cut_chunks(data, places), 1000, large_message_bytes=large)
    assert lines == [*whole, rest or None]


@settings(deadline=None)
@given(
    data=st.text(alphabet="abcdefgh\n", max_size=400).map(str.encode),
    places=cuts,
    limit=st.integers(0, 40),
    edge=st.integers(1, 12),
    large=larges,
)
@example(data=b"abcdefghij\n", places=[5, 5, 6], limit=5, edge=3, large=MB)
@example(data=b"abcdefghij", places=list(range(10)), limit=0, edge=4, large=MB)
@example(data=b"abcdefghij\nabcdefgh\n", places=[2, 4, 6], limit=8, edge=3, large=2)
def test_any_chunking_cuts_long_lines_alike(
    data: bytes, places: list[int], limit: int, edge: int, large: int
) -> None:
    *whole, rest = data.split(b"\n")
    expected: list[bytes | OversizeLine | None] = [shorten_line(line, limit, edge) for line in whole]
    expected.append(shorten_line(rest, limit, edge) if rest else None)
    for chunks in (cut_chunks(data, places), [data]):
        assert lines_of(chunks, limit, edge_bytes=edge, large_message_bytes=large) == expected


@pytest.mark.parametrize("size", [99, 100])
def test_a_line_up_to_the_limit_is_a_line(size: int) -> None:
    assert LineFramer(100).feed(b"x" * size + b"\n") == [b"x" * size]


@pytest.mark.parametrize("step", [1, 64, 100, 101, 1 << 20])
def test_a_line_over_the_limit_is_skipped_and_its_ends_are_kept(step: int) -> None:
    line = b"".join(b"%07d," % number for number in range(2000))
    data = b"before\n" + line + b"\nafter\n"
    before, long, after, rest = lines_of([data[at : at + step] for at in range(0, len(data), step)], 100)
    assert (before, after, rest) == (b"before", b"after", None)
    assert long == OversizeLine(line[:EXCERPT_BYTES], line[-EXCERPT_BYTES:], len(line))


@pytest.mark.timeout(90)
@pytest.mark.parametrize("step", [256, 64 * KB])
def test_a_line_of_thirty_megabytes_takes_linear_time_in_its_chunks(step: int) -> None:
    # Joining at every chunk would copy more than a terabyte in small steps and run into the timeout.
    chunk, framer = b"x" * step, LineFramer(64 * MB)
    for _ in range(30 * MB // step):
        assert framer.feed(chunk) == []
    (line,) = framer.feed(b"\n")
    assert isinstance(line, bytes | bytearray | memoryview)
    assert len(line) == 30 * MB


@pytest.mark.timeout(90)
def test_many_lines_in_one_chunk_take_linear_time() -> None:
    lines = LineFramer(100).feed(b"x\n" * (2 * MB))
    assert len(lines) == 2 * MB


@pytest.mark.parametrize("reader", [LineFramer(MB), SseParser(MB)], ids=["lines", "events"])
def test_a_line_without_end_is_not_kept(reader: LineFramer | SseParser) -> None:
    chunk = b"data: " + b"x" * 64 * KB
    tracemalloc.start()
    try:
        for _ in range(256):
            reader.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MB


@pytest.mark.parametrize("framer", [LineFramer(20 * MB), SseParser(20 * MB)], ids=["lines", "events"])
def test_the_beginning_of_a_line_is_dropped_when_it_turns_out_too_long(
    framer: LineFramer | SseParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocations = memory_taken(monkeypatch)
    for _ in range(19 * MB // KB):
        assert framer.feed(b"x" * KB) == []
    assert [memory() is None for memory in allocations] == [False]
    framer.feed(b"x" * 2 * MB)
    assert [memory() is None for memory in allocations] == [True]


def memory_taken(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[mmap.mmap]]:
    """What large lines are put into from now on."""
    map_refs: list[weakref.ref[mmap.mmap]] = []

    def take(size: int) -> mmap.mmap:
        memory = mmap.mmap(-1, size)
        map_refs.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(framing, "_map_huge_pages", take)
    return map_refs


# Events.


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_kind_of_line_end_ends_lines(end: bytes) -> None:
    stream = end.join([b"event: ping", b"id: 7", b"data: one", b"data: two", b"", b"data: three", b"", b""])
    assert events_of([stream]) == [SseEvent(b"one\ntwo", "ping", "7"), SseEvent(b"three")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_an_event_is_given_as_soon_as_its_blank_line_is_there(end: bytes) -> None:
    parser = SseParser(MB)
    assert parser.feed(b"data: x" + end) == []
    assert parser.feed(end) == [SseEvent(b"x")]


def test_a_chunk_may_end_between_carriage_return_and_line_feed() -> None:
    parser = SseParser(MB)
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\ndata: b\r") == []
    assert parser.feed(b"") == []
    assert parser.feed(b"\n\r") == [SseEvent(b"a\nb")]
    assert parser.feed(b"\ndata: c\n\n") == [SseEvent(b"c")]


def test_line_ends_may_be_mixed() -> None:
    assert events_of([b"data: a\rdata: b\ndata: c\r\n\r\rdata: d\n\r\n"]) == [
        SseEvent(b"a\nb\nc"),
        SseEvent(b"d"),
    ]


@pytest.mark.parametrize(
    ("stream", "stray"),
    [
        (b": c\n\n", (2, 5)),
        (b"x: 1\nid: 1\nid: 2\nid: 3\nid: 4\n", (2, 11)),
        (b": c\nevent: a\nid: 1\nretry: 1\ndata: 1\n\n", (1, 4)),
        (b":" + b"c" * 1_000 + b"\n", (1, 1_002)),
    ],
    ids=["comment", "fields", "event", "long comment"],
)
def test_lines_that_belong_to_no_event_are_counted(stream: bytes, stray: tuple[int, int]) -> None:
    parser = SseParser(100)
    parser.feed(stream)
    assert parser.take_stray_lines() == stray
    assert parser.take_stray_lines() == (0, 0)


@pytest.mark.parametrize("chunk", [b"x" * 100, b"data: %b\n" % (b"x" * 94)], ids=["line", "event"])
def test_bytes_of_a_line_or_event_that_does_not_end_are_counted(chunk: bytes) -> None:
    parser = SseParser(1_000)
    read_sizes: list[int] = []
    for _ in range(100):
        parser.feed(b"data:" + chunk if not read_sizes and b"\n" not in chunk else chunk)
        read_sizes.append(parser.take_stray_lines()[1])
    assert not any(read_sizes[:40])
    assert all(size >= 100 for size in read_sizes[50:])


def test_comments_are_skipped() -> None:
    assert events_of([b": keep-alive\n\n:\r\n\r\ndata: x\n:in between\ndata: y\n\n:end"]) == [
        SseEvent(b"x\ny")
    ]


def test_data_of_several_lines_is_joined_by_line_feeds() -> None:
    assert events_of([b"data: {\ndata:   1\ndata\ndata: }\n\n"]) == [SseEvent(b"{\n  1\n\n}")]


def test_exactly_one_space_after_the_colon_is_dropped() -> None:
    assert events_of([b"data:a\n\ndata: a\n\ndata:  a\n\ndata:\ta\n\n"]) == [
        SseEvent(b"a"),
        SseEvent(b"a"),
        SseEvent(b" a"),
        SseEvent(b"\ta"),
    ]


def test_data_without_a_value_is_an_event_with_empty_data() -> None:
    assert events_of([b"data\n\ndata\ndata\n\ndata:\n"]) == [SseEvent(b""), SseEvent(b"\n")]


def test_a_colon_in_the_value_belongs_to_the_value() -> None:
    assert events_of([b'data: {"a":1}\nid: a:b\n\n']) == [SseEvent(b'{"a":1}', id="a:b")]


def test_a_byte_order_mark_is_skipped_at_the_start_and_only_there() -> None:
    mark = b"\xef\xbb\xbf"
    assert events_of([mark + b"data: x\n\n"]) == [SseEvent(b"x")]
    assert events_of([mark[:1], mark[1:], b"data: x\n\n"]) == [SseEvent(b"x")]
    assert events_of([b"data: x\n\n" + mark + b"data: y\n\n"]) == [SseEvent(b"x")]
    assert events_of([mark + mark + b"data: x\n\n"]) == []


def test_an_id_with_a_null_character_is_ignored() -> None:
    assert events_of([b"id: a\0b\ndata: x\n\n"]) == [SseEvent(b"x")]
    assert events_of([b"id: good\nid: a\0b\ndata: x\n\n"]) == [SseEvent(b"x", id="good")]


def test_an_empty_id_is_an_id() -> None:
    assert events_of([b"id\ndata: x\n\n"]) == [SseEvent(b"x", id="")]


def test_an_event_with_only_an_id_or_a_retry_is_given_without_data() -> None:
    # The priming event of the 2025-11-25 revision: it sets where to resume, before there is anything to say.
    assert events_of([b"id: 1\n\n"]) == [SseEvent(None, id="1")]
    assert events_of([b"id: 1\nretry: 500\ndata:\n\n"]) == [SseEvent(b"", id="1", retry=500)]
    assert events_of([b"retry: 3000\n\n"]) == [SseEvent(None, retry=3000)]


def test_an_event_type_without_data_is_nothing_and_does_not_stick() -> None:
    assert events_of([b"event: ping\n\ndata: x\n\n"]) == [SseEvent(b"x")]


def test_the_id_belongs_to_its_own_event() -> None:
    assert events_of([b"id: 1\ndata: x\n\ndata: y\n\n"]) == [SseEvent(b"x", id="1"), SseEvent(b"y")]


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"1e3", b" 7", b"abc", b"\xd9\xa3", b"9" * 40])
def test_a_retry_that_is_not_a_number_is_ignored(value: bytes) -> None:
    assert events_of([b"data: x\nretry: " + value + b"\n\n"]) == [SseEvent(b"x")]


def test_the_last_type_counts_and_an_empty_one_means_message() -> None:
    assert events_of([b"event: a\nevent: b\ndata: x\n\n"]) == [SseEvent(b"x", "b")]
    assert events_of([b"event\ndata: x\n\n"]) == [SseEvent(b"x", "message")]
    assert events_of([b"event:\ndata: x\n\n"]) == [SseEvent(b"x", "message")]


def test_unknown_fields_and_fields_in_capitals_are_ignored() -> None:
    assert events_of([b"foo: bar\nData: no\n data: no\ndata : no\nfoo\ndata: x\n\n"]) == [SseEvent(b"x")]


def test_a_field_that_only_begins_like_a_known_one_is_ignored() -> None:
    stream = b"events: no\nretrying: 5\nidle: 1\ndatabase: no\neventual\ndata: x\n\n"
    assert events_of([stream]) == [SseEvent(b"x")]


def test_invalid_utf_8_is_read_with_replacements() -> None:
    assert events_of([b"event: a\xff\nid: \xfe\ndata: x\xff\n\n"]) == [
        SseEvent(b"x\xff", "a\ufffd", "\ufffd")
    ]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_trailing_data_without_a_blank_line_is_not_given(end: bytes) -> None:
    assert events_of([b"data: x\n\ndata: y" + end]) == [SseEvent(b"x")]


def reference(stream: bytes) -> list[SseEvent]:
    """The WHATWG's algorithm, told once more in the plainest way: the whole stream at once."""
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    events: list[SseEvent] = []
    data: list[bytes] = []
    kind, id, retry = "", None, None
    for line in lines[:-1]:
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if not line:
            if data or id is not None or retry is not None:
                text = b"\n".join(data) if data else None
                events.append(SseEvent(text, kind or "message", id, retry))
            data, kind, id, retry = [], "", None, None
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            id = value.decode("utf-8", "replace")
        elif name == b"retry" and re.fullmatch(rb"[0-9]{1,9}", value):
            retry = int(value)
    return events


words = (b"data", b"event", b"id", b"retry", b":", b": ", b" ", b"x", b"12", b"\0", b"\xc3\xa9", b"\xff")
ends = (b"\n", b"\r", b"\r\n", b"\n\n", b"data: y\n", b"id: 1\n", b"\xef\xbb\xbf")
streams = st.lists(st.sampled_from([*words, *ends]), max_size=60).map(b"".join)


@settings(deadline=None, max_examples=400)
@given(streams, cuts, larges)
@example(b"data: x\r\n\r\n", list(range(12)), MB)
@example(b"data: x\r\r\ndata: y\r\r", [9, 9, 10], MB)
@example(b"\xef\xbb\xbfdata: x\n\n", [1, 2], MB)
@example(b"\xef\xbb\xbfdata: x\nevent: y\nid: 1\nretry: 5\ndata\n\n", list(range(50)), 0)
def test_any_chunking_of_any_stream_gives_the_events_of_the_specification(
    stream: bytes, places: list[int], large: int
) -> None:
    expected = reference(stream)
    assert events_of([stream]) == expected
    assert events_of(cut_chunks(stream, places), large_message_bytes=large) == expected


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_data_up_to_the_limit_is_data_and_one_byte_more_is_not(end: bytes, step: int) -> None:
    for value, expected in (
        (b"x" * 100, b"x" * 100),
        (b"x" * 101, OversizeLine(b"x" * 101, b"x" * 101, 101)),
        (b"x" * 120, OversizeLine(b"x" * 120, b"x" * 120, 120)),
    ):
        stream = b"data: " + value + end + end + b"data: next" + end + end
        chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
        assert events_of(chunks, 100) == [SseEvent(expected), SseEvent(b"next")]


@settings(deadline=None, max_examples=300)
@given(
    values=st.lists(st.integers(0, 40).map(lambda size: bytes(65 + n % 26 for n in range(size))), min_size=1),
    prefix=st.sampled_from([b"data:", b"data: "]),
    places=cuts,
    limit=st.integers(0, 60),
    edge=st.integers(10, 30),
)
@example(values=[b"A", b"B" * 30, b"", b"C"], prefix=b"data: ", places=[3], limit=5, edge=10)
@example(values=[b"A" * 4, b"B" * 4], prefix=b"data: ", places=[], limit=8, edge=10)
def test_data_over_the_limit_keeps_its_ends_and_its_size_however_it_is_cut(
    values: list[bytes], prefix: bytes, places: list[int], limit: int, edge: int
) -> None:
    data = b"\n".join(values)
    stream = b"id: 1\n" + b"".join(prefix + value + b"\n" for value in values) + b"\ndata: \n\n"
    whole = events_of([stream], limit, edge_bytes=edge)
    assert events_of(cut_chunks(stream, places), limit, edge_bytes=edge) == whole
    event, following = whole
    assert (event.id, following) == ("1", SseEvent(b""))
    if len(data) <= limit:
        assert event.data == data
        return
    assert isinstance(event.data, OversizeLine)
    assert event.data.size == len(data)
    # A line that is itself over the limit gives up the room that its field name took.
    room = min(edge, len(data)) - len(prefix)
    assert len(event.data.head) >= min(room, len(data))
    assert data.startswith(event.data.head)
    assert len(event.data.tail) >= min(room, len(data))
    assert data.endswith(event.data.tail)


def test_the_head_of_pretty_printed_data_over_the_limit_is_its_beginning() -> None:
    lines = [b'{"jsonrpc": "2.0", "id": 7,', *[b'"padding": "%d",' % n for n in range(1000)], b'"end": 1}']
    (event,) = events_of([b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"], 2000)
    data = b"\n".join(lines)
    assert event.data == OversizeLine(data[:EXCERPT_BYTES], data[-EXCERPT_BYTES:], len(data))


def test_a_comment_or_another_field_over_the_limit_is_not_an_event() -> None:
    long = b"x" * 500
    stream = b":" + long + b"\nid: " + long + b"\nevent: " + long + b"\n\ndata: y\n\n"
    assert events_of([stream], 100) == [SseEvent(b"y")]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("step", [256, 64 * KB])
def test_an_event_of_thirty_megabytes_takes_linear_time_in_its_chunks(step: int) -> None:
    chunk, parser = b"x" * step, SseParser(64 * MB)
    assert parser.feed(b"data: ") == []
    for _ in range(30 * MB // step):
        assert parser.feed(chunk) == []
    (event,) = parser.feed(b"\n\n")
    assert isinstance(event.data, bytes | bytearray | memoryview)
    assert len(event.data) == 30 * MB


@pytest.mark.timeout(30)
def test_data_of_very_many_lines_takes_linear_time() -> None:
    (event,) = events_of([b"data: x\n" * 300_000, b"\n"], 64 * MB)
    assert isinstance(event.data, bytes | bytearray | memoryview)
    assert len(event.data) == 599_999
    (event,) = events_of([b"data: x\n" * 300_000, b"\n"], KB)
    assert isinstance(event.data, OversizeLine)
    assert event.data.size == 599_999


def test_data_of_very_many_empty_lines_takes_little_more_memory_than_its_bytes() -> None:
    parser = SseParser(64 * MB)
    tracemalloc.start()
    try:
        for _ in range(10):
            parser.feed(b"data:\n" * 20_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (event,) = parser.feed(b"\n")
    assert event.data == b"\n" * 199_999
    assert peak < 2 * MB
