from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.config import parse_config
from toolyard.config.value_checks import mask_url_secrets, mask_user_info, url_fault
from toolyard.errors import Problem

Problems = Callable[..., list[Problem]]


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:4010/mcp",
        "https://mcp.example.com",
        "HTTPS://EXAMPLE.COM/x?y=z",
        "http://[::1]:8080/mcp",
        "http://127.0.0.1/",
        "https://user:pass@example.com/",
        "https://münchen.example/",
        "http://my_host/",
    ],
)
def test_an_http_address_is_accepted(http: Callable[..., Any], url: str) -> None:
    assert parse_config(http(url=url)).servers["repo"].transport.url == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "example.com/mcp",
        "//example.com/",
        "http://",
        "http:///mcp",
        "http://:80/",
        "http:example.com",
        "http://a:port/",
        "http://a:99999/",
        "http://[::1/",
        "http://a b/",
        "http://a/\n",
        " http://a/",
        "http://good.example\\@evil.example/",
        "javascript:alert(1)",
        "file:///etc/passwd",
    ],
)
def test_invalid_http_addresses_are_refused(problems: Problems, http: Callable[..., Any], url: str) -> None:
    (problem,) = problems(http(url=url))
    assert problem.path == "servers.repo.transport.url"
    assert "expected an http(s) URL" in problem.message


@settings(deadline=None)
@given(st.text())
def test_no_text_makes_the_check_itself_fail(text: str) -> None:
    for url in (text, f"http://{text}"):
        fault = url_fault(url)
        assert fault or url.lower().startswith(("http://", "https://"))


@pytest.mark.parametrize("name", ["", "X Key", "X:Key", "X\nKey", "Ключ", "a\0b"])
def test_a_header_needs_a_valid_name(problems: Problems, name: str) -> None:
    (problem,) = problems({"mcpServers": {"a": {"url": "http://a/", "headers": {name: "x"}}}})
    assert "not a valid header name" in problem.message


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x1bb", "a\x7fb"])
def test_a_header_cannot_carry_a_second_one(problems: Problems, value: str) -> None:
    (problem,) = problems({"mcpServers": {"a": {"url": "http://a/", "headers": {"X-Key": value}}}})
    assert problem.path == "mcpServers.a.headers.X-Key"
    assert problem.message == (
        "contains a line break" if {*"\r\n"} & {*value} else "contains a control character"
    )


def test_a_header_may_hold_tabs_and_letters_of_any_language() -> None:
    headers = {"X-Key": "a\tb ü 日本"}
    read = parse_config({"mcpServers": {"a": {"url": "http://a/", "headers": headers}}})
    assert read.servers["a"].transport.headers == headers


def test_one_header_in_two_spellings_is_an_error(problems: Problems) -> None:
    headers = {"Authorization": "a", "authorization": "b"}
    (problem,) = problems({"mcpServers": {"a": {"url": "http://a/", "headers": headers}}})
    assert problem.path == "mcpServers.a.headers.authorization"


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"command": "a\0b"}, "mcpServers.a.command"),
        ({"command": "x", "args": ["y", "a\0b"]}, "mcpServers.a.args[1]"),
        ({"command": "x", "env": {"A": "a\0b"}}, "mcpServers.a.env.A"),
        ({"command": "x", "env": {"A=B": "c"}}, "mcpServers.a.env['A=B']"),
        ({"command": "x", "env": {"": "c"}}, "mcpServers.a.env['']"),
        ({"command": "x", "cwd": ""}, "mcpServers.a.cwd"),
    ],
)
def test_invalid_process_arguments_are_refused(problems: Problems, entry: dict[str, Any], path: str) -> None:
    (problem,) = problems({"mcpServers": {"a": entry}})
    assert problem.path == path


def test_a_shown_address_has_no_secrets_in_it() -> None:
    assert mask_url_secrets("https://u:p@host/x?key=1") == "https://***@host/x"
    assert mask_url_secrets("https://host/s/NmFmZGU0Yzk3ZTQ2NGY1YThi/mcp") == "https://host/s/***/mcp"
    assert mask_url_secrets("u:p@host") == "***@host"
    assert mask_url_secrets("http:/u:p@host") == "***@host"


def test_a_shown_address_keeps_its_true_host() -> None:
    assert mask_user_info("https://good.example@evil.example/a") == "https://***@evil.example/a"
    assert mask_user_info("https://host/@scope/x") == "https://host/@scope/x"
