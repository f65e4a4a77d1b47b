"""Demo data for screenshots: servers of every kind and instances in every state."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.demo_chats import fill_chats, fill_screenshot_chat

from toolyard.accounts import AccountService
from toolyard.config.settings.table import Settings
from toolyard.registry import Registry
from toolyard.store import Database
from toolyard.types.account import Right, TokenScope
from toolyard.types.audit import AuditEntry
from toolyard.types.registry import ChoiceDraft, InstanceDraft, InstanceState, ServerDraft

ROOT = Path(__file__).parent.parent
OAUTH = ChoiceDraft("oauth")


AGENTS = """## Librarian
---
description: Answers questions about libraries, from their own documentation.
tools: [mcp_docs__*, web_fetch]
---
You answer questions about programming libraries. Look them up before you answer, and name the page that you
read.

## Everything
---
description: Has every tool that you have.
---

## Tidy one
---
description: Counts, and is not much good for anything else.
model: anthropic:claude-haiku-4-5
temperature: 0.2
tools: [demo_*, '!demo_slow', 'old_*']
max_steps: 5
---
Count what you are given. Say nothing else.
"""


MODELS = """[models.fast]
label = "GPT-5 mini"
model = "openai:gpt-5-mini"
api_key = "not-a-key"

[models.local]
label = "Qwen, on this machine"
model = "openai:qwen3"
base_url = "http://127.0.0.1:11434/v1"
api_key = "none"
"""


def write_files(data: Path) -> None:
    """Write agents and the operator's servers: one that works, one that failed, one that is switched off."""
    demo = [sys.executable, "-I", "-S", str(ROOT / "src/toolyard/cli/demo_server.py")]
    servers = {
        "demo": {
            "label": "Demo",
            "command": demo[0],
            "args": demo[1:],
            "description": "A small server of our own",
        },
        "search": {"label": "Internal search", "command": "search-mcp", "args": ["--index", "handbook"]},
        "archive": {
            "label": "Archive",
            "type": "sse",
            "url": "https://archive.example/sse",
            "enabled": False,
        },
    }
    data.mkdir(parents=True, exist_ok=True)
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2) + "\n", "utf-8")
    (data / "AGENTS.md").write_text(AGENTS, "utf-8")
    # Screenshots contact no model, so any key works.
    (data / "toolyard.toml").write_text(MODELS, "utf-8")


def _servers(docs_url: str) -> list[ServerDraft]:
    key = ChoiceDraft("header", "Personal API key", key="Authorization")
    return [
        ServerDraft(
            "GitHub",
            "https://api.githubcopilot.com/mcp/",
            choices=(OAUTH,),
            description="Code, issues and pull requests",
        ),
        ServerDraft(
            "Linear",
            "https://mcp.linear.app/mcp",
            choices=(OAUTH, key),
            description="Issues and projects of the team",
        ),
        ServerDraft(
            "Sentry", "https://mcp.sentry.dev/mcp", choices=(OAUTH,), description="Errors in production"
        ),
        ServerDraft(
            "Library docs", docs_url, private_addresses=True, description="Answers questions about libraries"
        ),
        ServerDraft(
            "Weather station",
            "https://weather.example.org/sse",
            transport="sse",
            trust="untrusted",
            allow_tools=("get_*",),
            choices=(ChoiceDraft("header", "Station key", place="query", key="api_key"),),
        ),
        ServerDraft(
            "Old wiki",
            "https://wiki.example.com/mcp",
            enabled=False,
            description="Read only, until it is moved",
        ),
    ]


async def fill(
    data: Path, docs_url: str, *, extra_servers: int = 0, extra_instances: int = 0
) -> dict[str, str]:
    """Fill the database of a data directory. Return the ids of instances by slug, and of servers by name."""
    database = await Database.open(data, url=None, secret_key=None)
    people, registry = AccountService(database.accounts, Settings()), Registry(database.registry, Settings())
    me = await people.local_user()
    ids: dict[str, str] = {}
    for draft in _servers(docs_url):
        ids[draft.name] = (await registry.add_server(draft)).id
    instances = [
        ("GitHub", "github-work", "GitHub, at work", InstanceState.READY, None, None),
        (
            "GitHub",
            "github",
            "GitHub, private",
            InstanceState.NEEDS_REAUTH,
            "the sign-in ended: the provider no longer accepts it",
            None,
        ),
        ("Linear", "linear", "Linear", InstanceState.PENDING, "not signed in yet", None),
        ("Library docs", "docs", "Library docs", InstanceState.READY, None, None),
        (
            "Weather station",
            "weather",
            "Weather station",
            InstanceState.FAILED,
            "the server answered 503 Service Unavailable",
            "k-123",
        ),
        ("Sentry", "sentry", "Sentry", InstanceState.READY, None, None),
    ]
    for server, slug, name, state, reason, value in instances:
        choice = (await registry.get_server(ids[server])).choices[0].id
        instance = await registry.create_instance(
            me.id, InstanceDraft(ids[server], choice, slug, name, value=value)
        )
        await database.registry.set_instance_state(instance.id, state, reason)
        ids[slug] = instance.id
    await registry.set_instance_enabled(me.id, ids["sentry"], False)
    for number in range(extra_servers):
        draft = ServerDraft(f"Server {number:03}", f"https://s{number}.example.com/mcp", choices=(OAUTH,))
        ids[draft.name] = (await registry.add_server(draft)).id
    for number in range(extra_instances):
        draft = InstanceDraft(ids["GitHub"], None, f"many-{number}", f"Instance {number:04}")
        await registry.create_instance(me.id, draft)
    rights = frozenset({Right.READ, Right.CALL})
    await people.create_token(
        me, "nightly report", TokenScope(rights, ("github-work",), ("mcp_github-work__list_*",)), 86_400 * 90
    )
    await people.create_token(me, "editor on the laptop", TokenScope(rights), None)
    now = time.time()
    for age, action, target, outcome in (
        (90_000, "sign_in", me.name, "ok"),
        (7_300, "server.add", ids["GitHub"], "ok"),
        (6_900, "instance.create", ids["github-work"], "ok"),
        (600, "tool.call", f"@{me.id}/github-work/list_issues", "ok"),
        (420, "tool.call", f"@{me.id}/weather/get_forecast", "HttpStatus"),
    ):
        await database.audit.write(
            AuditEntry(now - age, action, me.id, me.name, target, outcome, "127.0.0.1")
        )
    ids |= await fill_chats(database, me.id) | await fill_screenshot_chat(database, me.id)
    await database.close()
    return ids
