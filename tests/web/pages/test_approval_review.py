"""What a person reads before approving a call: all arguments, with what differs from the last time."""

from __future__ import annotations

import html
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ProgramStarter
from tests.web.changing_tools import changing
from tests.web.conftest import Opening

from toolyard.types.approval import Approval, Grant
from toolyard.types.registry import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.web.approval_review import ReviewedArgument, describe_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "title": "Recipient", "description": "Who gets it"},
        "body": {"type": "string"},
        "key": {"type": "string", "format": "password"},
    },
}


def by_name(arguments: dict[str, Any], previous: dict[str, Any] | None = None) -> dict[str, ReviewedArgument]:
    return {each.name: each for each in describe_arguments(SCHEMA, arguments, previous)}


def test_arguments_have_the_words_of_the_schema() -> None:
    values_by_name = by_name({"to": "ada", "other": [1]})
    assert (values_by_name["to"].title, values_by_name["to"].help, values_by_name["to"].value) == (
        "Recipient",
        "Who gets it",
        "ada",
    )
    assert values_by_name["other"].is_json
    assert not values_by_name["other"].is_known
    assert values_by_name["to"].change == ""


def test_a_long_argument_cannot_push_others_out_of_view() -> None:
    assert list(by_name({"body": "x" * 10_000, "to": "eve"})) == ["to", "body"]


def test_hidden_characters_are_shown() -> None:
    assert by_name({"to": "a\u202eb\u00a0c"})["to"].value == r"a\u202eb\u00a0c"
    assert by_name({"to": {"k\u200b": ["a\u202e"]}})["to"].value == r'{"k\u200b": ["a\u202e"]}'


async def test_no_two_names_of_arguments_are_shown_alike_or_cut_off(open_site: Opening) -> None:
    local = await open_site({})
    names = ["path", "path ", "path\u00a0", "path\u202e", "pa\nth", "", "n" * 500 + "end"]
    approval = Approval("a1", "local", "x/note", "x_note", "h", dict.fromkeys(names, "v"), "r", time.time())
    await local.services.database.approvals.add(approval)
    page = (await local.client().get("/ui/approvals/a1")).text
    argument_names = [html.unescape(each) for each in re.findall(r"<dt><code>(.*?)</code>", page)]
    quoted_keys = ['"path "', r'"path\u00a0"']
    assert argument_names == ["path", *quoted_keys, r"path\u202e", r'"pa\nth"', '""', "n" * 500 + "end"]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [("a", "a", "same"), ("a", "b", "changed"), (1, True, "changed"), ([1], [1], "same"), (None, "a", "new")],
)
def test_differences_from_the_last_call_are_marked(before: object, after: object, change: str) -> None:
    previous = {} if before is None else {"to": before}
    assert by_name({"to": after}, previous)["to"].change == change


def test_an_argument_that_is_missing_this_time_is_named() -> None:
    assert by_name({}, {"to": "ada"})["to"].change == "removed"


def test_the_lines_that_changed_in_a_long_text_are_shown() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    body = by_name({"body": text.replace("line 50", "line fifty")}, {"body": text})["body"]
    assert body.diff == (" line 49", "-line 50", "+line fifty", " line 51")


def test_a_secret_of_an_earlier_call_is_not_shown_again() -> None:
    key = by_name({"key": "new"}, {"key": "old secret"})["key"]
    assert (key.change, key.before, key.diff) == ("changed", "", ())


async def test_a_standing_approval_says_when_its_tool_changed(open_site: Opening, tmp_path: Any) -> None:
    server = changing(tmp_path)
    local = await open_site({"moving": server.entry})
    client, store = local.client(), local.services.database.approvals
    assert (await client.get("/ui/admin/mcp/files/moving/tool?name=read")).status == 200
    now = time.time()
    for number, (tool, digest) in enumerate(
        (("moving/read", "another"), ("moving/gone", "x"), ("gone/x", "x"))
    ):
        approval = Approval(f"a{number}", "local", tool, tool, digest, {}, "it writes", now)
        grant = Grant(f"g{number}", "local", tool, tool, digest, "{}", now, now + 86_400)
        await store.add(approval)
        assert await store.answer("local", approval.id, yes=True, at=now, grant=grant)
    items = (await client.get("/api/v1/grants")).json["items"]
    assert {each["id"]: (each["in_force"], each["problem"]) for each in items} == {
        "g0": (False, "the tool’s definition changed after you approved it"),
        "g1": (False, "the server no longer has this tool"),
        "g2": (False, "its server is no longer available to you"),
    }
    page = (await client.get("/ui/approvals")).text
    assert page.count("Inactive") == 3
    assert '<a href="/ui/admin/mcp/files/moving/changes">See what changed</a>' in page


async def test_the_api_returns_differences_and_ends_approvals_by_default(open_site: Opening) -> None:
    local = await open_site({}, approval_days=3)
    client, store = local.client(), local.services.database.approvals
    for number, text in enumerate(("milk", "bread")):
        approval = Approval(
            f"a{number}", "local", "x/note", "x_note", "h", {"text": text}, "it writes", time.time()
        )
        await store.add(approval)
        (item,) = (await client.get("/api/v1/approvals")).json["items"]
        assert item["differs"] == (None if number == 0 else ["text"])
        body = {"yes": True, "remember": {"arguments": "any", "here": False}}
        assert (await client.post(f"/api/v1/approvals/a{number}", body)).status == 204
    for grant in await store.list_grants("local", time.time()):
        assert grant.expires_at - grant.created_at == 3 * 86_400


async def test_a_review_says_how_the_connection_signs_in(
    open_site: Opening, start_program: ProgramStarter, tmp_path: Path
) -> None:
    local, url = await open_site({}), changing(tmp_path).listen(start_program).url
    client, registry = local.client(), local.services.registry
    me = (await client.get("/api/v1/me")).json["id"]
    for name, choice, value in (
        ("open", ChoiceDraft("public"), None),
        ("keyed", ChoiceDraft("header", key="X-Key"), "k3y"),
        ("signed", ChoiceDraft("oauth"), None),
    ):
        server = await registry.add_server(
            ServerDraft(name, f"{url}/mcp?{name}", private_addresses=True, choices=(choice,))
        )
        await registry.create_instance(me, InstanceDraft(server.id, slug=name, value=value))
    # The server itself demands nothing, so that all three are listed.
    items = (await client.get("/api/v1/tools?fresh=true")).json["items"]
    tools = {each["name"]: each["id"] for each in items}
    for name in ("open", "keyed", "signed"):
        tool = f"mcp_{name}__read"
        approval = Approval(name, me, tools[tool], tool, "h", {}, "it writes", time.time())
        await local.services.database.approvals.add(approval)
    page = (await client.get("/ui/approvals")).text
    for words in ("without a sign-in", "with your key", "with your sign-in"):
        assert page.count(f"Uses your own connection at 127.0.0.1, {words}.") == 1
    assert page.count("until then, in all chats and clients") == 3


async def test_hostile_arguments_are_only_shown(open_site: Opening) -> None:
    local = await open_site({})
    arguments = {"<script>x</script>": "<img src=x onerror=y>", "b": {"c": ["<b>"] * 3}, "d": "x" * 100_000}
    approval = Approval("a1", "local", "x/note", "x_note", "h", arguments, "<i>reason", time.time())
    await local.services.database.approvals.add(approval)
    for path in ("/ui/approvals", "/ui/approvals/a1"):
        page = (await local.client().get(path)).text
        assert "<script>x" not in page
        assert "<img src=x" not in page
        assert "&lt;img src=x onerror=y&gt;" in page
        assert json.dumps("<b>")[1:-1] not in page.replace("&lt;b&gt;", "")
