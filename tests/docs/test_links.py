"""Every link between pages leads to an existing page and heading."""

from __future__ import annotations

import re

import pytest
from tests.conftest import ROOT
from tests.docs.pages import PAGES, anchors, links, read

CODE = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py") if "docs/" in path.read_text("utf-8")
)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    for link in links(page):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert target.is_relative_to(ROOT), f"{page} links to {link}, which is not of this project"
        if anchor:
            assert anchor in anchors(str(target.relative_to(ROOT))), (
                f"{page} links to {link}: no such heading"
            )


@pytest.mark.parametrize("path", [*CODE, "Makefile", "pyproject.toml", "compose.yaml"])
def test_pages_that_the_code_names_are_there(path: str) -> None:
    for match in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg)\b", read(path)):
        assert (ROOT / match).exists(), f"{path} names {match}"


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_modules_and_folders_that_a_page_names_are_there(page: str) -> None:
    package, count = ROOT / "src/toolyard", 0
    for line in read(page).splitlines():
        matches = re.findall(r"`([a-z_][\w./]*(?:\.py|/))`", line)
        # A row of a table about a package names the parts of that package.
        folders = [ROOT, package]
        folders += [root / each for root in (ROOT, package) for each in matches if each.endswith("/")]
        for path in matches:
            folders_with_path = [folder for folder in folders if (folder / path).exists()]
            assert folders_with_path, f"{page} names {path}"
        count += len(matches)
    assert count >= 10


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached_pages, pages_to_visit = set[str](), ["README.md"]
    while pages_to_visit:
        page = pages_to_visit.pop()
        if page not in reached_pages and page.endswith(".md"):
            reached_pages.add(page)
            for link in links(page):
                target = ((ROOT / page).parent / link.partition("#")[0]).resolve()
                if link.partition("#")[0] and target.is_relative_to(ROOT) and target.exists():
                    pages_to_visit.append(str(target.relative_to(ROOT)))
    assert set(PAGES) - reached_pages == set()


def test_the_pictures_that_are_kept_are_those_that_pages_show() -> None:
    shown_images = {
        link.rpartition("/")[2] for page in PAGES for link in links(page) if "screenshots/" in link
    }
    matches = re.findall(r"^!(.+\.png)$", read("docs/screenshots/.gitignore"), re.MULTILINE)
    assert shown_images == set(matches)


def test_anchors_are_made_as_github_makes_them() -> None:
    assert "a-server-serversid" in anchors("docs/reference/configuration.md")
    assert "get-apiv1status" in anchors("docs/reference/api.md")
