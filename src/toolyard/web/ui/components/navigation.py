"""The pages of the product. The navigation and the search both follow from this table, links to the
documentation from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from toolyard.types.account import RequestUser

__all__ = ["HELP_TOPICS", "PAGES", "Page", "Section", "build_navigation", "list_pages"]


class Section(Enum):
    """Place of a page in the navigation."""

    MAIN = "main"
    ADMIN = "admin"
    """For admins only."""
    NONE = "none"
    """Only found by the search, and by links of other pages."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page with a fixed address."""

    title: str
    href: str
    icon: str
    section: Section = Section.MAIN
    needs_team: bool = False
    """True if the page has no use where one person is the only user."""
    search_title: str = ""
    """Title in the search, if that of the navigation is ambiguous without its section."""
    subpages: tuple[str, ...] = ()
    """Addresses of pages that belong to it, although they are not below it."""

    def is_for(self, me: RequestUser) -> bool:
        """Return whether a person may open the page and has a use for it."""
        if self.section is Section.ADMIN and not me.is_admin:
            return False
        return not (self.needs_team and me.is_local)

    def contains(self, path: str) -> bool:
        """Return whether a path is this page, or one that belongs to it."""
        return path == self.href or any(
            f"{path}/".startswith(f"{each}/") for each in (self.href, *self.subpages) if each != "/ui/"
        )


PAGES = (
    Page("Chat", "/ui/chat", "chat"),
    Page("Home", "/ui/", "home"),
    Page("Approvals", "/ui/approvals", "shield"),
    Page("Agents", "/ui/agents", "agent"),
    Page("Catalogue", "/ui/catalog", "grid", subpages=("/ui/proposals",)),
    Page("Instances", "/ui/mcp", "plug"),
    Page("Clients", "/ui/connect", "globe"),
    Page("API tokens", "/ui/tokens", "key"),
    Page("Usage", "/ui/usage", "chart", subpages=("/ui/budget",)),
    Page("Token budget", "/ui/budget", "chart", Section.NONE),
    Page("Your proposals", "/ui/proposals", "list", Section.NONE, needs_team=True),
    Page("Documentation", "/ui/docs", "help"),
    Page("Your account", "/ui/account", "people", Section.NONE),
    Page("Registry", "/ui/admin/mcp", "server", Section.ADMIN),
    Page("Proposals", "/ui/admin/proposals", "list", Section.ADMIN, True, "Proposals of everyone"),
    Page("Models", "/ui/admin/models", "model", Section.ADMIN),
    Page("People", "/ui/admin/people", "people", Section.ADMIN),
    Page("Usage of everyone", "/ui/admin/usage", "chart", Section.ADMIN, needs_team=True),
    Page("Audit log", "/ui/admin/audit", "list", Section.ADMIN),
)
"""In the order of the navigation."""


def list_pages(me: RequestUser) -> Sequence[Page]:
    """Return the pages for a person."""
    return [each for each in PAGES if each.is_for(me)]


def build_navigation(me: RequestUser) -> Mapping[str, Sequence[Page]]:
    """Return the pages for a person by section of the navigation."""
    pages = list_pages(me)
    return {section.value: [each for each in pages if each.section is section] for section in Section}


HELP_TOPICS = {
    "agent.html": "guides/agents",
    "agent_form.html": "guides/agents#create-agents-in-the-pages",
    "agent_import.html": "guides/agents#create-agents-in-the-pages",
    "agents.html": "guides/agents",
    "approval.html": "concepts#approval",
    "approvals.html": "concepts#approval",
    "audit.html": "deploying#monitoring",
    "budget.html": "guides/gateway-for-your-editor#2-write-the-entry",
    "catalog.html": "concepts#known-server",
    "changes.html": "concepts#lock",
    "chat.html": "chat#in-the-browser",
    "chat_attachment.html": "chat#pictures-and-text-files",
    "chat_console_page.html": "chat",
    "chat_earlier.html": "chat",
    "chat_insert.html": "chat#prompts-and-resources-of-servers",
    "chat_insert_form.html": "chat#prompts-and-resources-of-servers",
    "chat_rename.html": "chat",
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
    "model_form.html": "models#in-the-pages",
    "models.html": "models",
    "oauth/leave.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "oauth/problem.html": "guides/sign-in-to-servers#when-the-server-wants-something-special",
    "people.html": "people",
    "people/account.html": "people#browser-sessions",
    "people/invite.html": "people#passwords",
    "people/sign_in.html": "people",
    "proposal_form.html": "concepts#proposal",
    "proposals.html": "concepts#proposal",
    "registry.html": "concepts#registry",
    "result.html": "concepts#result",
    "server.html": "concepts#registry",
    "server_form.html": "guides/sign-in-to-servers#in-the-web-app-for-a-team",
    "tokens.html": "people#api-tokens",
    "tool.html": "guides/agents#2-find-out-why-a-tool-is-missing",
    "search.html": "chat#search-and-shortcuts",
    "usage.html": "deploying#monitoring",
}
"""Documentation of each page: the address below ``/ui/docs``, by the name of the page's template."""
