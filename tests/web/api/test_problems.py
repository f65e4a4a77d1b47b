"""Every error is problem details (RFC 9457), tells nothing it should not, and can be found in the log."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.loop_watch import LoopWatch

from toolyard import errors
from toolyard.accounts import errors as people_errors
from toolyard.agents.chat import errors as chat_errors
from toolyard.agents.models import errors as model_errors
from toolyard.auth import errors as auth_errors
from toolyard.errors import ToolyardError
from toolyard.registry import errors as registry_errors
from toolyard.store import errors as store_errors
from toolyard.web.problem_details import PROBLEM_KINDS, describe_error, find_problem_kind

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp


def is_problem(answer: Any, status: int) -> Any:
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["type"]
    return problem


async def test_unknown_paths_are_404(local_site: InProcessApp) -> None:
    for path in ("/api/v1/nothing", "/api/v2/status", "/nothing", "/api/v1/servers/"):
        is_problem(await local_site.client().get(path), 404)


async def test_a_method_that_is_not_taken_names_those_that_are(local_site: InProcessApp) -> None:
    answer = await local_site.client().delete("/api/v1/status")
    is_problem(answer, 405)
    assert answer.headers["allow"] == "GET, HEAD"


async def test_an_unacceptable_media_type_is_406(local_site: InProcessApp) -> None:
    client = local_site.client()
    problem = is_problem(await client.get("/api/v1/status", headers={"Accept": "text/html"}), 406)
    assert "application/json" in problem["detail"]
    is_problem(await client.get("/api/v1/audit/export", headers={"Accept": "application/json"}), 406)
    is_problem(await client.get("/api/v1/events", headers={"Accept": "application/json"}), 406)
    for accept_header in ("*/*", "application/*", "text/html, application/json;q=0.5", ""):
        answer = await client.get("/api/v1/status", headers={"Accept": accept_header})
        assert answer.status == 200, accept_header


async def test_a_body_that_is_too_long(local_site: InProcessApp) -> None:
    body = json.dumps({"arguments": {"date": "x" * 9_000_000}}).encode()
    headers = {"Content-Type": "application/json"}
    path = "/api/v1/tools/demo_weekday/call"
    answer = await local_site.client().post(path, data=io.BytesIO(body), headers=headers)
    is_problem(answer, 413)


async def test_a_body_of_another_type(local_site: InProcessApp, password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    for client in (local_site.client(), ada.token):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
            answer = await client.post(
                "/api/v1/tools/demo_weekday/call", data=b"{}", headers={"Content-Type": kind}
            )
            problem = is_problem(answer, 415)
            assert "application/json" in problem["detail"]


async def test_a_body_that_is_not_json_is_refused(local_site: InProcessApp) -> None:
    client = local_site.client()
    for body in (b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"arguments": NaN}'):
        answer = await client.post(
            "/api/v1/tools/demo_weekday/call", data=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status in (400, 422), (body[:10], answer.text)
        is_problem(answer, answer.status)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "[{}, [Infinity]]"])
async def test_a_number_that_json_does_not_have(local_site: InProcessApp, number: str) -> None:
    answer = await local_site.client().post(
        "/api/v1/tools/demo_weekday/call",
        data=f'{{"arguments": {{"date": {number}}}}}',
        headers={"Content-Type": "application/json"},
    )
    problem = is_problem(answer, 422)
    assert "a number that is not valid in JSON" in problem["errors"][0]["message"]


VALUE_COUNT = 1_000_000
MANY = {
    "lists": b"[" + b"[]," * VALUE_COUNT + b"[]]",
    "numbers": b"[" + b"1," * VALUE_COUNT + b"1]",
    "long numbers": b"[" + (b"1" * 600 + b",") * 1_000 + b"1]",
    "texts": b"[" + b'"",' * VALUE_COUNT + b'""]',
    "backslashes": b"[" + rb'"\\",' * VALUE_COUNT + b'""]',
    "keys": b"{" + b",".join(b'"%d":{}' % number for number in range(VALUE_COUNT // 2)) + b"}",
    "no end": b'["' + b"," * VALUE_COUNT + rb"\"" + b"]," * VALUE_COUNT + b'"' + b"[]," * VALUE_COUNT,
}


@pytest.mark.parametrize("path", ["/api/v1/tools/demo_weekday/call", "/mcp"])
@pytest.mark.parametrize("kind", MANY)
async def test_a_body_of_very_many_values_is_not_read(local_site: InProcessApp, kind: str, path: str) -> None:
    body = b'{"arguments": {"date": ' + MANY[kind] + b"}}"
    assert len(body) < 8 * 1024 * 1024
    headers = {"Content-Type": "application/json"}
    problem = is_problem(await local_site.client().post(path, data=io.BytesIO(body), headers=headers), 413)
    assert "at most 200,000 values" in problem["detail"]


@pytest.mark.parametrize("text", ["a,b,[{\n", "0123456789", '{"a": ["b", "c\\"]},', '\\",['])
async def test_a_long_text_may_hold_anything(local_site: InProcessApp, text: str) -> None:
    body = io.BytesIO(json.dumps({"arguments": {"date": text * 150_000}}).encode())
    headers = {"Content-Type": "application/json"}
    answer = await local_site.client().post("/api/v1/tools/demo_weekday/call", data=body, headers=headers)
    assert answer.status == 200


async def test_submitted_values_are_not_echoed(local_site: InProcessApp) -> None:
    body = {"name": "S", "url": 3, "choices": [{"kind": "oauth", "client_secret": ["hunter2-hunter2"]}]}
    problem = is_problem(await local_site.client().post("/api/v1/servers", body), 422)
    assert {each["field"] for each in problem["errors"]} >= {"url", "choices.0.client_secret"}
    assert "hunter2" not in json.dumps(problem)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("agents", {"tools": [1] * 190_000}),
        ("agents", {"tools": [{}] * 95_000}),
        ("instances", {f"unknown{number}": 1 for number in range(95_000)}),
        ("prompts/insert", {"arguments": {f"name{number}": 1 for number in range(90_000)}}),
    ],
    ids=["numbers", "objects", "unknown", "arguments"],
)
async def test_a_body_with_very_many_errors_does_not_block(
    local_site: InProcessApp, path: str, body: dict[str, Any]
) -> None:
    sent_body = io.BytesIO(json.dumps(body).encode())
    client = local_site.client(**{"Content-Type": "application/json"})
    async with LoopWatch() as watch:
        answer = await client.post(f"/api/v1/{path}", data=sent_body)
    problem = is_problem(answer, 422)
    assert "errors" in problem["errors"][0]["message"]
    assert len(answer.body) < 10_000
    assert watch.longest_seconds < 0.15


async def test_a_name_of_eight_megabytes_does_not_block(local_site: InProcessApp) -> None:
    body = io.BytesIO(json.dumps({"name": "a" * 7_900_000}).encode())
    client = local_site.client(**{"Content-Type": "application/json"})
    async with LoopWatch() as watch:
        answer = await client.post("/api/v1/agents", data=body)
    assert "the maximum is 80" in is_problem(answer, 422)["errors"][0]["message"]
    assert watch.longest_seconds < 0.15


async def test_an_unexpected_error_has_an_id_and_no_trace(
    local_site: InProcessApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the password is hunter2-hunter2")

    monkeypatch.setattr(local_site.services.registry, "list_servers", broken)
    with caplog.at_level(logging.ERROR, "toolyard.web"):
        answer = await local_site.client().get("/api/v1/servers")
    problem = is_problem(answer, 500)
    assert problem["id"]
    assert problem["id"] in problem["hint"]
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    record = next(record for record in caplog.records if problem["id"] in record.getMessage())
    assert record.exc_info is not None
    assert (await local_site.client().get("/api/v1/status")).status == 200


async def test_a_person_in_a_browser_gets_a_page(local_site: InProcessApp) -> None:
    answer = await local_site.client().get("/ui/nothing-here", headers={"Accept": "text/html"})
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/html")


def every_error() -> list[type[ToolyardError]]:
    error_classes: list[type[ToolyardError]] = [ToolyardError]
    for each in error_classes:
        error_classes += each.__subclasses__()
    rooms = (errors, auth_errors, people_errors, registry_errors, store_errors, chat_errors, model_errors)
    homes = {each.__name__ for each in rooms}
    return sorted(
        {each for each in error_classes if each.__module__ in homes}, key=lambda each: each.__qualname__
    )


@pytest.mark.parametrize("kind", every_error(), ids=lambda each: each.__name__)
def test_every_error_has_a_status(kind: type[ToolyardError]) -> None:
    row = next(PROBLEM_KINDS[each] for each in kind.__mro__ if each in PROBLEM_KINDS)
    assert 400 <= row.status <= 599
    if issubclass(kind, errors.ServerError):
        assert row.status not in (401, 403), "these speak of the caller's own sign-in"


def test_a_busy_server_says_when_to_come_back() -> None:
    problem, headers = describe_error(errors.Throttled("busy", retry_after=6.2))
    assert (problem.status, headers) == (503, {"Retry-After": "7"})
    error = errors.RpcError(-32602, "bad arguments", {"why": "x"})
    error.server = "one"
    reported_error = describe_error(error)[0]
    assert (reported_error.server, reported_error.code, reported_error.detail) == (
        "one",
        -32602,
        "bad arguments (code -32602)",
    )
    assert reported_error.data == '{"why": "x"}'
    assert find_problem_kind(auth_errors.SignInEnded("over")).type_suffix == "sign-in-needed"
