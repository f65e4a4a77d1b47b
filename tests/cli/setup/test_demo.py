"""``toolyard demo`` and its server."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from mcp_types import methods

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

VERSION = "io.modelcontextprotocol/protocolVersion"


def test_the_walk_ends_by_itself_and_leaves_nothing(cli: Cli) -> None:
    result = cli("demo", TMPDIR=str(cli.home))
    assert (result.code, result.err) == (0, "note: 1 more is hidden (write tools): --all shows it\n")
    for words in (
        "demo\tready\t3\t",
        "demo_count\tCount up slowly and report progress.",
        "2026-07-28 is a Tuesday.",
        "-> write tools  refuse",
        "Next steps",
    ):
        assert words in result.out
    assert list(cli.home.iterdir()) == []
    assert not cli.data.exists()


def run_demo(
    entry: dict[str, Any], *messages: dict[str, Any], args: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    words = [entry["command"], *entry["args"], *args]
    result = subprocess.run(words, input=text, capture_output=True, text=True, timeout=30, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_its_server_speaks_the_modern_era(demo: dict[str, Any]) -> None:
    (offer, listing, refusal) = run_demo(
        demo,
        {"id": 1, "method": "server/discover", "params": {"_meta": {VERSION: "2026-07-28"}}},
        {"id": 2, "method": "tools/list", "params": {"_meta": {VERSION: "2026-07-28"}}},
        {"id": 3, "method": "tools/list", "params": {"_meta": {VERSION: "2031-01-01"}}},
    )
    assert offer["result"]["supportedVersions"][0] == "2026-07-28"
    assert (listing["result"]["resultType"], listing["result"]["cacheScope"]) == ("complete", "public")
    assert refusal["error"]["code"] == -32022
    assert refusal["error"]["data"]["supported"] == ["2026-07-28"]


def test_its_server_speaks_the_legacy_era(demo: dict[str, Any]) -> None:
    hello = {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    probe = {"id": 2, "method": "server/discover", "params": {}}
    started_replies, ping, refused_replies, unread = run_demo(
        demo, hello, {"id": 3, "method": "ping"}, probe, {"id": 4, "method": "nonsense"}, args=("--legacy",)
    )
    assert started_replies["result"]["protocolVersion"] == "2025-06-18"
    assert ping["result"] == {}
    assert refused_replies["error"]["code"] == unread["error"]["code"] == -32601


def test_its_server_bears_nonsense(demo: dict[str, Any]) -> None:
    words = [demo["command"], *demo["args"]]
    lines = 'nonsense\n[]\n{"id": 1, "method": "tools/call", "params": 7}\n'
    result = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=30, check=True)
    assert '"code": -32700' in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_its_answers_match_the_official_types(demo: dict[str, Any], revision: str) -> None:
    meta = {"_meta": {VERSION: revision}} if revision == "2026-07-28" else {}
    requests = {
        "server/discover" if meta else "initialize": {"protocolVersion": revision, **meta},
        "tools/list": meta,
        "tools/call": {"name": "weekday", "arguments": {"date": "2026-07-28"}, **meta},
    }
    messages = [
        {"id": id_, "method": method, "params": requests[method]} for id_, method in enumerate(requests)
    ]
    answers = run_demo(demo, *messages)
    assert len(answers) == 3
    for answer, method in zip(sorted(answers, key=lambda one: one["id"]), requests, strict=True):
        methods.validate_server_result(method, revision, answer["result"])
