"""The JSON API under ``/api/v1``, on top of the same services as the pages.

One module per resource; docstrings of routes and descriptions of fields are the published API reference.
Shared parts are in ``base.py``.
"""

from toolyard.web.api import (
    agents,
    approvals,
    attachments,
    audit,
    catalog,
    chat_stream,
    chats,
    exports,
    instances,
    models,
    openapi,
    results,
    server_status,
    servers,
    tokens,
    tool_changes,
    tools,
    usage,
    users,
)
from toolyard.web.routes import Routes

__all__ = ["router"]

router = Routes("/api/v1")
_SERVER_MODULES = (server_status, catalog, servers, instances, tool_changes, tools)
_CHAT_MODULES = (agents, chats, attachments, chat_stream, results, exports, models)
_ACCOUNT_MODULES = (approvals, tokens, users, audit, usage, openapi)
for _each in (*_SERVER_MODULES, *_CHAT_MODULES, *_ACCOUNT_MODULES):
    router.include(_each.router)
