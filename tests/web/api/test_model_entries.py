"""``/api/v1/model-entries``: models that admins add, who may use them, and addresses that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import HttpClient, HttpReply, InProcessApp, Opening

ENTRIES = "/api/v1/model-entries"
KEY = "sk-a-very-secret-key-0123456789"


def entry(url: str, **more: Any) -> dict[str, Any]:
    """A model at a loopback address, which an admin has to allow."""
    return {
        "name": "fake",
        "provider": "openai",
        "model": "fake-1",
        "base_url": f"{url}/v1",
        "private_addresses": True,
        "api_key": "good",
        **more,
    }


async def names(client: HttpClient) -> list[str]:
    return [each["id"] for each in (await client.get("/api/v1/models")).json["items"]]


async def add(client: HttpClient, **values: Any) -> dict[str, Any]:
    answer = await client.post(ENTRIES, values)
    assert answer.status == 201, answer.text
    return answer.json


async def finish_turn(client: HttpClient, text: str, **options: Any) -> list[dict[str, Any]]:
    """Start a chat, wait for the end of its first turn, and return the events."""
    chat = (await client.post("/api/v1/chats", options)).json["id"]
    assert (await client.post(f"/api/v1/chats/{chat}/messages", {"text": text})).status == 202
    async with asyncio.timeout(60):
        while True:
            events = (await client.get(f"/api/v1/chats/{chat}/events?limit=500")).json["items"]
            if any(each["kind"] == "end" for each in events):
                return events
            await asyncio.sleep(0.02)


# Adding, testing, using.


async def test_an_added_model_answers_at_once_and_costs_the_entered_price(
    open_site: Opening, model_program: ListeningProgram
) -> None:
    team = await open_site({}, people_mode="password", chat_titles=False)
    root, ann = await team.person("root", "admin"), await team.person("ann")
    assert await names(ann.token) == []
    model_response = await add(
        root.token, **entry(model_program.url, input_price=1_000_000.0, output_price=0.0)
    )
    assert "good" not in str(model_response)
    assert (model_response["has_api_key"], model_response["revision"], model_response["origin"]) == (
        True,
        1,
        None,
    )
    response = await root.token.post(f"{ENTRIES}/fake/test")
    assert response.status == 200, response.text
    assert "OK" in response.json["answer"]
    assert response.json["seconds"] > 0
    models = (await ann.token.get("/api/v1/models")).json
    assert (await names(ann.token), models["default"]) == (["fake"], "fake")
    events = await finish_turn(ann.token, "say Hello")
    (usage,) = [each["body"] for each in events if each["kind"] == "usage"]
    assert usage["cost"] == usage["input"] > 0
    await root.token.patch(f"{ENTRIES}/fake", {"label": "The fake one"})
    await root.token.delete(f"{ENTRIES}/fake")
    log = (await root.token.get("/api/v1/audit")).json["items"]
    actions = [(each["action"], each["target"]) for each in log if each["action"].startswith("model.")]
    assert sorted(actions) == sorted(
        [(f"model.{action}", "fake") for action in ("add", "delete", "edit", "request", "test")]
    )
    async with asyncio.timeout(30):
        while not (spent := await root.token.get("/api/v1/usage?group=model&everyone=true")).json["items"]:
            await asyncio.sleep(0.02)
    assert [(each["key"], each["cost"]) for each in spent.json["items"]] == [("fake", usage["cost"])]


async def test_only_admins_see_and_change_entries(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    for method, path in (
        ("GET", ""),
        ("POST", ""),
        ("GET", "/x"),
        ("PATCH", "/x"),
        ("DELETE", "/x"),
        ("POST", "/x/test"),
    ):
        body = {} if method in ("POST", "PATCH") else None
        assert (await ann.token.ask(method, ENTRIES + path, body)).status == 403


async def test_the_default_is_one_model_that_the_person_may_use(password_site: InProcessApp) -> None:
    root, ann = await password_site.person("root", "admin"), await password_site.person("ann")
    await add(root.token, name="a", provider="ollama", model="a")
    await add(root.token, name="b", provider="ollama", model="b", is_default=True, audience="admins")
    await add(root.token, name="c", provider="ollama", model="c")
    assert (await root.token.get("/api/v1/models")).json["default"] == "b"
    assert (await ann.token.get("/api/v1/models")).json["default"] == "a"
    assert (await root.token.patch(f"{ENTRIES}/c", {"is_default": True})).json["is_default"]
    items = (await root.token.get(ENTRIES)).json["items"]
    assert [each["name"] for each in items if each["is_default"]] == ["c"]


async def test_users_without_access_to_a_model_neither_see_nor_call_it(
    open_site: Opening, model_program: ListeningProgram
) -> None:
    keys = {"openai_api_key": "the operator's", "google_api_key": "the operator's"}
    team = await open_site({}, people_mode="password", **keys)
    root, ann, bob = [await team.person(*each) for each in (("root", "admin"), ("ann",), ("bob",))]
    url = model_program.url
    await add(root.token, **entry(url, name="all"))
    await add(root.token, **entry(url, name="boss", label="For the board", audience="admins"))
    await add(root.token, **entry(url, name="anns", audience="people", people=[ann.user.id]))
    await add(root.token, name="own", provider="openai", model="gpt-x", audience="admins")
    await add(root.token, name="pro", provider="google", model="gemini-x", audience="admins")
    assert await names(root.token) == ["all", "boss", "own", "pro"]
    assert await names(ann.token) == ["all", "anns"]
    assert await names(bob.token) == ["all"]
    page = (await bob.browser.get("/ui/chat")).text
    assert "all" in page
    assert "boss" not in page
    chat = (await bob.token.post("/api/v1/chats", {"model": "all"})).json["id"]
    # The provider's key of the settings is no way around the audience: openai:gpt-x is the model "own", by
    # whichever API and in any spelling that the provider accepts.
    spellings = ("openai:gpt-x", "openai-responses:gpt-x", "openai:GPT-X", "google:models/gemini-x")
    for hidden in ("boss", "anns", "own", *spellings):
        for response in (
            await bob.token.post("/api/v1/chats", {"model": hidden}),
            await bob.token.patch(f"/api/v1/chats/{chat}", {"model": hidden}),
        ):
            assert response.status == 422
            assert response.json["type"] == "urn:toolyard:problem:no-such-model"
            assert "admin" not in response.text.replace("page Models", "")
    # Nor does a shared agent that names it tell its label.
    shared_response = await root.token.post("/api/v1/agents", {"name": "a", "model": "boss", "shared": True})
    for path in ("/ui/agents", f"/ui/agents/{shared_response.json['stored_id']}"):
        assert "For the board" in (await root.browser.get(path)).text, path
        assert "For the board" not in (await bob.browser.get(path)).text, path
    # Losing access ends with the next turn, also of a chat that had the model.
    own = (await ann.token.post("/api/v1/chats", {"model": "anns"})).json["id"]
    await root.token.patch(f"{ENTRIES}/anns", {"people": [bob.user.id]})
    assert await names(ann.token) == ["all"]
    assert (await ann.token.post(f"/api/v1/chats/{own}/messages", {"text": "say a"})).status == 422


async def test_a_model_of_a_file_wins_and_the_row_is_shown_as_overridden(
    open_site: Opening, model_program: ListeningProgram
) -> None:
    file_models = {"fake": {"model": "ollama:of-the-file"}}
    team = await open_site({}, people_mode="password", models=file_models)
    root = await team.person("root", "admin")
    await add(root.token, **entry(model_program.url, audience="admins"))
    items = (await root.token.get(ENTRIES)).json["items"]
    assert [(each["name"], each["origin"], each["overridden"]) for each in items] == [
        ("fake", "overrides", False),
        ("fake", None, True),
    ]
    (item,) = (await root.token.get("/api/v1/models")).json["items"]
    assert item["provider"] == "ollama"
    ann = await team.person("ann")
    assert await names(ann.token) == ["fake"]


# Keys.


async def test_a_key_is_never_returned_and_goes_to_the_address_that_it_was_entered_for(
    password_site: InProcessApp, model_program: ListeningProgram
) -> None:
    root = await password_site.person("root", "admin")
    request_hosts = list[str]()
    async with listening(lambda request: _note(request, request_hosts)) as other:
        await add(root.token, **entry(model_program.url, api_key=KEY))
        at = f"{ENTRIES}/fake"
        assert KEY not in (await root.token.get(ENTRIES)).text + (await root.token.get(at)).text
        response = await root.token.patch(at, {"base_url": f"{other}/v1"})
        assert response.status == 422
        assert [each["field"] for each in response.json["errors"]] == ["api_key"]
        assert (await root.token.get(at)).json["base_url"] == f"{model_program.url}/v1"
        # The same host keeps it.
        moved_response = await root.token.patch(at, {"base_url": f"{model_program.url}/v2"})
        assert moved_response.json["has_api_key"]
        changed_response = await root.token.patch(at, {"base_url": f"{other}/v1", "api_key": ""})
        assert (changed_response.status, changed_response.json["has_api_key"]) == (200, False)
        await root.token.post(f"{at}/test")
        await root.token.patch(at, {"api_key": "another"})
        await root.token.post(f"{at}/test")
    assert request_hosts == ["Bearer no-key", "Bearer another"]
    entries = password_site.services.database.audit.entries(before=None, limit=50, action=None, actor=None)
    log = "".join(str(each.details) for each in await entries)
    assert "another" not in log
    assert KEY not in log


async def test_a_key_may_be_in_a_variable_for_keys_of_models(
    password_site: InProcessApp, model_program: ListeningProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await password_site.person("root", "admin")
    by_variable = entry(model_program.url, api_key=None, key_variable="TOOLYARD_MODEL_KEY_FAKE")
    model_response = await add(root.token, **by_variable)
    assert (model_response["has_api_key"], model_response["key_variable"]) == (
        False,
        "TOOLYARD_MODEL_KEY_FAKE",
    )
    unset = await root.token.post(f"{ENTRIES}/fake/test")
    assert unset.status == 502
    assert "TOOLYARD_MODEL_KEY_FAKE is not set" in unset.json["detail"]
    (item,) = (await root.token.get(ENTRIES)).json["items"]
    assert item["problem"] == "the variable TOOLYARD_MODEL_KEY_FAKE is not set"
    monkeypatch.setenv("TOOLYARD_MODEL_KEY_FAKE", "good")
    assert (await root.token.post(f"{ENTRIES}/fake/test")).status == 200
    # Any other secret of the process could be sent to an address of the admin's choice.
    for variable in ("TOOLYARD_SECRET_KEY", "OPENAI_API_KEY", "PATH"):
        response = await root.token.patch(f"{ENTRIES}/fake", {"key_variable": variable})
        assert response.status == 422
    own = {"name": "own", "provider": "openai", "model": "gpt-x", "key_variable": "OPENAI_API_KEY"}
    assert (await root.token.post(ENTRIES, own)).status == 201


# Input that is not valid, and edits at the same time.


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "no spaces"}, "name"),
        ({"name": "a:b"}, "name"),
        ({"provider": "nobody"}, "provider"),
        ({"model": " "}, "model"),
        ({"model": "a\nb"}, "model"),
        ({"base_url": "ftp://host/v1"}, "base_url"),
        ({"base_url": "http://user:word@host/v1"}, "base_url"),
        ({"base_url": "https://host.example/v1?api_key=sk-3b1f9a7c52"}, "base_url"),
        ({"base_url": "http://127.0.0.1:1/v1", "private_addresses": False}, "base_url"),
        ({"base_url": "http://localhost:1/v1", "private_addresses": False}, "base_url"),
        ({"base_url": "http://[::1]:1/v1", "private_addresses": False}, "base_url"),
        ({"base_url": "http://169.254.169.254/v1", "private_addresses": False}, "base_url"),
        ({"api_key": "two words"}, "api_key"),
        ({"base_url": None, "api_key": None}, "api_key"),
        ({"audience": "people"}, "people"),
        ({"audience": "people", "people": ["nobody"]}, "people[0]"),
        ({"input_price": -1.0, "output_price": 1.0}, "input_price"),
        ({"input_price": 1.0}, "output_price"),
        ({"context": 1}, "context"),
        ({"temperature": 99.0}, "temperature"),
    ],
)
async def test_input_that_is_not_valid_names_its_field(
    local_site: InProcessApp, change: dict[str, Any], field: str
) -> None:
    response = await local_site.client().post(ENTRIES, entry("http://127.0.0.1:1", **change))
    assert response.status == 422
    assert field in [each["field"] for each in response.json["errors"]], response.text
    assert (await local_site.client().get(ENTRIES)).json["items"] == []


async def test_a_name_is_taken_once_and_derived_from_the_model(local_site: InProcessApp) -> None:
    client = local_site.client()
    model = {"provider": "ollama", "model": "Qwen/Qwen3:8b"}
    assert (await add(client, **model))["name"] == "Qwen3-8b"
    again = await client.post(ENTRIES, model)
    assert (again.status, again.json["type"]) == (409, "urn:toolyard:problem:taken")


async def test_of_two_edits_of_one_version_the_second_gets_the_newer_one(
    local_site: InProcessApp,
) -> None:
    client = local_site.client()
    model_response = await add(client, name="m", provider="ollama", model="one", api_key=KEY)
    first = await client.patch(f"{ENTRIES}/m", {"model": "two", "revision": model_response["revision"]})
    assert (first.status, first.json["revision"]) == (200, 2)
    second = await client.patch(f"{ENTRIES}/m", {"model": "three", "revision": model_response["revision"]})
    assert (second.status, second.json["type"]) == (409, "urn:toolyard:problem:outdated")
    assert second.json["current"] == first.json
    assert KEY not in second.text
    assert (await client.get(f"{ENTRIES}/m")).json["model"] == "two"


# Addresses that misbehave.


def _note(request: web.Request, request_hosts: list[str]) -> web.Response:
    request_hosts.append(request.headers.get("authorization", ""))
    return web.Response(status=400, text="{}", content_type="application/json")


@contextlib.asynccontextmanager
async def listening(
    answer: Callable[[web.Request], web.StreamResponse | Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    """A server that answers everything so."""

    async def handle(request: web.Request) -> web.StreamResponse:
        reply_body = answer(request)
        return reply_body if isinstance(reply_body, web.StreamResponse) else await reply_body

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _test_failing_model(client: HttpClient, url: str, **more: Any) -> HttpReply:
    await add(client, **entry(url, **more))
    response = await client.post(f"{ENTRIES}/fake/test")
    assert response.status == 502, response.text
    assert response.json["hint"]
    assert len(response.text) < 2_000
    assert "good" not in response.text
    return response


async def test_a_wrong_key_says_so(local_site: InProcessApp, model_program: ListeningProgram) -> None:
    response = await _test_failing_model(local_site.client(), model_program.url, api_key=KEY)
    assert "refused the key" in response.json["detail"]
    assert KEY not in response.text


async def test_an_address_without_a_server_says_so(local_site: InProcessApp) -> None:
    response = await _test_failing_model(local_site.client(), "http://127.0.0.1:9")
    assert response.json["detail"].startswith("cannot reach 127.0.0.1:9")


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: web.Response(text="<html>Sign in</html>", content_type="text/html"),
        lambda _: web.Response(body=b"x" * 5_000_000),
        lambda _: web.Response(body=b"x" * 5_000_000, content_type="text/event-stream"),
        lambda _: web.Response(body=b"data: {" + b"x" * 5_000_000, content_type="text/event-stream"),
        lambda _: web.Response(status=500, text="x" * 5_000_000),
    ],
    ids=["html", "garbage", "garbage-events", "endless-event", "long-error"],
)
async def test_an_answer_that_is_none_of_a_model_is_an_error_in_few_words(
    local_site: InProcessApp, answer: Callable[[web.Request], web.Response]
) -> None:
    async with listening(answer) as url:
        await _test_failing_model(local_site.client(), url)


async def test_a_redirect_to_another_host_is_not_followed(local_site: InProcessApp) -> None:
    request_hosts = list[str]()
    async with (
        listening(lambda request: _note(request, request_hosts)) as other,
        listening(lambda _: web.Response(status=307, headers={"location": f"{other}/v1"})) as url,
    ):
        response = await _test_failing_model(local_site.client(), url)
    assert "redirects to another address" in response.json["detail"]
    assert request_hosts == []


async def test_an_address_that_hangs_ends_the_test(local_site: InProcessApp) -> None:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    async with listening(hang) as url:
        client, models = local_site.client(), local_site.services.models
        await add(client, **entry(url))
        await models.preload("fake")
        with pytest.raises(Exception, match="sent nothing"):
            await models.test("fake", timeout=1.0)
        release.set()


async def test_a_name_that_resolves_to_a_private_address_is_refused_at_the_socket(
    local_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_hosts = list[str]()

    async def resolve(*_: object) -> list[dict[str, Any]]:
        return [{"host": "127.0.0.1"}]

    monkeypatch.setattr("toolyard.net.guarded_connector.DaemonThreadResolver.resolve", resolve)
    async with listening(lambda request: _note(request, request_hosts)) as url:
        port = url.rpartition(":")[2]
        rebound = f"http://models.example:{port}"
        response = await _test_failing_model(local_site.client(), rebound, private_addresses=False)
    assert "private" in response.json["detail"]
    assert "allow private network addresses" in response.json["hint"]
    assert request_hosts == []


# Replicas, and the terminal.


async def test_a_change_applies_on_every_replica(
    open_site: Opening,
    database_url: str | None,
    tmp_path: Path,
    model_program: ListeningProgram,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    options = {"data": tmp_path / "data", "secret_key": "a key for tests, long enough"}
    if database_url is not None:
        options["database_url"] = database_url
    one, other = await open_site({}, **options), await open_site({}, **options)
    await add(one.client(), **entry(model_program.url))

    def choices() -> list[str]:
        from toolyard.types.account import LOCAL_PRINCIPAL

        return [each.id for each in other.services.models.choices_for(LOCAL_PRINCIPAL)]

    await wait_until(lambda: choices() == ["fake"], 30)
    events = await finish_turn(other.client(), "say Hello", model="fake")
    assert any(each["kind"] == "usage" for each in events)
    assert (await one.client().delete(f"{ENTRIES}/fake")).status == 204
    await wait_until(lambda: choices() == [], 30)


async def test_a_listed_model_with_a_slash_in_its_name_is_tested(
    open_site: Opening, model_program: ListeningProgram
) -> None:
    url = f"{model_program.url}/v1"
    local = await open_site({}, model="openai:fake/1", model_base_url=url, model_api_key="good")
    answer = await local.client().post(f"{ENTRIES}/openai:fake/1/test")
    assert answer.status == 200, answer.text
    assert (await local.client().post(f"{ENTRIES}/none/test")).status == 404


async def test_a_name_that_cannot_be_stored_is_not_found(open_site: Opening) -> None:
    client = (await open_site()).client()
    for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        answer = await client.ask(method, f"{ENTRIES}/%00", body)
        assert answer.status == 404, answer.text
