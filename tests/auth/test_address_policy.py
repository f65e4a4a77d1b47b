from __future__ import annotations

import pytest
from yarl import URL

from toolyard.auth.errors import AddressNotAllowed
from toolyard.auth.oauth_http import AddressPolicy, is_private_host

PUBLIC = "https://mcp.example.com/mcp"
OLD_FORMS = ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "localhost.", "LOCALHOST"]


@pytest.mark.parametrize(
    ("configured_url", "allowed", "expected", "guarded"),
    [
        (PUBLIC, None, "https://mcp.example.com/.well-known/x", False),
        (PUBLIC, None, "https://auth.example.com/token", True),
        (PUBLIC, None, "http://127.0.0.1/token", True),
        (PUBLIC, None, "https://mcp.example.com:8443/", True),
        ("http://localhost:4010/mcp", None, "http://127.0.0.1:9/token", False),
        ("http://127.0.0.1:4010/mcp", None, "https://auth.example.com/", False),
        ("http://192.168.1.5/mcp", None, "http://192.168.1.6/", False),
        ("http://[::1]:80/mcp", None, "http://192.168.1.6/", False),
        ("http://8.8.8.8/mcp", None, "http://192.168.1.6/", True),
        ("http://intranet/mcp", None, "http://intranet/x", False),
        ("http://intranet/mcp", None, "http://other/x", True),
        (PUBLIC, True, "http://10.0.0.1/", False),
        (PUBLIC, False, PUBLIC, True),
        ("http://localhost/mcp", False, "http://localhost/", True),
    ],
)
def test_addresses_named_by_a_server_are_guarded_unless_the_operator_allows_them(
    configured_url: str, allowed: bool | None, expected: str, guarded: bool
) -> None:
    assert AddressPolicy(configured_url, allowed).is_guarded(URL(expected)) is guarded


@pytest.mark.parametrize(
    ("allowed", "address", "fine"),
    [
        (None, "https://auth.example.com/token", True),
        (None, "http://auth.example.com/token", False),
        (None, "http://127.0.0.1:8080/token", False),
        (None, "http://app.localhost/token", False),
        (None, "https://10.0.0.1/token", False),
        (None, "https://2130706433/token", False),
        (False, "https://169.254.169.254/token", False),
        (False, "https://[::ffff:10.0.0.1]/token", False),
        (True, "http://127.0.0.1:8080/token", True),
        (True, "http://auth.lan/token", True),
        (False, "http://auth.lan/token", False),
        (True, "ftp://auth.lan/token", False),
        (None, "https://auth.example.com/to ken", False),
        (None, "https://auth.example.com/\r\nx", False),
        (None, "https://auth.example.com/\x9b2J", False),
        (None, "https://auth.example.com/\u202e", False),
        (None, "auth.example.com", False),
        (None, "", False),
        # Browsers decode %31 in a host.
        (None, "https://%31%32%37.0.0.1/authorize", False),
        (True, "https://localhost%2e/authorize", False),
        # The end of the address shows its target.
        (None, f"https://{'a' * 5000}@127.0.0.1/authorize", False),
        (None, f"https://auth.example.com/{'a' * 4000}", True),
    ],
)
def test_endpoints_are_encrypted_and_near_ones_allowed_by_the_operator(
    allowed: bool | None, address: str, fine: bool
) -> None:
    reach = AddressPolicy(PUBLIC, allowed)
    if fine:
        assert reach.check_endpoint(address, "it") == address
    else:
        with pytest.raises(AddressNotAllowed):
            reach.check_endpoint(address, "it")


def test_a_server_on_this_machine_may_name_others_here() -> None:
    assert AddressPolicy("http://localhost:1/mcp").check_endpoint("http://127.0.0.1:2/token", "it")
    with pytest.raises(AddressNotAllowed):
        AddressPolicy("http://localhost:1/mcp", False).check_endpoint("http://127.0.0.1:2/token", "it")


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "127.0.0.1", "10.1.2.3", "::1", "fe80::1%eth0", *OLD_FORMS]
)
def test_local_hosts(host: str) -> None:
    assert is_private_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "localhost.example.com",
        "8.8.8.8",
        "2606:4700::1111",
        "",
        "127.0.0.1.nip.io",
        "134744072",
    ],
)
def test_other_hosts(host: str) -> None:
    assert not is_private_host(host)
