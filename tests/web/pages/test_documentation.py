"""The documentation in the app: every page of it can be read, its links work, and every page leads to it."""

from __future__ import annotations

import re

from tests.docs.pages import anchors
from tests.web.conftest import ROOT, InProcessApp
from tests.web.pages.test_render import check
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.web.rendering.documents import render_document
from toolyard.web.ui.components.navigation import HELP_TOPICS
from toolyard.web.ui.documentation import list_document_files, render_stored_document

TEMPLATES = ROOT / "src/toolyard/web/ui/templates"
PAGES = [name for name, path in list_document_files().items() if path.suffix == ".md"]


def test_every_page_of_the_app_has_a_section_of_the_documentation_that_exists() -> None:
    extending = {
        path.relative_to(TEMPLATES).as_posix()
        for path in TEMPLATES.rglob("*.html")
        if '{% extends "layout.html" %}' in path.read_text("utf-8")
    }
    assert extending - HELP_TOPICS.keys() == set(), "add them to web/ui/components/navigation.py"
    assert HELP_TOPICS.keys() - extending == set(), "these templates are no pages any more"
    for template, topic in HELP_TOPICS.items():
        name, _, anchor = topic.partition("#")
        assert name in ("", *PAGES), f"{template}: {topic}"
        assert not anchor or anchor in render_stored_document(name).anchors, f"{template}: {topic}"


def test_links_between_pages_lead_to_pages_and_headings_that_are_served() -> None:
    assert {"README", "concepts", "guides/agents", "reference/settings"} <= set(PAGES)
    for name in PAGES:
        document = render_stored_document(name)
        assert document.title
        assert document.anchors == anchors(f"docs/{name}.md")
        for target in re.findall(r'(?:href|src)="([^"]*)"', document.html):
            if target.startswith("https://") or target == "#i-copy":
                continue
            path, _, anchor = target.partition("#")
            page_name = path.removeprefix("/ui/docs").strip("/") or ("README" if path else name)
            assert page_name in list_document_files(), f"{name}: {target}"
            assert not anchor or anchor in render_stored_document(page_name).anchors, f"{name}: {target}"


def test_links_to_files_that_are_not_served_become_text() -> None:
    rows = "| x | y |\n|---|---|\n| [b](b.md) | 1 |\n| [a](a.md) | 2 |\n"
    text = f"# T\n\nSee [a](a.md), **[b](../b.md)** and [c](c.md).\n\n{rows}"
    html = render_document(text, lambda target: "/ui/docs/a" if target == "a.md" else None).html
    assert (
        '<p>See <a href="/ui/docs/a">a</a>, <strong><span>b</span></strong> and <span>c</span>.</p>' in html
    )
    assert html.count("<tr>") == 2
    assert ">1<" not in html


def test_code_is_highlighted_and_comments_for_tests_are_left_out() -> None:
    html = render_document('# T\n\n<!-- run by x -->\n```json\n{"a": 1}\n```\n', lambda _: None).html
    assert '<pre data-language="json" tabindex="0">' in html
    assert '<span class="h-mi">1</span>' in html
    assert "run by" not in html


async def test_a_stranger_reads_the_documentation_and_nothing_else_of_the_files(
    password_site: InProcessApp,
) -> None:
    stranger = ScriptlessBrowser(password_site.client())
    sign_in = await stranger.get("/ui/sign-in")
    page = await stranger.get(sign_in.root.one("a", class_="help-link").attrs["href"])
    assert (page.status, page.root.one("h1").text, page.root.all("nav")) == (200, "People", [])
    check(page)
    picture = await password_site.client().get("/ui/docs/picture.svg")
    assert (picture.status, picture.headers["Content-Type"]) == (200, "image/svg+xml")
    for name in ("nothing", "decisions/README", "../pyproject.toml", "..%2f..%2fpyproject", "README.md"):
        assert (await password_site.client().get(f"/ui/docs/{name}")).status in (404, 400), name


async def test_the_list_of_pages_has_the_navigation_for_signed_in_users(
    password_site: InProcessApp,
) -> None:
    ann = ScriptlessBrowser((await password_site.person("ann")).browser)
    page = await ann.get("/ui/docs")
    check(page)
    assert page.root.one("nav", aria_label="Main")
    linked_pages = {each.attrs["href"].removeprefix("/ui/docs/") for each in page.root.one("main").all("a")}
    assert linked_pages == set(PAGES) - {"README"}
