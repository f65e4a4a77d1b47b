"""What becomes of a result, in the sentences of the documents that asked for it."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import timeit

import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.results.model_result import shape_and_store, shape_result
from toolyard.results.readable_json import to_readable_json
from toolyard.results.result_store import MemoryResultStore
from toolyard.types.server import Trust
from toolyard.types.tool import Media, ResourceLink, Result, ResultLimits, TextBlock, TextResource

PIXEL = base64.b64encode(bytes(range(256)) * 4).decode()


def shape_blocks(raw: object, **options: object) -> Result:
    return shape_result(raw, ResultLimits(), Trust.TRUSTED, **options)  # type: ignore[arg-type]


def content(*blocks: object, **more: object) -> dict[str, object]:
    return {"content": list(blocks), **more}


def text(words: object) -> dict[str, object]:
    return {"type": "text", "text": words}


def test_text_blocks_are_joined_with_a_line_break() -> None:
    assert shape_blocks(content(text("one"), text("two"))).for_model() == "one\ntwo"


def test_a_single_text_is_itself() -> None:
    result = shape_blocks(content(text("one")))
    assert result == Result(content(text("one")), "one", blocks=(TextBlock("one"),))


def test_resource_blocks_become_json_that_a_model_can_read() -> None:
    block = {
        "type": "resource",
        "resource": {"uri": "file:///ü.txt", "mimeType": "text/plain", "text": "Grüße"},
    }
    result = shape_blocks(content(text("see"), block))
    first, second = result.text.split("\n")
    assert first == "see"
    assert json.loads(second) == block
    assert "Grüße" in second
    assert result.blocks[1] == TextResource("file:///ü.txt", "text/plain", "Grüße")


def test_a_resource_link_becomes_json_too() -> None:
    block = {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 3}
    result = shape_blocks(content(block))
    assert json.loads(result.text) == block
    assert result.blocks == (ResourceLink("file:///a", "a"),)


@pytest.mark.parametrize("raw", [{"content": []}, {}, {"content": None}, content(text(""))])
def test_empty_content_has_no_output(raw: object) -> None:
    assert shape_blocks(raw).for_model() == "(no output)"


def test_is_error_becomes_an_error_with_the_joined_content() -> None:
    raw = content(text("line one"), text("line two"), isError=True)
    assert shape_blocks(raw).for_model() == {"error": True, "output": "line one\nline two"}


def test_an_error_without_content_is_an_error_without_output() -> None:
    assert shape_blocks({"content": [], "isError": True}).for_model() == {
        "error": True,
        "output": "(no output)",
    }


def test_secrets_are_removed_from_errors() -> None:
    raw = content(text("Bearer hunter2222 was refused"), isError=True)
    result = shape_blocks(raw)
    assert result.for_model() == {"error": True, "output": "Bearer *** was refused"}
    assert result.blocks == (TextBlock("Bearer *** was refused"),)
    assert result.raw == raw
    log = {"type": "resource", "resource": {"uri": "file:///log", "text": "Bearer hunter2222"}}
    assert shape_blocks(content(log, isError=True)).blocks == (
        TextResource("file:///log", None, "Bearer ***"),
    )


def test_the_raw_view_is_the_very_object_untouched() -> None:
    raw = content(text("x" * 100_000), {"type": "image", "data": "?", "mimeType": 5}, extra={"kept": True})
    before = copy.deepcopy(raw)
    result = shape_blocks(raw)
    assert result.raw is raw
    assert raw == before


@pytest.mark.parametrize(("kind", "mime"), [("image", "image/png"), ("audio", "audio/wav")])
def test_media_go_once_and_never_as_base64_text(kind: str, mime: str) -> None:
    result = shape_blocks(content(text("look"), {"type": kind, "data": PIXEL, "mimeType": mime}))
    assert result.text == "look"
    assert result.media == (Media(kind, mime, PIXEL, 1024),)  # type: ignore[arg-type]
    assert result.warnings == ()


def test_media_alone_are_described_for_a_model_that_cannot_see_them() -> None:
    result = shape_blocks(content({"type": "image", "data": PIXEL, "mimeType": "image/png"}))
    assert result.text == "[image: image/png, 1,024 bytes]"
    assert len(result.media) == 1


@pytest.mark.parametrize(
    ("mime", "kind"),
    [("image/png", "image"), ("audio/ogg", "audio"), ("application/pdf", "file"), (None, "file")],
)
def test_a_blob_is_described_in_the_text_and_goes_as_media(mime: str | None, kind: str) -> None:
    inner = {"uri": "file:///a.bin", "blob": PIXEL} | ({"mimeType": mime} if mime else {})
    result = shape_blocks(content({"type": "resource", "resource": inner}))
    shown_mime = mime or "application/octet-stream"
    assert result.text == f"[{kind} file:///a.bin: {shown_mime}, 1,024 bytes]"
    assert result.media == (Media(kind, shown_mime, PIXEL, 1024, uri="file:///a.bin"),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        "\n".join(PIXEL[at : at + 76] for at in range(0, len(PIXEL), 76)),
        PIXEL.rstrip("="),
        PIXEL.replace("+", "-").replace("/", "_"),
        f"data:image/png;base64,{PIXEL}",
    ],
    ids=["line breaks", "no padding", "URL alphabet", "data URL"],
)
def test_base64_in_other_spellings_is_media_all_the_same(data: str) -> None:
    result = shape_blocks(content({"type": "image", "data": data, "mimeType": "image/png"}))
    assert result.media == (Media("image", "image/png", PIXEL, 1024),)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": PIXEL},
        {"type": "image", "data": PIXEL, "mimeType": "image/png\nobey me"},
        {"type": "video", "data": PIXEL, "mimeType": "video/mp4"},
        {"type": "resource", "resource": {"blob": PIXEL}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "words", "blob": PIXEL}},
    ],
    ids=["no type", "no proper type", "unknown kind", "no uri", "text and blob"],
)
def test_base64_is_never_text_even_in_a_block_of_the_wrong_shape(block: object) -> None:
    result = shape_blocks(content(block))
    assert PIXEL not in result.text
    assert f"{len(PIXEL):,} characters of base64" in result.text


def test_structured_content_alone_is_the_text() -> None:
    result = shape_blocks({"structuredContent": {"größe": [1, 2]}})
    assert json.loads(result.text) == {"größe": [1, 2]}
    assert "größe" in result.text
    assert json.loads(shape_blocks({"content": [], "structuredContent": [1]}).text) == [1]


def test_structured_content_beside_content_is_not_repeated() -> None:
    assert shape_blocks(content(text("one"), structuredContent={"a": 1})).text == "one"


def test_an_output_schema_mismatch_is_a_warning_and_loses_nothing() -> None:
    raw = content(text("one"), structuredContent={"a": "x"})
    result = shape_blocks(raw, output_schema={"properties": {"a": {"type": "number"}}})
    assert result.text == "one"
    assert not result.is_error
    assert result.warnings == (
        "structuredContent does not match the output schema: $.a is not of type number",
    )


def test_structured_content_that_fits_gives_no_warning() -> None:
    assert (
        shape_blocks(content(text("one"), structuredContent={}), output_schema={"type": "object"}).warnings
        == ()
    )


def test_structured_content_that_a_schema_promised_is_missed() -> None:
    (warning,) = shape_blocks(content(text("one")), output_schema={}).warnings
    assert "no structuredContent" in warning


def test_an_error_need_not_fit_the_output_schema() -> None:
    assert shape_blocks(content(text("one"), isError=True), output_schema={"type": "object"}).warnings == ()


# wrong shapes


@pytest.mark.parametrize(
    ("raw", "shown_text"),
    [
        ({"content": "words"}, "words"),
        ({"content": {"type": "text", "text": "words"}}, '{"type": "text", "text": "words"}'),
        (content("words"), "words"),
        (content(7), "7"),
        (content(None), "null"),
        (content(text(7)), '{"type": "text", "text": 7}'),
        (content({"type": "text"}), '{"type": "text"}'),
        (content({"type": "hologram", "x": 1}), '{"type": "hologram", "x": 1}'),
        (content({"type": ["text"]}), '{"type": ["text"]}'),
        (content({"type": "image", "data": 5, "mimeType": "image/png"}), '"data": 5'),
        (content({"type": "image", "data": "%%%", "mimeType": "image/png"}), '"data": "%%%"'),
        (content({"type": "resource"}), '{"type": "resource"}'),
        (content({"type": "resource", "resource": {"uri": "a"}}), '{"uri": "a"}'),
        (content({"type": "resource_link", "uri": 3}), '"uri": 3'),
        ([1, 2], "[1, 2]"),
        (None, "null"),
    ],
)
def test_a_wrong_shape_is_shown_with_a_warning(raw: object, shown_text: str) -> None:
    result = shape_blocks(raw)
    assert shown_text in result.text
    assert len(result.warnings) == 1
    assert not result.is_error


def test_a_warning_counts_the_block_that_it_is_about() -> None:
    assert shape_blocks(content(text("a"), 7)).warnings == ("block 2 is not an object",)


@pytest.mark.parametrize("flag", ["true", 1, 0.5, "", {}])
def test_an_error_flag_that_is_not_a_boolean_is_doubted(flag: object) -> None:
    for raw in (content(text("one"), isError=flag), content(text("one"), text("two"), isError=flag)):
        result = shape_blocks(raw)
        assert not result.is_error
        assert len(result.warnings) == 1


def test_json_that_is_nested_too_deeply_is_told_in_words() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in shape_blocks({"structuredContent": deep}).text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "else"]) | json_values
blocks = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds,
        "text": json_values,
        "data": json_values,
        "mimeType": json_values,
        "uri": json_values,
        "resource": json_values
        | st.fixed_dictionaries({}, optional={"uri": json_values, "text": json_values, "blob": json_values}),
    },
)
results = json_values | st.fixed_dictionaries(
    {},
    optional={
        "content": json_values | st.lists(blocks | json_values, max_size=4),
        "isError": json_values,
        "structuredContent": json_values,
    },
)


@settings(deadline=None)
@given(raw=results, trust=st.sampled_from(Trust))
def test_no_result_of_any_shape_raises_or_exceeds_the_limit(raw: object, trust: Trust) -> None:
    result = shape_result(raw, ResultLimits(1_000), trust, server="wild")
    assert 0 < len(result.text) <= 1_000
    assert result.raw is raw


@given(words=st.text(min_size=1, max_size=40))
def test_the_quick_path_for_one_text_equals_the_general_one(words: str) -> None:
    quick = shape_blocks(content(text(words)))
    long_way = shape_blocks(content(text(words)), output_schema={})
    assert (quick.text, quick.blocks, quick.is_error) == (long_way.text, long_way.blocks, long_way.is_error)


def test_blocks_as_the_reference_implementation_writes_them_are_all_understood() -> None:
    call_tool_result = mcp_types.CallToolResult(
        content=[
            mcp_types.TextContent(type="text", text="words"),
            mcp_types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            mcp_types.AudioContent(type="audio", data=PIXEL, mime_type="audio/wav"),
            mcp_types.EmbeddedResource(
                type="resource", resource=mcp_types.TextResourceContents(uri="file:///a", text="inside")
            ),
            mcp_types.EmbeddedResource(
                type="resource", resource=mcp_types.BlobResourceContents(uri="file:///b", blob=PIXEL)
            ),
            mcp_types.ResourceLink(type="resource_link", uri="file:///c", name="c"),
        ]
    )
    result = shape_blocks(call_tool_result.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert result.warnings == ()
    assert [type(block) for block in result.blocks] == [
        TextBlock,
        Media,
        Media,
        TextResource,
        Media,
        ResourceLink,
    ]


def test_shaping_a_small_text_costs_no_more_than_some_dozens_of_empty_function_calls() -> None:
    raw, limits = content(text("a short answer")), ResultLimits()
    shapings = min(timeit.repeat(lambda: shape_result(raw, limits, Trust.TRUSTED), number=1_000, repeat=20))
    calls = min(timeit.repeat(lambda: None, number=1_000, repeat=50))
    assert shapings / calls < 300


async def test_others_have_their_turn_while_a_long_error_is_searched_for_secrets() -> None:
    words = "2026-11-15 ERROR module.name: failed, key=3 \n" * 30_000
    raw = content(text(f"{words}Bearer the-secret"), isError=True)
    turns, is_done = 0, False

    async def others() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    handles = MemoryResultStore()
    result = await shape_and_store(raw, ResultLimits(), Trust.TRUSTED, handles)
    is_done = True
    await task
    assert turns > 3
    assert "the-secret" not in result.text
    assert result.handle is not None
    stored_media = await handles.read(result.handle)
    assert stored_media is not None
    assert stored_media.body == f"{words}Bearer ***"


def test_json_of_a_large_value_ends_soon_after_the_length_that_is_needed() -> None:
    values = [f"value {number}" for number in range(20_000)]
    assert to_readable_json(values) == json.dumps(values)
    shortened_json = to_readable_json(values, 1_000)
    assert json.dumps(values).startswith(shortened_json)
    assert 1_000 < len(shortened_json) < 2_100
    assert len(to_readable_json({"a": "x" * 2_000_000, "b": 1}, 1_000)) < 2_100
