"""One person reaches nothing of another's: a walk over every route of the OpenAPI document, with both.

Every operation has to be in one of the lists below; one that is in none fails the walk.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.archives import join_files
from tests.web.chat.chat_client import begin, open_stream, results_server, run, wait_for_end

from toolyard.results.result_store import StoredResult, make_handle
from toolyard.types.agent import Agent
from toolyard.types.approval import PageQuestion
from toolyard.types.chat import Question
from toolyard.types.server import Trust
from toolyard.web import ui
from toolyard.web.routes import list_routes

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening

ADMINS_ONLY = {
    *("add_server", "edit_server", "delete_server", "enable_server", "disable_server", "preview_server"),
    *("list_issuers", "confirm_server_issuer", "add_known_server"),
    *("accept_proposal", "decline_proposal"),
    *("restart_server", "list_users", "add_user", "get_user", "edit_user", "delete_user", "invite_user"),
    *("list_audit", "export_audit", "list_server_changes", "accept_server_changes"),
    *("list_model_entries", "add_model", "get_model", "edit_model", "delete_model", "test_model"),
}
"""403 for everybody else."""
ANOTHERS = {
    *("get_instance", "edit_instance", "delete_instance", "enable_instance", "disable_instance"),
    *("test_instance", "connect_instance", "list_instance_tools", "delete_token"),
    *("end_session", "delete_proposal"),
    *("list_instance_changes", "accept_instance_changes"),
    *("get_tool", "explain_tool", "call_tool", "sign_in_to_server", "sign_out_of_server"),
    *("get_chat", "edit_chat", "delete_chat", "list_chat_tools", "list_chat_events", "stream_chat"),
    *("send_message", "run_chat_tool", "retry_turn", "stop_turn", "answer_question"),
    *("list_turns", "edit_message", "retry_chat_turn", "choose_turn", "delete_turn"),
    *("insert_prompt", "insert_resource"),
    *("get_chat_result", "get_chat_media", "export_chat", "answer_approval", "revoke_grant"),
    *("get_attachment", "delete_attachment", "answer_page_question"),
    *("get_agent", "change_agent", "delete_agent", "export_agent"),
}
"""404 with what is another person's, and the same words for what does not exist."""
OWN = {
    *("get_status", "list_servers", "get_server", "list_instances", "propose_slug", "create_instance"),
    *("list_tools", "list_tokens", "make_token", "get_me", "stream_events"),
    *("list_chats", "create_chat", "list_models", "list_approvals", "list_grants"),
    *("list_pending_items", "list_questions", "export_my_data"),
    *("list_catalog", "list_proposals", "create_proposal"),
    *("create_agent", "import_agents", "list_agents", "list_agent_tools"),
    *("list_sessions", "end_sessions", "get_usage"),
    *("upload_attachment", "list_prompts", "list_resources"),
}
"""They work, and show nothing of anybody else."""
BROWSERS_ONLY = {"delete_token", "make_token", "list_sessions", "end_session", "end_sessions"}
"""403 for every token."""
BODIES: dict[str, Any] = {
    "add_server": {"name": "N", "url": "https://x.example"},
    "edit_server": {"name": "N"},
    "add_known_server": {},
    "create_proposal": {"catalog_id": "linear", "reason": "For the release"},
    "accept_proposal": {},
    "decline_proposal": {},
    "edit_instance": {"name": "mine now"},
    "call_tool": {"arguments": {}},
    "add_user": {"name": "mallory"},
    "edit_user": {"role": "admin"},
    "make_token": {"name": "t", "scope": {"rights": ["read"]}},
    "create_chat": {},
    "edit_chat": {"title": "mine now"},
    "send_message": {"text": "Hello"},
    "edit_message": {"text": "Hello"},
    "run_chat_tool": {"name": "demo_weekday", "arguments": {"date": "2026-07-28"}},
    "insert_prompt": {"server": "mcp_bobs-own", "name": "greeting"},
    "insert_resource": {"server": "mcp_bobs-own", "name": "test://static-text"},
    "answer_question": {"action": "accept", "content": {"city": "Oslo"}},
    "answer_approval": {"yes": True},
    "answer_page_question": {"action": "accept", "content": {"city": "Oslo"}},
    "create_agent": {"name": "Hers"},
    "import_agents": {"text": "## Also hers\n\n---\ndescription: hers\n---\nHelp."},
    "change_agent": {"name": "Mine now", "version": 1},
    "add_model": {"name": "m", "model": "openai:m"},
    "edit_model": {"model": "openai:n"},
    "accept_server_changes": {"keys": ["x"]},
    "accept_instance_changes": {"keys": ["x"]},
}
OPEN = {
    *("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json"),
    *("/.well-known/oauth-protected-resource/{path}", "/.well-known/oauth-protected-resource"),
}
"""Addresses beside operations and pages: they have nothing of anybody."""
FILE: dict[str, Any] = {"data": b"hers", "headers": {"Content-Type": "application/octet-stream"}}
SECRET = "the-value-that-bob-gave"
AGENT = Agent("reader", "Reader")
PLANS = "what-bob-plans"
PAGE_QUESTION = "fedcba987654321001234567"


@dataclass
class BobsChat:
    """What Bob has said, run and been asked."""

    chat: str
    result: int
    approval: str
    grant: str
    asking: str
    """A chat in which a server waits for a reply of his."""
    question: str
    attachment: str

    @classmethod
    async def begin(cls, bob: Any) -> BobsChat:
        chat, bobs_chat = await begin(bob, title=PLANS), await begin(bob, title=PLANS)
        turn = await run(bob, chat, "chat_media", mime="image/png", data="aGVsbG8=")
        result = next(each for each in await wait_for_end(bob, chat, turn - 1) if each.name == "result")
        turn = await run(bob, chat, "chat_write", text=PLANS)
        async with open_stream(bob, chat, after=turn) as stream:
            first = (await stream.until("ask")).body["approval"]
            remember = {"seconds": 3600, "arguments": "these", "here": False}
            answer = await bob.post(f"/api/v1/approvals/{first}", {"yes": True, "remember": remember})
            assert answer.status == 204, answer.text
            await stream.until("end")
            await run(bob, chat, "chat_write", text="something else")
            approval = (await stream.until("ask")).body["approval"]
        turn = await run(bob, bobs_chat, "chat_ask")
        async with open_stream(bob, bobs_chat, after=turn) as stream:
            question = (await stream.until("question")).body["id"]
        grant = (await bob.get("/api/v1/grants")).json["items"][0]["id"]
        media = await bob.get(f"/api/v1/chats/{chat}/results/{result.seq}/media/0")
        assert media.body == b"hello", "Bob's things must be alive, or the walk proves nothing"
        file = {**FILE, "data": PLANS.encode()}
        attachment = (await bob.post(f"/api/v1/attachments?name={PLANS}", **file)).json["id"]
        assert (await bob.get(f"/api/v1/attachments/{attachment}")).text == PLANS
        return cls(chat, result.seq, approval, grant, bobs_chat, question, attachment)


@dataclass
class TwoUserSite:
    """Ada walks; Bob has things."""

    team: Any
    root: Any
    ada: Any
    bob: Any
    server: str
    instance: str
    token: str
    session: str
    agent: str
    proposal: str
    handle: str
    """Of a stored result."""
    talk: BobsChat

    @property
    def of_bob(self) -> list[str]:
        """Texts that nobody else may ever see."""
        bob, talk = self.bob, self.talk
        secrets = [talk.chat, talk.asking, talk.approval, talk.grant, talk.question, talk.attachment, PLANS]
        secrets += [PAGE_QUESTION, "Bobs agent", self.proposal, self.handle]
        secrets += ["bobs-own", "Bob's connection", SECRET, "bob@work"]
        return [self.instance, self.token, self.session, bob.user.id, *secrets]

    def path(self, template: str, *, missing: bool = False) -> str:
        if "/servers/" in template:
            known_server = "demo" if template.endswith("/restart") else self.server
        elif "/instances/" in template:
            known_server = self.instance
        elif "/tokens/" in template:
            known_server = self.token
        elif "/sessions/" in template:
            known_server = self.session
        elif template.endswith("/agents/{id}/tools"):
            return template.replace("{id}", AGENT.id)
        elif "/agents/" in template:
            known_server = self.agent
        elif "/chats/" in template:
            known_server = self.talk.asking if "/questions/" in template else self.talk.chat
        elif "/attachments/" in template:
            known_server = self.talk.attachment
        elif "/proposals/" in template:
            known_server = self.proposal
        elif template.startswith("/api/v1/questions/"):
            known_server = PAGE_QUESTION
        elif "/approvals/" in template:
            known_server = self.talk.approval
        elif "/grants/" in template:
            known_server = self.talk.grant
        else:
            known_server = self.bob.user.id
        template = template.replace("{seq}", str(self.talk.result)).replace("{n}", "0")
        template = template.replace("{turn}", "1")
        template = template.replace("{question}", self.talk.question)
        tool = "mcp_bobs-0wn__echo" if missing else "mcp_bobs-own__echo"
        return template.replace("{name}", tool).replace(
            "{id}", "0" * len(known_server) if missing else known_server
        )


@pytest.fixture
async def two_user_site(
    open_site: Opening, demo: dict[str, Any], hostile_http: ListeningProgram
) -> TwoUserSite:
    servers = {"demo": demo, "chat": results_server()}
    team = await open_site(servers, people_mode="password", write_tools="ask", agents=[AGENT])
    root, ada, bob = (
        await team.person("root", "admin"),
        await team.person("ada"),
        await team.person("bob@work"),
    )
    body = {
        "name": "S",
        "url": f"{hostile_http.url}/good/api-isolation",
        "private_addresses": True,
        "choices": [{"kind": "header", "key": "X-Key"}],
    }
    server = (await root.token.post("/api/v1/servers", body)).json["id"]
    instance_draft = {"server_id": server, "slug": "bobs-own", "name": "Bob's connection", "value": SECRET}
    instance = (await bob.token.post("/api/v1/instances", instance_draft)).json["id"]
    token = (await bob.token.get("/api/v1/tokens")).json["items"][0]["id"]
    tools = await bob.token.get("/api/v1/tools")
    assert "mcp_bobs-own__echo" in tools.text, "Bob's things must be alive, or the walk proves nothing"
    session = (await bob.browser.get("/api/v1/sessions")).json["items"][0]["id"]
    question, end = Question(id=PAGE_QUESTION, server="demo", kind="form", message=PLANS), time.time() + 300
    page_question = PageQuestion(PAGE_QUESTION, bob.user.id, ("ask (editor)",), question, time.time(), end)
    await team.services.database.questions.add(page_question, 20)
    assert PLANS in (await bob.token.get("/api/v1/questions")).text
    own = {"name": "Bobs agent", "prompt": PLANS}
    agent = (await bob.token.post("/api/v1/agents", own)).json["stored_id"]
    assert PLANS in (await bob.token.get(f"/api/v1/agents/{agent}")).text
    proposal_draft = {"catalog_id": "linear", "reason": PLANS}
    proposal = (await bob.token.post("/api/v1/proposals", proposal_draft)).json["id"]
    stored_result = StoredResult(PLANS, Trust.TRUSTED, "demo")
    handle = make_handle(stored_result)
    await team.services.core.call_path.result_store(bob.user.principal).save(handle, stored_result)
    assert PLANS in (await bob.browser.get(f"/ui/results/{handle}")).text
    talk = await BobsChat.begin(bob.token)
    return TwoUserSite(team, root, ada, bob, server, instance, token, session, agent, proposal, handle, talk)


async def operations(client: Any) -> list[tuple[str, str, str]]:
    document = (await client.get("/api/v1/openapi.json")).json
    assert document["paths"]
    return [
        (operation["operationId"], method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_operation_is_in_one_list(password_site: InProcessApp) -> None:
    operation_ids = {name for name, _, _ in await operations(password_site.client())}
    pages = {each.path.replace(":path", "") for each in ui.router.build()}
    paths = {path for _, _, path in await operations(password_site.client())}
    others = {each.path.replace(":path", "") for each in list_routes(password_site.app)} - pages - paths
    assert others == OPEN
    assert operation_ids == ADMINS_ONLY | ANOTHERS | OWN
    assert len(ADMINS_ONLY) + len(ANOTHERS) + len(OWN) == len(operation_ids)


@pytest.mark.parametrize("way", ["token", "browser"])
async def test_a_walk_over_every_route_reaches_nothing_of_anybody_else(
    two_user_site: TwoUserSite, way: str
) -> None:
    client = getattr(two_user_site.ada, way)
    before = await list_bobs_things(two_user_site)
    # Signing out everywhere ends the walk of a browser.
    for name, method, template in sorted(
        await operations(client), key=lambda each: each[0] == "end_sessions"
    ):
        body = BODIES.get(name)
        if name == "create_instance":
            body = {"server_id": two_user_site.server, "value": "hers"}
        if name == "stream_events":
            assert not list_leaks(two_user_site, await first_events(client)), name
            continue
        query = "?url=https://x.example" if name == "propose_slug" else ""
        options = FILE if name == "upload_attachment" else {}
        answer = await client.ask(method, two_user_site.path(template) + query, body, **options)
        if name == "export_my_data":
            answer = replace(answer, body=join_files(answer.body))
        failure_text = f"{name}: {answer.status} {answer.text[:300]}"
        if name in ADMINS_ONLY:
            assert answer.status == 403, failure_text
        elif name in ANOTHERS:
            expected = 403 if name in BROWSERS_ONLY and way == "token" else 404
            assert answer.status == expected, failure_text
            unknown = await client.ask(method, two_user_site.path(template, missing=True), body)
            assert unknown.status == answer.status, failure_text
            # Refusals quote the name that was asked for.
            other_text = answer.text.replace("mcp_bobs-own__echo", "X").replace(two_user_site.agent, "Y")
            missing = unknown.text.replace("mcp_bobs-0wn__echo", "X").replace(
                "0" * len(two_user_site.agent), "Y"
            )
            assert other_text == missing, failure_text
        elif name in BROWSERS_ONLY and way == "token":
            assert answer.status == 403, failure_text
        else:
            assert answer.status in (200, 201, 204), failure_text
        assert not list_leaks(two_user_site, answer.text.replace("mcp_bobs-own__echo", "")), failure_text
    assert await list_bobs_things(two_user_site) == before


async def test_without_an_account_access_is_refused(two_user_site: TwoUserSite) -> None:
    stranger = two_user_site.team.client()
    for name, method, template in await operations(stranger):
        body = BODIES.get(name) or (
            {"server_id": two_user_site.server} if name == "create_instance" else None
        )
        query = "?url=https://x.example" if name == "propose_slug" else ""
        answer = await stranger.ask(method, two_user_site.path(template) + query, body)
        assert answer.status == 401, f"{name}: {answer.status} {answer.text[:200]}"
        assert not list_leaks(two_user_site, answer.text)


async def test_not_even_an_admin_uses_anothers_connection(two_user_site: TwoUserSite) -> None:
    chat = f"/api/v1/chats/{two_user_site.talk.chat}"
    paths = (f"/api/v1/instances/{two_user_site.instance}", "/api/v1/tools/mcp_bobs-own__echo", chat)
    for path in (*paths, f"{chat}/events", f"{chat}/stream", f"{chat}/results/{two_user_site.talk.result}"):
        assert (await two_user_site.root.token.get(path)).status == 404
    answer = await two_user_site.root.token.post("/api/v1/tools/mcp_bobs-own__echo/call", {})
    assert answer.status == 404
    assert SECRET not in (await two_user_site.root.token.get("/api/v1/audit/export")).text


async def test_records_of_others_cannot_be_named_in_a_query_or_a_body(two_user_site: TwoUserSite) -> None:
    """The walk names it in paths. Here the caller's own chat and calls name it."""
    ada, site = two_user_site.ada.token, two_user_site
    chat, weekday = await begin(ada), "/api/v1/tools/demo_weekday"
    before = await list_bobs_things(site)

    def requests(agent: str, talk: str) -> list[tuple[str, str, Any]]:
        prompt = {"server": "demo", "name": "greeting", "chat": talk}
        return [
            *(
                ("GET", f"{path}?agent={agent}", None)
                for path in ("/api/v1/tools", weekday, f"{weekday}/why")
            ),
            ("POST", f"{weekday}/call", {"arguments": {"date": "2026-07-28"}, "agent": agent}),
            ("POST", "/api/v1/chats", {"agent": agent}),
            ("PATCH", f"/api/v1/chats/{chat}", {"agent": agent}),
            ("POST", f"/mcp/agents/{agent}", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
            *(("GET", f"/api/v1/{kind}?chat={talk}", None) for kind in ("prompts", "resources")),
            *(("POST", f"/api/v1/{kind}/insert", prompt) for kind in ("prompts", "resources")),
        ]

    of_bob = requests("bobs-agent", site.talk.chat)
    missing = requests("no-bodys-agent", "0" * 24)
    own = await site.bob.token.get("/api/v1/tools?agent=bobs-agent")
    assert own.status == 200, "Bob's agent must be found by this name, or the rest proves nothing"
    for (method, path, body), (_, other, none) in zip(of_bob, missing, strict=True):
        answer, unknown = await ada.ask(method, path, body), await ada.ask(method, other, none)
        failure_text = f"{method} {path}: {answer.status} {answer.text[:300]}"
        assert answer.status == unknown.status == 404, failure_text
        assert answer.text.replace("bobs-agent", "no-bodys-agent") == unknown.text, failure_text
    for path in ("proposals", "usage"):
        assert (await ada.get(f"/api/v1/{path}?everyone=true")).status == 403
    assert not list_leaks(site, (await ada.get(f"/api/v1/chats?q={PLANS}")).text)
    assert await list_bobs_things(site) == before


def list_leaks(two_user_site: TwoUserSite, text: str) -> list[str]:
    return [each for each in two_user_site.of_bob if each in text or json.dumps(each)[1:-1] in text]


async def first_events(client: Any) -> str:
    async with client.session.get(f"{client.url}/api/v1/events", headers=client.headers) as response:
        text = b""
        while b"event: status" not in text or not text.endswith(b"\n\n"):
            text += await response.content.readany()
        return text.decode()


async def list_bobs_things(two_user_site: TwoUserSite) -> Any:
    bob = two_user_site.bob.token
    me = (await bob.get("/api/v1/me")).json
    sessions = [
        each["id"] for each in (await two_user_site.bob.browser.get("/api/v1/sessions")).json["items"]
    ]
    items = (await bob.get("/api/v1/instances")).json["items"]
    tokens = [each["id"] for each in (await bob.get("/api/v1/tokens")).json["items"]]
    tools = [each["name"] for each in (await bob.get("/api/v1/tools")).json["items"]]
    talk = two_user_site.talk
    chats = [(await bob.get(f"/api/v1/chats/{each}")).json for each in (talk.chat, talk.asking)]
    pending_lists = [(await bob.get(f"/api/v1/{each}")).json for each in ("approvals", "grants", "questions")]
    pending_lists.append((await bob.get("/api/v1/chats")).json)
    pending_lists.append((await bob.get(f"/api/v1/attachments/{talk.attachment}")).text)
    pending_lists.append((await bob.get("/api/v1/proposals")).json)
    own = [{**each, "status": None, "updated_at": None} for each in items]
    return me, sessions, own, tokens, tools, chats, pending_lists
