"""The OpenAPI document is true: schemathesis finds nothing that it does not say."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.web.chat.chat_client import begin, results_server, run, wait_for_end

from toolyard.types.agent import Agent
from toolyard.web.problem_details import PROBLEM_KINDS

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening

EXAMPLES, SEED = os.environ.get("SCHEMATHESIS_EXAMPLES", "15"), os.environ.get("SCHEMATHESIS_SEED", "1")
"""More, for a longer search."""
CONFIG = """
[checks.not_a_server_error]
# Answers about other people's servers, which may fail. 500 and 503 would be about us.
expected-statuses = ["2xx", "3xx", "4xx", 502, 504]

[[operations]]
# Rules that no schema can tell: of several fields together, of names that look alike, of hosts.
include-operation-id = [
    "add_server", "edit_server", "create_instance", "edit_instance", "add_user", "edit_user", "make_token",
    "create_chat", "edit_chat", "send_message", "run_chat_tool", "answer_question",
    "accept_server_changes", "accept_instance_changes", "confirm_server_issuer", "add_model", "edit_model",
    "create_agent", "change_agent", "import_agents", "upload_attachment", "edit_message",
    "add_known_server", "create_proposal", "accept_proposal",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422]
"""
KNOWN_PARAMETERS = """
[[operations]]
include-operation-id = {operations}
parameters = {{ "path.{name}" = "{value}" }}
"""
RESULTS = """
[[operations]]
include-operation-id = ["get_chat_result"]
parameters = {{ "path.id" = "{chat}", "path.seq" = {seq} }}

[[operations]]
include-operation-id = ["get_chat_media"]
parameters = {{ "path.id" = "{chat}", "path.seq" = {seq}, "path.n" = 0 }}
"""


@pytest.fixture
async def big(open_site: Opening, demo: dict[str, Any], postgres_url: str) -> Any:
    """On PostgreSQL, which takes less of what people send than SQLite does."""
    settings = {"database_url": postgres_url, "secret_key": "a key for tests, long enough"}
    servers = {"demo": demo, "chat": results_server()}
    agents = [Agent("reader", "Reader", tools=("demo_*",))]
    return await open_site(servers, people_mode="password", agents=agents, **settings)


async def create_records(team: Any, admin: Any, url: str) -> str:
    """Something to find: a server, an instance of it, a person."""
    ada = await team.person("ada")
    body = {"name": "S", "url": f"{url}/good/api-schema", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    instance = (await admin.token.post("/api/v1/instances", {"server_id": server, "slug": "one"})).json["id"]
    agent = (await admin.token.post("/api/v1/agents", {"name": "Own"})).json["stored_id"]
    chat, spare = await begin(admin.token), await begin(admin.token)
    turn = await run(admin.token, chat, "chat_media", mime="image/png", data="aGVsbG8=")
    model = (await admin.token.post("/api/v1/model-entries", {"provider": "ollama", "model": "m"})).json[
        "name"
    ]
    result = next(each for each in await wait_for_end(admin.token, chat, turn - 1) if each.name == "result")
    found_operations = {
        ("id", chat): ["get_chat", "list_chat_tools", "list_chat_events", "export_chat", "retry_turn"],
        ("id", spare): ["edit_chat", "send_message", "run_chat_tool", "stop_turn"],
        ("id", server): ["get_server", "preview_server", "edit_server", "disable_server", "enable_server"],
        ("id", instance): [
            *("get_instance", "edit_instance", "test_instance", "list_instance_tools"),
            *("disable_instance", "enable_instance", "list_instance_changes", "accept_instance_changes"),
        ],
        ("id", ada.user.id): ["get_user", "edit_user", "invite_user"],
        ("id", "demo"): ["restart_server", "list_server_changes", "accept_server_changes"],
        ("id", "reader"): ["list_agent_tools", "get_agent", "export_agent"],
        ("id", agent): ["change_agent"],
        ("name", model): ["get_model", "edit_model"],
        ("name", "demo_weekday"): ["get_tool", "explain_tool", "call_tool"],
    }
    results = RESULTS.format(chat=chat, seq=result.seq)
    return results + "".join(
        KNOWN_PARAMETERS.format(operations=operations, name=name, value=value)
        for (name, value), operations in found_operations.items()
    )


async def schemathesis(team: Any, admin: Any, config: str, folder: Path, *phases: str) -> None:
    """Run all its checks; whatever it finds fails the test."""
    (folder / "schemathesis.toml").write_text(config)
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("st")),
        *("run", f"{team.url}/api/v1/openapi.json", "--no-color", "--phases", ",".join(phases)),
        *("--header", f"Authorization: Bearer {admin.secret}"),
        *("--checks", "all", "--max-examples", EXAMPLES, "--seed", SEED, "--request-timeout", "30"),
        # A stream has no end.
        *("--exclude-operation-id", "stream_events", "--exclude-operation-id", "stream_chat"),
        # It would send a request to the provider of a model that was made up.
        *("--exclude-operation-id", "test_model", "--exclude-operation-id", "add_known_server"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_schemathesis_finds_nothing_route_by_route(
    big: Any, hostile_http: ListeningProgram, tmp_path: Path
) -> None:
    admin = await big.person("root", "admin")
    config = CONFIG + await create_records(big, admin, hostile_http.url)
    await schemathesis(big, admin, config, tmp_path, "examples", "coverage", "fuzzing")


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_schemathesis_finds_nothing_from_route_to_route(
    password_site: InProcessApp, tmp_path: Path
) -> None:
    admin = await password_site.person("root", "admin")
    await schemathesis(password_site, admin, CONFIG, tmp_path, "stateful")


async def test_the_document_says_everything(password_site: InProcessApp) -> None:
    document = (await password_site.client().get("/api/v1/openapi.json")).json
    assert document["openapi"].startswith("3.1")
    names: list[str] = []
    for path, methods in document["paths"].items():
        assert path.startswith("/api/v1/")
        for operation in methods.values():
            names.append(operation["operationId"])
            assert operation["summary"]
            assert operation["description"]
            assert {"401", "403", "422"} <= set(operation["responses"])
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"]
    assert len(set(names)) == len(names)
    assert all(name.replace("_", "").isalpha() for name in names)
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        assert schema.get("description"), f"{name} says nothing"
        if name.endswith(("Given", "Changes")) and name not in ("ChoiceGiven", "ScopeGiven"):
            assert schema["examples"], f"{name} has no example"
    assert not [name for name in schemas if "HTTPValidationError" in name]


async def test_every_route_and_every_problem_is_in_the_documentation(password_site: InProcessApp) -> None:
    document = (await password_site.client().get("/api/v1/openapi.json")).json
    page = (Path(__file__).parents[3] / "docs/api.md").read_text()
    routes = {
        f"| `{method.upper()} {path.removeprefix('/api/v1')}` | {operation['summary']} |"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    documented_routes = {
        line for line in page.splitlines() if line.startswith("| `") and " /" in line.split("`")[1]
    }
    assert documented_routes == routes
    for kind in PROBLEM_KINDS.values():
        rows = [
            line for line in page.splitlines() if line.startswith("| `") and f"`{kind.type_suffix}`" in line
        ]
        assert [row for row in rows if f"| {kind.status} |" in row], kind
