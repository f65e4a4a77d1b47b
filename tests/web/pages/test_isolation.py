"""One person's pages show and change nothing of another's: a walk over every route of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.web.api.test_isolation import (
    PAGE_QUESTION,
    SECRET,
    TwoUserSite,
    list_bobs_things,
    list_leaks,
    two_user_site,
)

from toolyard.web.ui import router

__all__ = ["two_user_site"]

UNTOUCHED_PATHS = {"/ui/sign-out", "/ui/account/sign-out-everywhere"}
"""They would end the walk."""
OWN = {"/ui/approvals/{approval_id}", "/ui/account/sessions/{session_id}/sign-out"}
OF_BOB = re.compile(r"\{((instance|token|session|chat|grant|approval|question|proposal)_id|id|handle|ref)\}")


def routes() -> Iterator[tuple[str, str]]:
    for each in router.build():
        yield from ((method, each.path) for method in sorted(each.methods - {"HEAD"}))


def fill_path(path: str, two_user_site: TwoUserSite, *, missing: bool) -> str:
    """A path about Bob's things, or about things that there are not."""
    tool = "?tool=echo" if path.endswith("/tool") else ""
    values = {
        "instance_id": two_user_site.instance,
        "token_id": two_user_site.token,
        "user_id": two_user_site.bob.user.id,
    }
    values |= {"ref": two_user_site.agent, "server_id": "demo" if "/files/" in path else two_user_site.server}
    values |= {"token": "x" * 43, "chat_id": two_user_site.talk.chat}
    values |= {"approval_id": two_user_site.talk.approval, "grant_id": two_user_site.talk.grant}
    values |= {
        "session_id": two_user_site.session,
        "question_id": PAGE_QUESTION,
        "proposal_id": two_user_site.proposal,
    }
    values |= {"id": two_user_site.talk.attachment, "handle": two_user_site.handle, "digest": "0" * 32}
    values |= {"known_id": "linear", "choice_id": "x" * 8, "name": "agents"}
    path = path.replace("{seq}", str(two_user_site.talk.result)).replace("{turn}", "1")
    for name, value in values.items():
        path = re.sub(rf"\{{{name}(:path)?\}}", "0" * len(value) if missing else value, path)
    assert "{" not in path, "a path that is not about anything finds nothing"
    return path + tool + ("?before=9" if path.endswith("/earlier") else "")


def words_of(answer: Any, path: str) -> str:
    """What a page says, without the address that it repeats and without the masked CSRF value."""
    text = re.sub(r'(csrf" (?:value|content)=")[^"]+', r"\1…", str(answer.text))
    for part in re.split(r"[/?=]", path):
        text = text.replace(part, "…") if len(part) > 12 else text
    return text


async def csrf_of(client: Any) -> str:
    match = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/ui/tokens")).text)
    assert match is not None
    return match[1]


def test_there_are_pages_to_walk() -> None:
    paths = {path for _, path in routes()}
    assert {"/ui/mcp", "/ui/mcp/{instance_id}", "/ui/admin/mcp/{server_id}/edit", "/ui/tokens"} <= paths


async def test_a_walk_over_every_page_reaches_nothing_of_anybody_else(two_user_site: TwoUserSite) -> None:
    client, csrf = two_user_site.ada.browser, await csrf_of(two_user_site.ada.browser)
    before = await list_bobs_things(two_user_site)
    for method, path in routes():
        if path in UNTOUCHED_PATHS:
            continue
        data = {"csrf": csrf, "name": "mine now", "slug": "mine-now", "filter": "none"}
        data |= {"do": "send", "text": "mine now", "answer": "once", "title": "mine now", "which": "some"}
        options = {"data": data} if method == "POST" else {}
        paths, other = (fill_path(path, two_user_site, missing=missing) for missing in (False, True))
        answer = await client.ask(method, paths, **options)
        failure_text = f"{method} {path}: {answer.status}"
        assert answer.status < 500, failure_text
        assert not list_leaks(two_user_site, words_of(answer, paths)), failure_text
        if "/admin/" in path:
            assert answer.status == 404, failure_text
        elif path in OWN and method == "POST":
            # It leads back, with a message.
            assert answer.status == 303, failure_text
        elif re.search(
            r"\{((instance|token|session|chat|grant|approval|question|proposal)_id|id|handle|ref)\}", path
        ):
            assert answer.status == 404, failure_text
            unknown = await client.ask(method, other, **options)
            assert unknown.status == 404, failure_text
            assert words_of(unknown, other) == words_of(answer, paths), failure_text
    assert await list_bobs_things(two_user_site) == before


async def test_the_owner_sees_the_pages_hidden_from_others(two_user_site: TwoUserSite) -> None:
    """Otherwise the walk would prove nothing."""
    for path in (
        "/ui/mcp",
        "/ui/mcp/{instance_id}",
        "/ui/tokens",
        "/ui/chat",
        "/ui/chat/{chat_id}",
        "/ui/approvals",
    ):
        answer = await two_user_site.bob.browser.get(fill_path(path, two_user_site, missing=False))
        assert answer.status == 200
        assert list_leaks(two_user_site, answer.text)
        assert SECRET not in answer.text


@pytest.mark.parametrize("path", ["/ui/mcp", "/ui/mcp/{instance_id}"])
async def test_an_admin_sees_no_instance_of_another_user(two_user_site: TwoUserSite, path: str) -> None:
    own_path = fill_path(path, two_user_site, missing=False)
    text = words_of(await two_user_site.root.browser.get(own_path), own_path)
    assert two_user_site.instance not in text
    assert "bobs-own" not in text
