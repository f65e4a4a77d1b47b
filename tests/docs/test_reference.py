"""The reference matches the code: settings, commands, routes, and keys of a configuration."""

from __future__ import annotations

import json
import re

import pytest
from tests.docs import package_diagram
from tests.docs.reference import FOLDER, PAGES

from toolyard.config import parse_config
from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.sources.json_document import JsonValue

HTTP = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {}}
OAUTH = {"clientId": "a", "grant": "client_credentials", "clientSecret": "b"}
EVERYTHING = [
    {
        "servers": {
            "a": {"trust": "trusted", "transport": HTTP, "oauth": OAUTH, "timeouts": {}, "cache": {}},
            "b": {"trust": "trusted", "transport": {"type": "stdio", "command": "x", "env": {}}},
        },
        "bundles": {"c": {"serverId": "a", "mode": "direct"}},
    },
    {"mcpServers": {"a": {"url": "http://127.0.0.1:1/mcp"}, "b": {"command": "x"}}},
]


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_matches_the_code(page: str) -> None:
    text = re.sub(r"[ \t]+\n", "\n", PAGES[page]())
    assert (FOLDER / page).read_text() == text, "out of date: run `make reference`"


def test_the_picture_of_the_packages_follows_the_architecture_test() -> None:
    assert package_diagram.FILE.read_text() == package_diagram.picture(), "out of date: run `make reference`"


def test_every_key_that_a_configuration_may_have_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    requested_names: set[str] = set()
    get = CheckedObject.get

    def noting(entry: CheckedObject, key: str) -> JsonValue:
        requested_names.add(key)
        return get(entry, key)

    monkeypatch.setattr(CheckedObject, "get", noting)
    for each in EVERYTHING:
        parse_config(json.dumps(each))
    assert {"trust", "silence", "grant", "serverId", "command"} <= requested_names
    page = (FOLDER / "configuration.md").read_text()
    assert [key for key in sorted(requested_names) if f"`{key}`" not in page] == []
    first = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    keys = {key for column in first for key in re.findall(r"`(\w+)`", column)}
    assert keys - requested_names == set(), "documented, but no key"
