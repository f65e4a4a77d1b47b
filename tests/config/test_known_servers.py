"""The catalogue of known servers: every entry is complete and can be loaded."""

from __future__ import annotations

import json
import re
from datetime import date

import pytest

from toolyard.config import parse_config
from toolyard.config.entries.identifiers import id_fault
from toolyard.config.known_servers import (
    CheckMethod,
    KnownServer,
    SignInMethod,
    read_known_servers,
    search_known_servers,
)

SERVERS = read_known_servers()


def test_the_catalogue_has_at_least_thirty_servers_in_order() -> None:
    assert len(SERVERS) >= 30
    assert list(SERVERS) == sorted(SERVERS)


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_a_known_server_is_complete_and_can_be_loaded(server: KnownServer) -> None:
    assert id_fault(server.id) is None
    assert server.purpose.endswith(".")
    assert len(server.purpose) < 120
    text = json.dumps(dict(server.entry))
    assert {one.name for one in server.variables} == set(re.findall(r"\$\{([A-Z_]+)\}", text))
    assert (server.sign_in is SignInMethod.KEY) == any(one.secret for one in server.variables)
    assert server.checked_on is not None
    assert date.fromisoformat(server.checked_on) >= date(2026, 11, 18)
    assert (server.check_method is CheckMethod.DOCUMENTS) == ("url" in server.entry)
    # Nothing is pinned to a version here: the person gets the newest one.
    assert not re.search(r"[a-z]@[0-9l]", text)
    filled_entry = server.fill_entry({one.name: "value" for one in server.variables})
    configuration = parse_config(json.dumps({"mcpServers": {server.id: filled_entry}}).encode())
    assert configuration.servers[server.id].enabled
    assert "${" not in json.dumps(filled_entry)


def test_a_search_finds_names_before_purposes() -> None:
    ids = [server.id for server in search_known_servers("issues", SERVERS.values())]
    assert {"github", "linear", "sentry", "atlassian"} <= set(ids)
    assert search_known_servers("git", SERVERS.values())[0].id == "git"
    assert [server.id for server in search_known_servers("jira ISSUES", SERVERS.values())] == ["atlassian"]
    assert search_known_servers("no such thing", SERVERS.values()) == []
