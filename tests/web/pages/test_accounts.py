"""People, tokens and the audit log, without script."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator

from tests.web.conftest import PASSWORD, ROOT, InProcessApp
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.types.account import Right, Role
from toolyard.types.audit import AuditEntry
from toolyard.types.registry import InstanceDraft, ServerDraft


async def admin_of(team: InProcessApp) -> ScriptlessBrowser:
    return ScriptlessBrowser((await team.person("ada", Role.ADMIN)).browser)


# People.


async def test_an_invite_without_a_name_moves_the_focus_to_its_field(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get("/ui/admin/people")
    page = await ada.send(page, page.form_with("role"), {"name": " "})
    assert page.status == 422
    assert [each.attrs["id"] for each in page.root.all("input", data_focus="")] == ["name"]


async def test_a_user_is_invited_and_the_link_is_shown_once(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get("/ui/admin/people")
    page = await ada.send(page, page.form_with("role"), {"name": "Grace", "role": "admin"})
    assert page.status == 200
    link = page.root.one("input", id="invite-link").attrs["value"]
    assert link.startswith(password_site.url + "/ui/invite/")
    assert "Invite link for Grace" in page.text
    assert "Expires in" in page.text
    assert "<time" not in page.text
    assert link not in (await ada.get("/ui/admin/people")).html
    assert "no password yet" in (await ada.get("/ui/admin/people")).text
    grace = ScriptlessBrowser(password_site.client())
    page = await grace.get(link.removeprefix(password_site.url))
    page = await grace.send(page, page.form_with("password"), {"password": PASSWORD, "again": PASSWORD})
    assert page.path == "/ui/"
    assert "Registry" in page.root.one("nav").text


async def test_bad_names_are_told_beside_the_field(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get("/ui/admin/people")
    for name in ("", "ADA", "x" * 200, "with\u202econtrol"):
        again = await ada.send(page, page.form_with("role"), {"name": name, "role": "admin"})
        assert again.status == 422, name
        assert again.error("name")
        assert again.value("name") == name
        assert again.value("role") == "admin"


async def test_roles_disabling_and_deleting(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    bob = await password_site.person("bob")
    at = f"/ui/admin/people/{bob.user.id}"
    page = await ada.press(await ada.get("/ui/admin/people"), f"{at}/role")
    assert "“bob” is now an admin." in page.flash
    page = await ada.press(page, f"{at}/role")
    assert "“bob” is now a user." in page.flash
    page = await ada.press(page, f"{at}/disable")
    assert "“bob” is disabled and signed out." in page.flash
    assert (await ScriptlessBrowser(bob.browser).get("/ui/")).path.startswith("/ui/sign-in")
    page = await ada.press(page, f"{at}/enable")
    button = next(each for each in page.root.all("button") if each.text == "New invite link")
    pairs = [*page.fields(page.root.one("form", id="action-form")), ("again", button.attrs["value"])]
    page = await ada.go("POST", button.attrs["formaction"], pairs, {})
    assert page.root.one("input", id="invite-link")
    page = await ada.send(await ada.get(f"{at}/delete"), f"{at}/delete")
    assert "“bob” was deleted." in page.flash
    assert await password_site.services.database.accounts.get_user(bob.user.id) is None


async def test_users_cannot_lock_themselves_out(password_site: InProcessApp) -> None:
    person = await password_site.person("ada", Role.ADMIN)
    ada, at = ScriptlessBrowser(person.browser), f"/ui/admin/people/{person.user.id}"
    page = await ada.get("/ui/admin/people")
    assert not page.root.all("button", formaction=f"{at}/disable")
    csrf = dict(page.fields(page.root.one("form", id="action-form")))["csrf"]
    for path in (f"{at}/disable", f"{at}/role", f"{at}/delete"):
        flash = await ada.go("POST", path, [("csrf", csrf), ("role", "user")], {"Origin": password_site.url})
        assert "you cannot" in flash.flash.lower()
    assert (await ada.get("/ui/admin/people")).status == 200


async def test_without_invitations_the_page_explains_it(local_site: InProcessApp) -> None:
    page = await ScriptlessBrowser(local_site.client()).get("/ui/admin/people")
    assert "Sign-in is off" in page.text
    assert not page.root.all("input", id="name")
    assert page.root.one("td", data_label="Last seen").text == "Now"


# Tokens.


async def test_a_token_is_made_shown_once_and_revoked(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get("/ui/tokens")
    sent = {
        "name": "nightly",
        "rights": ["read", "call"],
        "which": "some",
        "servers": ["demo"],
        "tools": "demo_*\n!demo_forget",
        "expires": "30",
    }
    page = await ada.send(page, page.form_with("expires"), sent)
    assert page.status == 200
    text = page.root.one("input", id="token-text").attrs["value"]
    assert re.fullmatch(r"ty_[\w-]{20,}", text)
    principal = await password_site.services.people.authenticate_token(text)
    assert principal is not None
    scope = principal[0].scope
    assert scope.rights == {Right.READ, Right.CALL}
    assert scope.servers == ("demo",)
    assert scope.tools == ("demo_*", "!demo_forget")
    assert principal[0].expires_at is not None
    assert abs(principal[0].expires_at - time.time() - 30 * 86_400) < 60
    page = await ada.get("/ui/tokens")
    assert text not in page.html
    at = f"/ui/tokens/{principal[0].id}/delete"
    page = await ada.send(await ada.get(at), at)
    assert "“nightly” was revoked." in page.flash
    assert await password_site.services.people.authenticate_token(text) is None
    assert (await ada.get(at)).status == 404


async def test_bad_tokens_are_told_beside_the_fields(password_site: InProcessApp) -> None:
    bob = ScriptlessBrowser((await password_site.person("bob")).browser)
    page = await bob.get("/ui/tokens")
    assert not page.root.all("input", value="admin")
    again = await bob.send(page, page.form_with("expires"), {"name": "", "rights": [], "tools": "a" * 300})
    assert again.status == 422
    assert again.error("name")
    again = await bob.send(page, page.form_with("expires"), {"name": "x", "rights": [], "tools": "a" * 300})
    assert "at least one right" in again.error("rights")
    assert again.error("tools")
    assert again.value("tools") == "a" * 300
    again = await bob.send(page, page.form_with("expires"), {"name": "x", "rights": ["admin"]})
    assert "only admins" in again.error("rights").lower()


async def test_another_persons_token_is_not_there(password_site: InProcessApp) -> None:
    ada = await password_site.person("ada", Role.ADMIN)
    bob = ScriptlessBrowser((await password_site.person("bob")).browser)
    (token,) = await password_site.services.database.accounts.list_tokens(ada.user.id)
    assert (await bob.get(f"/ui/tokens/{token.id}/delete")).status == 404


# The audit log.


async def test_the_log_can_be_filtered_paged_and_exported(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    markup = "<b>bold</b>"
    for number in range(230):
        action = "tool.call" if number % 2 else "sign_in"
        details = {"n": number, markup: markup}
        entry = AuditEntry(time.time(), action, "u1", markup, f"target {number}", "ok", "192.0.2.1", details)
        await password_site.services.database.audit.write(entry)
    page = await ada.get("/ui/admin/audit")
    assert "target 229" in page.text
    assert "target 120" not in page.text
    assert not page.root.all("b")
    page = await ada.get(page.root.one("a", rel="next").attrs["href"])
    assert "target 120" in page.text
    assert "Newest" in page.text
    page = await ada.send(page, page.form_with("action"), {"action": "tool.call"})
    assert "target 229" in page.text
    assert "target 228" not in page.text
    for odd in ("before=x", "before=-1", "before=99999999999999999999", "action=nothing", "actor=%00"):
        assert (await ada.get(f"/ui/admin/audit?{odd}")).status == 200
    assert "No entries match" in (await ada.get("/ui/admin/audit?action=nothing")).text
    links = page.root.all("a", download="")
    assert links
    for link in links:
        answer = await ada.client.get(link.attrs["href"])
        assert answer.status == 200
        assert "target 229" in answer.text


async def test_outcomes_are_shown_in_words(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    for outcome in ("SignInNeeded", "HttpStatus", "outcome_unknown"):
        entry = AuditEntry(time.time(), "tool.call", "u1", "bob", "demo/count", outcome)
        await password_site.services.database.audit.write(entry)
    text = (await ada.get("/ui/admin/audit")).text
    for words in ("Sign in needed", "HTTP error", "Outcome unknown"):
        assert words in text


async def test_details_are_shown_in_words(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    usage, answer = (
        {"agent": "@titles", "input_tokens": 98, "cost": 3.9e-05},
        {"yes": True, "remembered": False},
    )
    for action, details in (("model.request", usage), ("approval.answer", answer)):
        await password_site.services.database.audit.write(
            AuditEntry(time.time(), action, "u1", details=details)
        )
    text = (await ada.get("/ui/admin/audit")).text
    for words in (
        "agent: titles of chats",
        "input tokens: 98",
        "cost: < $0.0001",
        "allowed: yes",
        "remembered: no",
    ):
        assert words in text


async def test_ids_that_mean_nothing_to_people_are_not_shown_as_targets(password_site: InProcessApp) -> None:
    ada, id_ = await admin_of(password_site), "f296ab0f2c5825f9af1cd710"
    for action in ("question.answer", "proposal.withdraw", "approval.answer", "grant.revoke"):
        entry = AuditEntry(time.time(), action, "u1", target=id_, details={"server": "files"})
        await password_site.services.database.audit.write(entry)
    rows = (await ada.get("/ui/admin/audit")).root.one("tbody").all("tr")
    texts = [row.text for row in rows if "files" in row.text]
    assert len(texts) == 4
    assert id_ not in "".join(texts)


def find_recorded_actions() -> Iterator[str]:
    """The actions that the code writes to the log: constants in the calls of functions that record one."""
    for path in (ROOT / "src/toolyard").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            if re.match(r"_?record|AuditEntry", getattr(call.func, "attr", getattr(call.func, "id", ""))):
                texts = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant)]
                yield from (
                    text for text in texts if isinstance(text, str) and re.fullmatch(r"[a-z]+\.[a-z_]+", text)
                )


async def test_every_action_has_words_and_can_be_chosen(password_site: InProcessApp) -> None:
    actions = set(find_recorded_actions())
    assert {"model.add", "proposal.decline", "user.enable", "database.move"} <= actions
    page = await (await admin_of(password_site)).get("/ui/admin/audit")
    values = {each.attrs["value"] for each in page.root.one("select", id="action").all("option")}
    assert actions - values == set()


async def test_changes_by_pages_are_in_the_log(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get("/ui/admin/mcp/new")
    sent = {"name": "Docs", "url": "https://d.test/mcp", "choices-0-kind": "public"}
    page = await ada.send(page, "/ui/admin/mcp/new", sent, press=("do", "save"))
    await ada.press(page, f"{page.path}/disable")
    text = (await ada.get("/ui/admin/audit")).text
    for words in ("Added a server", "Disabled a server", "Docs"):
        assert words in text


async def test_the_log_names_people_and_things_and_filters_by_them(password_site: InProcessApp) -> None:
    ada, bob = await admin_of(password_site), await password_site.person("bob")
    registry, audit = password_site.services.registry, password_site.services.database.audit
    server = await registry.add_server(ServerDraft("Docs", "https://d.test/mcp"))
    instance = await registry.create_instance(bob.user.id, InstanceDraft(server.id, slug="work"))
    now = time.time()
    for entry in (
        AuditEntry(now - 7200, "server.add", "gone", "ada", server.id, details={"name": "Docs"}),
        AuditEntry(
            now,
            "instance.sign_in",
            bob.user.id,
            "bob",
            instance.id,
            details={"slug": "work", "server": server.id},
        ),
        AuditEntry(now, "tool.call", bob.user.id, "", f"@{bob.user.id}/work/read", "timeout"),
        AuditEntry(now, "tool.call", bob.user.id, "", f"@{bob.user.id}/work-2/read", "ok"),
        AuditEntry(now, "tool.call", bob.user.id, "", "demo/echo", "ok"),
        AuditEntry(now, "tool.call.start", bob.user.id, "", "demo_2/echo", ""),
        AuditEntry(now, "tool.call", bob.user.id, "", "misspelt_tool", "ToolRefused"),
    ):
        await audit.write(entry)

    async def rows(query: str = "") -> list[str]:
        page = await ada.get(f"/ui/admin/audit?{query}")
        assert page.status == 200
        return [each.text for each in page.root.all("tbody")[0].all("tr")] if page.root.all("tbody") else []

    everything = " ".join(await rows())
    assert "Connected an instance" in everything
    assert "Docs: read (bob)" in everything
    assert "work-2/read (bob)" in everything
    assert "misspelt_tool/" not in everything
    assert "server: Docs" in everything
    for id_ in (server.id, instance.id, bob.user.id, "instance.sign_in"):
        assert id_ not in everything
    assert len(await rows(f"server={server.id}")) == 3
    assert len(await rows(f"server={server.id}&when=1h")) == 2
    assert len(await rows("server=demo")) == 1
    assert len(await rows(f"actor={bob.user.id}")) == 6
    assert len(await rows("actor=gone")) == 1
    refused_rows, failed_rows = await rows("outcome=failed")
    assert "misspelt_tool" in refused_rows
    assert "Timeout" in failed_rows
    assert len(await rows(f"outcome=ok&actor={bob.user.id}")) == 3
    assert len(await rows(f"outcome=strange&when=strange&actor={bob.user.id}")) == 6
