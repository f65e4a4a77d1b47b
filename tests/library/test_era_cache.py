"""The era of a server is found out once and remembered in a small file, which may be lost or broken."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolyard import Toolyard
from toolyard.clients.handshake import FileEraCache

OpenYard = Callable[..., Toolyard]
Recorders = Callable[..., Any]

ANOTHER_PROCESS = """
import asyncio, json, sys
from toolyard import Toolyard

async def main():
    async with Toolyard.open(json.loads(sys.argv[1]), data_dir=sys.argv[2]) as yard:
        print((await yard.call("one_echo", {"text": "hello"})).text)

asyncio.run(main())
"""


async def test_a_second_process_sends_no_probe(recorder: Recorders, data_dir: Path) -> None:
    one = recorder()
    words = [json.dumps({"mcpServers": {"one": one.entry}}), str(data_dir)]
    for _ in range(2):
        result = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", ANOTHER_PROCESS, *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert result.stdout == "hello\n"
    assert len(one.starts()) == 2
    assert len(one.messages("server/discover")) == 1
    assert len(one.messages("initialize")) == 2


async def test_of_a_modern_server_the_second_yard_asks_nothing_that_is_old(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder("one", "--modern")
    for _ in range(2):
        async with open_yard({"one": one}) as yard:
            await yard.call("one_echo")
    assert one.messages("initialize") == []
    assert len(one.calls()) == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": ["legacy"], "b": {}, "c": "stone age"}'],
    ids=["empty", "cut off", "a list", "null", "no text", "deep", "odd values"],
)
async def test_a_broken_file_costs_a_probe_and_is_mended(
    content: bytes, open_yard: OpenYard, recorder: Recorders, data_dir: Path
) -> None:
    (data_dir / "eras.json").write_bytes(content)
    one = recorder()
    for _ in range(2):
        async with open_yard({"one": one}) as yard:
            assert (await yard.call("one_echo", {"text": "x"})).text == "x"
    assert len(one.messages("server/discover")) == 1
    assert list(json.loads((data_dir / "eras.json").read_text()).values()) == ["legacy"]


async def test_a_place_where_no_file_can_be_costs_a_probe_each_time(
    open_yard: OpenYard, recorder: Recorders, data_dir: Path
) -> None:
    (data_dir / "eras.json").mkdir()
    one = recorder()
    for _ in range(2):
        async with open_yard({"one": one}) as yard:
            assert (await yard.call("one_echo", {"text": "x"})).text == "x"
    assert len(one.messages("server/discover")) == 2


async def test_a_wrong_cached_era_is_forgotten_and_the_server_probed_again(
    open_yard: OpenYard, recorder: Recorders, data_dir: Path
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        await yard.call("one_echo")
    file = data_dir / "eras.json"
    file.write_text(file.read_text().replace("legacy", "modern"))
    async with open_yard({"one": one}) as yard:
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"
    assert "legacy" in file.read_text()


def test_an_era_is_recalled_by_another_reader_until_it_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "made" / "with" / "its" / "folders" / "eras.json"
    first = FileEraCache(path)
    assert first.recall("a") is None
    first.remember("a", "modern")
    first.remember("b", "sse")
    assert (FileEraCache(path).recall("a"), FileEraCache(path).recall("b")) == ("modern", "sse")
    first.remember("a", None)
    assert FileEraCache(path).recall("a") is None
    assert [each.name for each in path.parent.iterdir()] == ["eras.json"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    path.mkdir()
    FileEraCache(path).remember("a", "modern")
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    path.write_text(json.dumps({f"old-{number}": "legacy" for number in range(5000)}))
    FileEraCache(path).remember("new", "modern")
    document = json.loads(path.read_text())
    assert len(document) == 1000
    assert FileEraCache(path).recall("new") == "modern"
