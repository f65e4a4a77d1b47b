"""One person's pages show and change nothing of another's: a walk over every route of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.web.api.test_isolation import SECRET, TwoUserSite, kept_by_bob, shown, world

from toolyard.web.ui import router

__all__ = ["world"]

UNTOUCHED = {"/ui/sign-out", "/ui/account/sign-out-everywhere"}
"""They would end the walk."""
OWN = {"/ui/approvals/{approval_id}"}


def routes() -> Iterator[tuple[str, str]]:
    for each in router.build():
        yield from ((method, each.path) for method in sorted(each.methods - {"HEAD"}))


def filled(path: str, world: TwoUserSite, *, missing: bool) -> str:
    """A path about Bob's things, or about things that there are not."""
    tool = "?tool=echo" if path.endswith("/tool") else ""
    values = {"instance_id": world.instance, "token_id": world.token, "user_id": world.bob.user.id}
    values |= {"ref": world.agent, "server_id": "demo" if "/files/" in path else world.server}
    values |= {"token": "x" * 43, "chat_id": world.talk.chat}
    values |= {"approval_id": world.talk.approval, "grant_id": world.talk.grant}
    path = path.replace("{seq}", str(world.talk.result)).replace("{turn}", "1")
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", "0" * len(value) if missing else value)
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


async def test_a_walk_over_every_page_reaches_nothing_of_anybody_else(world: TwoUserSite) -> None:
    client, csrf = world.ada.browser, await csrf_of(world.ada.browser)
    before = await kept_by_bob(world)
    for method, path in routes():
        if path in UNTOUCHED:
            continue
        data = {"csrf": csrf, "name": "mine now", "slug": "mine-now", "filter": "none"}
        data |= {"do": "send", "text": "mine now", "answer": "once", "title": "mine now", "which": "some"}
        options = {"data": data} if method == "POST" else {}
        asked, other = (filled(path, world, missing=missing) for missing in (False, True))
        answer = await client.ask(method, asked, **options)
        told = f"{method} {path}: {answer.status}"
        assert answer.status < 500, told
        assert not shown(world, words_of(answer, asked)), told
        if "/admin/" in path:
            assert answer.status == 404, told
        elif path in OWN and method == "POST":
            # An answer to nobody's question leads back, with words.
            assert answer.status == 303, told
        elif re.search(r"\{((instance|token|chat|grant|approval)_id|ref)\}", path):
            assert answer.status == 404, told
            unknown = await client.ask(method, other, **options)
            assert unknown.status == 404, told
            assert words_of(unknown, other) == words_of(answer, asked), told
    assert await kept_by_bob(world) == before


async def test_the_owner_sees_what_the_walk_did_not(world: TwoUserSite) -> None:
    """Otherwise the walk would prove nothing."""
    for path in (
        "/ui/mcp",
        "/ui/mcp/{instance_id}",
        "/ui/tokens",
        "/ui/chat",
        "/ui/chat/{chat_id}",
        "/ui/approvals",
    ):
        answer = await world.bob.browser.get(filled(path, world, missing=False))
        assert answer.status == 200
        assert shown(world, answer.text)
        assert SECRET not in answer.text


@pytest.mark.parametrize("path", ["/ui/mcp", "/ui/mcp/{instance_id}"])
async def test_an_admin_sees_no_instance_of_somebody_else(world: TwoUserSite, path: str) -> None:
    asked = filled(path, world, missing=False)
    text = words_of(await world.root.browser.get(asked), asked)
    assert world.instance not in text
    assert "bobs-own" not in text
