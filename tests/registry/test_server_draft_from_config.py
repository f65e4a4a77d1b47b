"""Entries of configuration files as input for a registry server: keys never come along."""

from __future__ import annotations

from typing import Any

import pytest

from toolyard.registry.errors import Invalid
from toolyard.registry.server_draft_from_config import build_entry_draft

KEY = "sk-abcdefghijklmnop"
URL = "https://x.example/mcp"


@pytest.mark.parametrize(
    ("entry", "url", "choice"),
    [
        ({"url": URL}, URL, None),
        ({"url": URL, "headers": {"Authorization": f"Bearer {KEY}"}}, URL, ("header", "Authorization")),
        ({"url": URL, "headers": {"X-Key": "${MY_KEY}"}}, URL, ("header", "X-Key")),
        ({"url": f"{URL}?api_key={KEY}"}, URL, ("query", "api_key")),
        ({"url": f"{URL}?api_key={KEY}&team=a"}, f"{URL}?team=a", ("query", "api_key")),
        ({"url": f"{URL}?team=a&api_key={KEY}"}, f"{URL}?team=a", ("query", "api_key")),
    ],
)
def test_the_place_of_a_key_is_read_and_the_key_is_not(
    entry: dict[str, Any], url: str, choice: tuple[str, str] | None
) -> None:
    entry_draft = build_entry_draft("x", entry)
    assert entry_draft.draft.url == url
    assert [(each.place, each.key) for each in entry_draft.draft.choices] == ([choice] if choice else [])
    assert KEY not in repr(entry_draft)
    assert bool(entry_draft.notes) is (KEY in repr(entry))


def test_other_keys_are_read_or_named_in_a_note() -> None:
    entry_draft = build_entry_draft(
        "x",
        {
            "url": URL,
            "type": "sse",
            "trust": "untrusted",
            "allowTools": ["read*"],
            "denyTools": ["delete"],
            "headers": {"X-Region": "eu", "X-Key": KEY, "X-Other-Token": KEY},
            "timeouts": {},
        },
        "About it",
    )
    draft = entry_draft.draft
    assert (draft.transport, draft.trust, draft.description) == ("sse", "untrusted", "About it")
    assert (draft.allow_tools, draft.deny_tools) == (("read*",), ("delete",))
    assert [each.key for each in draft.choices] == ["X-Key"]
    for words in ("X-Region is left out", "Left out: X-Other-Token", "have no timeouts", "is not stored"):
        assert words in " ".join(entry_draft.notes)


def test_a_client_that_was_registered_by_hand_is_read_without_its_secret() -> None:
    oauth = {"clientId": "abc", "clientSecret": "s3cret", "scopes": "read write"}
    entry_draft = build_entry_draft("x", {"url": URL, "oauth": oauth})
    (choice,) = entry_draft.draft.choices
    assert (choice.kind, choice.client_id, choice.scopes) == ("oauth", "abc", ("read", "write"))
    assert "s3cret" not in repr(entry_draft)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "npx", "args": ["x"]}, "starts a program"),
        ({}, "starts a program"),
        ({"url": 7}, "starts a program"),
        ({"url": "https://${HOST}/mcp"}, "URL has a variable"),
        ({"url": "https://x.example/s/NmFmZGU0Yzk3ZTQ2NGY1YThi/mcp"}, "URL has a token in its path"),
    ],
)
def test_a_program_or_an_address_with_a_variable_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        build_entry_draft("x", entry)
