"""Messages show no possible secrets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolyard.config import parse_config
from toolyard.errors import ConfigError, Problem

Problems = Callable[..., list[Problem]]

SECRET = "sk-live-0123456789"


@pytest.mark.parametrize(
    "source",
    [
        {"mcpServers": {"a": {"url": "http://a/", "headers": {"X": [SECRET]}}}},
        {"mcpServers": {"a": {"url": "http://a/", "headers": SECRET}}},
        {"mcpServers": {"a": {"url": "http://a/", "headers": {"X": f"{SECRET}\n"}}}},
        {"mcpServers": {"a": {"command": "x", "env": {"K": {"v": SECRET}}}}},
        {"mcpServers": {"a": {"command": "x", "env": {"K": f"{SECRET}\0"}}}},
        {"mcpServers": {"a": {"command": "x", "args": f"--key={SECRET}"}}},
        {"mcpServers": {"a": {"command": "x", "args": ["--key", {"v": SECRET}]}}},
        {"mcpServers": {"a": {"url": f"ftp://user:{SECRET}@host/"}}},
        {"mcpServers": {"a": {"url": f"user:{SECRET}@host/"}}},
        {"mcpServers": {"a": {"url": f"ftp://host/?key={SECRET}"}}},
        {"mcpServers": {"a": {"url": [SECRET]}}},
        {"mcpServers": {"a": {"url": "http://a/", "oauth": {"clientId": "x", "clientSecret": [SECRET]}}}},
        {
            "mcpServers": {
                "a": {"url": "http://a/", "oauth": {"clientId": "x", "clientSecret": f"{SECRET}\n"}}
            }
        },
        {"mcpServers": {"a": {"url": "http://a/", "oauth": {"clientId": 1, "clientSecret": SECRET}}}},
        {"servers": {"a": {"trust": "trusted", "transport": {"type": "http", "url": "x", "apiKey": SECRET}}}},
        f'{{"mcpServers": {{"a": {{"headers": {{"X": {SECRET}}}}}}}}}',
        f'{{"mcpServers": {{"a": {{"headers": {{"X": "{SECRET}" "Y"}}}}}}}}',
        f'{{"mcpServers": {{"a": {{"headers": {{"X": "{SECRET}}}}}}}}}',
    ],
)
def test_an_error_shows_no_secret(problems: Problems, source: object) -> None:
    found_problems = problems(source)
    assert SECRET not in str(ConfigError(found_problems))
    assert SECRET not in repr(found_problems)


def test_a_number_in_place_of_a_secret_is_not_shown(problems: Problems) -> None:
    source = {"mcpServers": {"a": {"url": "http://a/", "oauth": {"clientId": "x", "clientSecret": 8675309}}}}
    assert "8675309" not in str(ConfigError(problems(source)))


def test_neither_does_a_hint_nor_a_reason() -> None:
    configuration = parse_config(
        {
            "mcpServers": {
                "a": {"url": "http://a/", "apiKey": SECRET, "headers": {"X": f"{SECRET} ${{NOBODY}}"}},
                "b": {"command": "x", "env": {"K": f"{SECRET} ${{input:x}}"}},
            }
        }
    )
    hint_texts = [str(hint) for hint in configuration.hints]
    hint_texts += [server.disabled_reason or "" for server in configuration.servers.values()]
    assert len(hint_texts) == 3
    assert all(hint_texts)
    assert SECRET not in "".join(hint_texts)
