"""Recognition of our own proxies, and the client address that they forward."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.accounts.attempt_limits import address_network
from toolyard.accounts.errors import StartRefused
from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback

PROXIES = TrustedProxies(("10.0.0.0/24", "192.0.2.7", "fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.0.0.1", True),
        ("10.0.1.1", False),
        ("192.0.2.7", True),
        ("::ffff:192.0.2.7", True),
        ("192.0.2.8", False),
        ("fd12::1", True),
        ("fd12::1%eth0", True),
        ("::1", False),
        ("", False),
        ("proxy.example", False),
        ("10.0.0.1, 10.0.0.2", False),
    ],
)
def test_a_peer_is_trusted_by_its_address(peer: str, trusted: bool) -> None:
    assert (peer in PROXIES) is trusted


@pytest.mark.parametrize(
    ("peer", "forwarded_header", "caller"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.2.3.4, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.2.3.4", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", [""], "10.0.0.1"),
    ],
)
def test_only_headers_of_trusted_proxies_are_believed(
    peer: str, forwarded_header: list[str], caller: str
) -> None:
    assert PROXIES.client_address(peer, ", ".join(forwarded_header)) == caller


@given(st.text(max_size=150))
def test_every_forwarded_header_yields_an_address(forwarded_header: str) -> None:
    assert PROXIES.client_address("203.0.113.9", forwarded_header) == "203.0.113.9"
    assert address_network(PROXIES.client_address("10.0.0.1", forwarded_header))


@pytest.mark.parametrize("entry", ["proxy.example", "10.0.0.0/33", "", "*", "10.0.0"])
def test_an_invalid_proxy_address_is_an_error(entry: str) -> None:
    with pytest.raises(StartRefused, match="trusted_proxies"):
        TrustedProxies((entry,))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.nip.io", False),
        ("", False),
    ],
)
def test_loopback_is_known_without_asking_anybody(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_addresses_that_one_has_together_count_as_one(one: str, other: str) -> None:
    assert address_network(one) == address_network(other)
