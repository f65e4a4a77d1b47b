"""The JSON API under ``/api/v1``, on top of the same services as the pages.

One module per resource; docstrings of routes and descriptions of fields are the published API reference.
Shared parts are in ``dependencies.py``.
"""

from __future__ import annotations

from toolyard.web.api import (
    agents,
    approvals,
    audit,
    chat_stream,
    chats,
    config_sign_ins,
    events,
    instances,
    models,
    openapi,
    pending,
    questions,
    servers,
    sessions,
    status,
    tokens,
    tool_changes,
    tools,
    usage,
    users,
)
from toolyard.web.api.catalog import known_servers, proposals
from toolyard.web.api.chat_files import attachments, exports, results, server_content
from toolyard.web.routes import Routes

__all__ = ["router"]

router = Routes("/api/v1")
_SERVER_MODULES = (status, config_sign_ins, known_servers, proposals, servers, instances, tool_changes, tools)
_CHAT_MODULES = (agents, chats, attachments, server_content, chat_stream, results, exports, models)
_ACCOUNT_MODULES = (approvals, questions, pending, tokens, sessions, users, audit, usage)
for _each in (*_SERVER_MODULES, *_CHAT_MODULES, *_ACCOUNT_MODULES, events, openapi):
    router.include(_each.router)
