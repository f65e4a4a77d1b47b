"""Documentation of each page: the address below ``/ui/docs``, by the name of the page's template."""

from __future__ import annotations

__all__ = ["HELP_TOPICS"]

HELP_TOPICS = {
    "agent.html": "guides/agents",
    "agents.html": "guides/agents",
    "approvals.html": "concepts#approval",
    "audit.html": "deploying#monitoring",
    "budget.html": "concepts#meta-mode",
    "changes.html": "concepts#lock",
    "chat.html": "chat",
    "chat_console_page.html": "chat",
    "chat_earlier.html": "chat",
    "chat_rename.html": "chat",
    "chat_result.html": "concepts#result",
    "chat_tools.html": "chat#built-in-tools",
    "config_server.html": "reference/configuration",
    "confirm.html": "concepts",
    "connect.html": "guides/gateway-for-your-editor",
    "dev_parts.html": "architecture",
    "document.html": "",
    "failure.html": "guides/when-a-server-fails",
    "file_server.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "home.html": "guides/first-five-minutes#6-open-the-web-app",
    "instance.html": "concepts#instance",
    "instance_form.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "instance_new.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "instances.html": "concepts#instance",
    "oauth/leave.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "oauth/problem.html": "guides/sign-in-to-servers#when-the-server-wants-something-special",
    "people.html": "people",
    "people/account.html": "people#browser-sessions",
    "people/invite.html": "people#passwords",
    "people/sign_in.html": "people",
    "registry.html": "concepts#registry",
    "server.html": "concepts#registry",
    "server_form.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "tokens.html": "people#api-tokens",
    "tool.html": "guides/agents#2-find-out-why-a-tool-is-missing",
    "usage.html": "deploying#monitoring",
}
