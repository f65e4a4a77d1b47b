"""What no model can take as it is: a handle with what it is, and never megabytes of base64."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.results.model_result import shape_and_store, shape_result
from toolyard.results.result_store import MemoryResultStore, StoredResult
from toolyard.types.server import Trust
from toolyard.types.tool import Result, ResultLimits


def image(data: bytes, kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "mimeType": f"{kind}/x", "data": base64.b64encode(data).decode()}


def file(data: bytes, mime: str = "application/zip") -> dict[str, Any]:
    inner = {"uri": "file:///f", "mimeType": mime, "blob": base64.b64encode(data).decode()}
    return {"type": "resource", "resource": inner}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


async def shape_blocks(
    handles: MemoryResultStore, *blocks: dict[str, Any], trust: Trust = Trust.TRUSTED, **more: Any
) -> Result:
    return await shape_and_store(
        {"content": [*blocks]}, ResultLimits(1_000, 100), trust, handles, server="s", **more
    )


async def test_a_file_is_stored_and_described_in_the_text() -> None:
    handles = MemoryResultStore()
    result = await shape_blocks(handles, text_block("see"), file(b"PK\x03\x04"), media=True)
    digest = sha256(b"PK\x03\x04").hexdigest()[:16]
    (media,) = result.media
    assert result.text == (
        f"see\n[file file:///f: application/zip, 4 bytes, sha256 {digest}; "
        f'result_read with handle "{media.handle}" reads it]'
    )
    assert await handles.read(media.handle or "") == StoredResult(
        b"PK\x03\x04", Trust.TRUSTED, "s", "application/zip"
    )
    assert base64.b64decode(media.data) == b"PK\x03\x04"
    assert result.handle is None


@pytest.mark.parametrize("kind", ["image", "audio"])
async def test_only_media_too_large_for_the_model_are_stored(kind: str) -> None:
    handles = MemoryResultStore()
    small, large = [await shape_blocks(handles, image(bytes(size), kind), media=True) for size in (100, 101)]
    assert small == shape_result({"content": [image(bytes(100), kind)]}, ResultLimits(), Trust.TRUSTED)
    assert re.fullmatch(rf"\[{kind}: {kind}/x, 101 bytes, sha256 \w{{16}}; result_read .*\]", large.text)
    assert large.media[0].size == 101


async def test_an_untrusted_servers_file_is_told_within_the_fence() -> None:
    result = await shape_blocks(MemoryResultStore(), file(b"x"), trust=Trust.UNTRUSTED, media=True)
    assert re.search(r"<untrusted-data \w+>\n\[file file:///f: ", result.text)


async def test_a_caller_that_reads_everything_gets_files_unchanged() -> None:
    handles = MemoryResultStore()
    for limits, media in ((ResultLimits(), False), (ResultLimits(ResultLimits.UNLIMITED_CHARACTERS), True)):
        raw = {"content": [file(b"x"), image(bytes(6_000_000))]}
        assert await shape_and_store(raw, limits, Trust.TRUSTED, handles, media=media) == shape_result(
            raw, limits, Trust.TRUSTED
        )
    assert not await handles.has_any()


@given(st.lists(st.tuples(st.sampled_from([image, file]), st.binary(min_size=1, max_size=200)), max_size=5))
async def test_every_byte_is_either_beside_the_text_or_under_a_handle(
    media_parts: list[tuple[Any, bytes]],
) -> None:
    handles = MemoryResultStore()
    result = await shape_blocks(handles, *(kind(data) for kind, data in media_parts), media=True)
    assert [base64.b64decode(each.data) for each in result.media] == [data for _, data in media_parts]
    for media, (kind, data) in zip(result.media, media_parts, strict=True):
        assert (media.handle is not None) == (kind is file or len(data) > 100)
        if media.handle is not None:
            stored_media = await handles.read(media.handle)
            assert stored_media is not None
            assert stored_media.body == data
