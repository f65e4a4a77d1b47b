"""The playground server: in both eras its answers match the official types, and it can elicit."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from mcp_types import methods

from toolyard.cli.commands.demo import first_config

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
COMMAND = [sys.executable, "-I", "-m", "toolyard.cli.playground_server"]


class PlaygroundClient:
    """A client that writes lines and reads lines."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def take(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.send(id=1, method=method, params=params)
        return self.take()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def open_chat(request: pytest.FixtureRequest) -> Any:
    playground_client = PlaygroundClient(*getattr(request, "param", ()))
    yield playground_client
    playground_client.close()


def modern(**capabilities: Any) -> dict[str, Any]:
    return {"_meta": {VERSION: "2026-07-28", CAPABILITIES: capabilities}}


CALLS: dict[str, dict[str, Any]] = {
    "chart": {"values": [1, 2.5, 4], "colour": "green"},
    "plan_trip": {
        "start": "2026-12-24",
        "stops": [{"city": "Oslo", "nights": 2}, {"city": "Bergen", "nights": 1, "by": "boat"}],
        "stay": {"kind": "tent", "fire": True},
    },
    "note": {"text": "milk"},
    "greet": {},
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_its_answers_match_the_official_types(open_chat: PlaygroundClient, name: str) -> None:
    listed_result = open_chat.ask("tools/list", **modern())["result"]
    methods.validate_server_result("tools/list", "2026-07-28", listed_result)
    assert name in [each["name"] for each in listed_result["tools"]]
    result = open_chat.ask("tools/call", name=name, arguments=CALLS[name], **modern())["result"]
    methods.validate_server_result("tools/call", "2026-07-28", result)
    assert not result.get("isError")


def test_a_trip_goes_from_stop_to_stop(open_chat: PlaygroundClient) -> None:
    result = open_chat.ask("tools/call", name="plan_trip", arguments=CALLS["plan_trip"], **modern())["result"]
    trip = result["structuredContent"]
    assert [(each["city"], each["from"], each["to"]) for each in trip["stops"]] == [
        ("Oslo", "2026-12-24", "2026-12-26"),
        ("Bergen", "2026-12-26", "2026-12-27"),
    ]
    assert trip["stay"] == {"kind": "tent", "fire": True}


def test_a_chart_is_a_picture(open_chat: PlaygroundClient) -> None:
    result = open_chat.ask("tools/call", name="chart", arguments=CALLS["chart"], **modern())["result"]
    picture = base64.b64decode(result["content"][1]["data"])
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert result["content"][0]["text"] == "3 bars, the highest is 4."


def test_a_modern_client_is_asked_in_a_result_of_its_own(open_chat: PlaygroundClient) -> None:
    result = open_chat.ask("tools/call", name="greet", **modern(elicitation={}))["result"]
    methods.validate_server_result("tools/call", "2026-07-28", result)
    assert result["resultType"] == "input_required"
    answer = {"who": {"action": "accept", "content": {"name": "Ada", "language": "no"}}}
    final_result = open_chat.ask("tools/call", name="greet", inputResponses=answer, **modern(elicitation={}))[
        "result"
    ]
    assert final_result["content"][0]["text"] == "Hei, Ada!"


@pytest.mark.parametrize("open_chat", [("--legacy",)], indirect=True)
@pytest.mark.parametrize(
    ("reply", "protocol_version"),
    [
        ({"action": "accept", "content": {"name": "Ada"}}, "Hello, Ada!"),
        ({"action": "decline"}, "Nobody was greeted."),
    ],
)
def test_an_older_client_is_asked_in_the_middle_of_the_call(
    open_chat: PlaygroundClient, reply: dict[str, Any], protocol_version: str
) -> None:
    open_chat.ask("initialize", protocolVersion="2025-11-25", capabilities={"elicitation": {}})
    open_chat.send(id=2, method="tools/call", params={"name": "greet"})
    elicitation = open_chat.take()
    assert elicitation["method"] == "elicitation/create"
    open_chat.send(id=elicitation["id"], result=reply)
    assert open_chat.take()["result"]["content"][0]["text"] == protocol_version


@pytest.mark.parametrize("open_chat", [("--legacy",)], indirect=True)
def test_clients_without_elicitation_are_greeted(open_chat: PlaygroundClient) -> None:
    open_chat.ask("initialize", protocolVersion="2025-11-25", capabilities={})
    assert open_chat.ask("tools/call", name="greet")["result"]["content"][0]["text"] == "Hello, stranger!"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("chart", {}),
        ("chart", {"values": ["x"]}),
        ("chart", {"values": [-1]}),
        ("chart", {"values": [1] * 100}),
        ("plan_trip", {"start": "soon"}),
        ("plan_trip", {"start": "2026-01-01", "stops": []}),
        ("plan_trip", {"start": "2026-01-01", "stops": 7}),
    ],
)
def test_unsupported_requests_are_reported(
    open_chat: PlaygroundClient, name: str, arguments: dict[str, Any]
) -> None:
    assert open_chat.ask("tools/call", name=name, arguments=arguments, **modern())["result"]["isError"]


def test_a_fresh_checkout_begins_with_it() -> None:
    assert list(json.loads(first_config())["mcpServers"]) == ["demo", "playground"]
