"""One person's pages show and change nothing of another's: a walk over every route of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.web.api.test_isolation import PAGE_QUESTION, SECRET, TwoUserSite, kept_by_bob, shown, two_user_site

from toolyard.web.ui import router

__all__ = ["two_user_site"]

UNTOUCHED = {"/ui/sign-out", "/ui/account/sign-out-everywhere"}
"""They would end the walk."""
OWN = {"/ui/approvals/{approval_id}", "/ui/account/sessions/{session_id}/sign-out"}
OF_BOB = re.compile(r"\{((instance|token|session|chat|grant|approval|question|proposal)_id|id|handle|ref)\}")


def routes() -> Iterator[tuple[str, str]]:
    for each in router.build():
        yield from ((method, each.path) for method in sorted(each.methods - {"HEAD"}))


def filled(path: str, two_user_site: TwoUserSite, *, missing: bool) -> str:
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


def words_of(answer: Any, asked: str) -> str:
    """What a page says, without the address that it repeats and without the masked CSRF value."""
    text = re.sub(r'(csrf" (?:value|content)=")[^"]+', r"\1…", str(answer.text))
    for part in re.split(r"[/?=]", asked):
        text = text.replace(part, "…") if len(part) > 12 else text
    return text


async def csrf_of(client: Any) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/ui/tokens")).text)
    assert found is not None
    return found[1]


def test_there_are_pages_to_walk() -> None:
    found = {path for _, path in routes()}
    assert {"/ui/mcp", "/ui/mcp/{instance_id}", "/ui/admin/mcp/{server_id}/edit", "/ui/tokens"} <= found


async def test_a_walk_over_every_page_reaches_nothing_of_anybody_else(two_user_site: TwoUserSite) -> None:
    client, csrf = two_user_site.ada.browser, await csrf_of(two_user_site.ada.browser)
    before = await kept_by_bob(two_user_site)
    for method, path in routes():
        if path in UNTOUCHED:
            continue
        data = {"csrf": csrf, "name": "mine now", "slug": "mine-now", "filter": "none"}
        data |= {"do": "send", "text": "mine now", "answer": "once", "title": "mine now", "which": "some"}
        options = {"data": data} if method == "POST" else {}
        asked, other = (filled(path, two_user_site, missing=missing) for missing in (False, True))
        answer = await client.ask(method, asked, **options)
        told = f"{method} {path}: {answer.status}"
        assert answer.status < 500, told
        assert not shown(two_user_site, words_of(answer, asked)), told
        if "/admin/" in path:
            assert answer.status == 404, told
        elif path in OWN and method == "POST":
            # It leads back, with a message.
            assert answer.status == 303, told
        elif re.search(
            r"\{((instance|token|session|chat|grant|approval|question|proposal)_id|id|handle|ref)\}", path
        ):
            assert answer.status == 404, told
            unknown = await client.ask(method, other, **options)
            assert unknown.status == 404, told
            assert words_of(unknown, other) == words_of(answer, asked), told
    assert await kept_by_bob(two_user_site) == before


async def test_the_owner_sees_what_the_walk_did_not(two_user_site: TwoUserSite) -> None:
    """Otherwise the walk would prove nothing."""
    for path in (
        "/ui/mcp",
        "/ui/mcp/{instance_id}",
        "/ui/tokens",
        "/ui/chat",
        "/ui/chat/{chat_id}",
        "/ui/approvals",
    ):
        answer = await two_user_site.bob.browser.get(filled(path, two_user_site, missing=False))
        assert answer.status == 200
        assert shown(two_user_site, answer.text)
        assert SECRET not in answer.text


@pytest.mark.parametrize("path", ["/ui/mcp", "/ui/mcp/{instance_id}"])
async def test_an_admin_sees_no_instance_of_somebody_else(two_user_site: TwoUserSite, path: str) -> None:
    asked = filled(path, two_user_site, missing=False)
    text = words_of(await two_user_site.root.browser.get(asked), asked)
    assert two_user_site.instance not in text
    assert "bobs-own" not in text
