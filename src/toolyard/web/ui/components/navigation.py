"""The pages of the product. The navigation and the search both follow from this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolyard.types.account import RequestUser

__all__ = ["PAGES", "Page", "Section", "build_navigation", "list_pages"]


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

    def is_for(self, me: RequestUser) -> bool:
        """Return whether a person may open the page and has a use for it."""
        if self.section is Section.ADMIN and not me.is_admin:
            return False
        return not (self.needs_team and me.is_local)

    def contains(self, path: str) -> bool:
        """Return whether a path is this page, or one below it."""
        return path == self.href or (self.href != "/ui/" and path.startswith(f"{self.href}/"))


PAGES = (
    Page("Chat", "/ui/chat", "chat"),
    Page("Home", "/ui/", "home"),
    Page("Approvals", "/ui/approvals", "shield"),
    Page("Agents", "/ui/agents", "agent"),
    Page("Instances", "/ui/mcp", "plug"),
    Page("Clients", "/ui/connect", "globe"),
    Page("API tokens", "/ui/tokens", "key"),
    Page("Usage", "/ui/usage", "chart"),
    Page("Token budget", "/ui/budget", "chart", Section.NONE),
    Page("Catalogue", "/ui/catalog", "server", Section.NONE),
    Page("Your proposals", "/ui/proposals", "list", Section.NONE, needs_team=True),
    Page("Documentation", "/ui/docs", "help", Section.NONE),
    Page("Your account", "/ui/account", "people", Section.NONE),
    Page("Registry", "/ui/admin/mcp", "server", Section.ADMIN),
    Page("Proposals", "/ui/admin/proposals", "list", Section.ADMIN, True, "Proposals of everyone"),
    Page("Models", "/ui/admin/models", "model", Section.ADMIN),
    Page("People", "/ui/admin/people", "people", Section.ADMIN),
    Page("Usage", "/ui/admin/usage", "chart", Section.ADMIN, search_title="Usage of everyone"),
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
