from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yarl import URL

from toolyard.errors import ConfigError
from toolyard.net import AddressGuard, AddressRefused, OutboundHttp, is_private

if TYPE_CHECKING:
    from tests.net.conftest import LoopbackHttpServer

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
]
PRIVATE = {
    "loopback": ["127.0.0.1", "127.0.0.2", "127.255.255.255", "::1"],
    "unspecified": ["0.0.0.0", "::"],
    "this network": ["0.0.0.1", "0.255.255.255"],
    "RFC 1918": [
        "10.0.0.0",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.255.255",
    ],
    "link-local": ["169.254.0.1", "169.254.255.255", "fe80::1", "febf::1"],
    "metadata of clouds": ["169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200"],
    "carrier-grade NAT": ["100.64.0.0", "100.127.255.255"],
    "benchmarking": ["198.18.0.1", "198.19.255.255"],
    "IETF protocols": ["192.0.0.1", "192.0.0.8", "192.0.0.170", "192.88.99.1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.254", "255.255.255.255", "4000::1", "5f00::1"],
    "unique local": ["fc00::1", "fd12:3456::1", "fdff::1"],
    "site-local": ["fec0::1", "feff::1"],
    "mapped": [
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:7f00:1",
        "::ffff:100.64.0.1",
    ],
    "compatible": ["::127.0.0.1", "::8.8.8.8"],
    "translated": ["::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::a00:1"],
    "6to4": ["2002:7f00:1::", "2002:a00:1::1", "2002:808:808::"],
    "Teredo": ["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "discard": ["100::1"],
    "scoped": ["fe80::1%eth0", "::1%lo", "fe80::1%25eth0"],
}
UNREADABLE = [
    "",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "1.2.3",
    "1.2.3.4.5",
    ":::",
    "é",
    " ",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_private(address: str) -> None:
    assert not is_private(address)


@pytest.mark.parametrize(
    "address",
    [pytest.param(address, id=f"{kind} {address}") for kind in PRIVATE for address in PRIVATE[kind]],
)
def test_everything_but_a_public_address_is_private(address: str) -> None:
    assert is_private(address)


@pytest.mark.parametrize("address", UNREADABLE)
def test_unparsable_addresses_count_as_private(address: str) -> None:
    assert is_private(address)


@settings(deadline=None)
@given(st.ip_addresses(v=4))
@example(ipaddress.IPv4Address("127.0.0.1"))
def test_a_mapped_address_is_judged_like_the_one_inside(address: ipaddress.IPv4Address) -> None:
    assert is_private(f"::ffff:{address}") == is_private(str(address))


@settings(deadline=None)
@given(st.ip_addresses(v=6))
def test_only_global_unicast_of_version_6_can_be_public(address: ipaddress.IPv6Address) -> None:
    inside = address in ipaddress.ip_network("2000::/3")
    assert inside or address.ipv4_mapped is not None or is_private(str(address))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_judged(address: str) -> None:
    assert isinstance(is_private(address), bool)


# At the socket.


class ScriptedResolver(AbstractResolver):
    """A resolver that gives one prepared answer after the other, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass


@pytest.fixture
def resolver() -> ScriptedResolver:
    return ScriptedResolver()


@pytest.fixture
async def scripted_net(resolver: ScriptedResolver) -> AsyncIterator[OutboundHttp]:
    """A network in which the test chooses the addresses of names."""
    net = OutboundHttp(resolver=resolver)
    yield net
    await net.close()


async def get(net: OutboundHttp, url: Any, *, guarded: bool) -> str:
    async with (
        asyncio.timeout(30),
        net.session(guarded=guarded).get(url, **net.request_options(url, guarded=guarded)) as response,
    ):
        return await response.text()


async def read_refusal(net: OutboundHttp, url: Any) -> str:
    """The words with which a guarded request is refused."""
    with pytest.raises(aiohttp.ClientConnectorError) as exc_info:
        await get(net, url, guarded=True)
    assert isinstance(exc_info.value.os_error, AddressRefused)
    return str(exc_info.value.os_error)


@pytest.mark.both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001"])
async def test_the_guard_refuses_addresses_that_the_unguarded_session_reaches(
    server: LoopbackHttpServer, net: OutboundHttp, host: str
) -> None:
    assert await get(net, server.at(host), guarded=False) == "hello"
    assert "is private" in await read_refusal(net, server.at(host))
    assert len(server.seen) == 1


@pytest.mark.both_loops
@pytest.mark.parametrize("host", ["127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "0x7f.1"])
async def test_no_other_way_to_write_a_private_address_leads_there(
    server: LoopbackHttpServer, net: OutboundHttp, host: str
) -> None:
    with pytest.raises(aiohttp.ClientError):
        await get(net, server.at(host), guarded=True)
    assert server.seen == []


@pytest.mark.both_loops
@pytest.mark.parametrize(
    "host", ["[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "169.254.169.254", "10.0.0.1"]
)
async def test_the_guard_refuses_private_literals_without_dialling(
    server: LoopbackHttpServer, net: OutboundHttp, host: str
) -> None:
    assert "is private" in await read_refusal(net, server.at(host))
    assert server.seen == []


@pytest.mark.both_loops
async def test_a_name_that_leads_to_a_private_address_is_refused(
    server: LoopbackHttpServer, scripted_net: OutboundHttp, resolver: ScriptedResolver
) -> None:
    resolver.answers = [["127.0.0.1"]]
    url = server.at("innocent.example")
    assert await get(scripted_net, url, guarded=False) == "hello"
    assert await read_refusal(scripted_net, url) == "the address 127.0.0.1 is private"
    assert len(server.seen) == 1


@pytest.fixture
async def dialled_addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were dialled. Public ones refuse at once, so that no test leaves this machine."""
    loop = asyncio.get_running_loop()
    connect, addresses = loop.sock_connect, []

    async def sock_connect(sock: socket.socket, address: tuple[Any, ...]) -> None:
        addresses.append(address[0])
        if not ipaddress.ip_address(address[0]).is_loopback:
            raise ConnectionRefusedError(111, "refused")
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    return addresses


async def test_a_name_that_was_public_when_it_was_looked_up_is_refused_when_it_is_private_at_the_socket(
    server: LoopbackHttpServer,
    scripted_net: OutboundHttp,
    resolver: ScriptedResolver,
    dialled_addresses: list[str],
) -> None:
    resolver.answers = [["93.184.216.34"], ["127.0.0.1"]]
    url = server.at("rebinding.example")
    with pytest.raises(aiohttp.ClientConnectorError) as exc_info:
        await get(scripted_net, url, guarded=True)
    assert not isinstance(exc_info.value.os_error, AddressRefused)
    assert await read_refusal(scripted_net, url) == "the address 127.0.0.1 is private"
    assert (dialled_addresses, server.seen) == (["93.184.216.34"], [])
    assert resolver.asked == ["rebinding.example"] * 2


async def test_a_check_before_the_request_is_not_the_protection(
    server: LoopbackHttpServer,
    scripted_net: OutboundHttp,
    resolver: ScriptedResolver,
    dialled_addresses: list[str],
) -> None:
    resolver.answers = [["93.184.216.34"], ["127.0.0.1"]]
    (resolved_address,) = await resolver.resolve("rebinding.example")
    assert not is_private(resolved_address["host"])
    assert "is private" in await read_refusal(scripted_net, server.at("rebinding.example"))
    assert (dialled_addresses, server.seen) == ([], [])


@pytest.mark.parametrize(
    "addresses",
    [["93.184.216.34", "127.0.0.1"], ["127.0.0.1", "93.184.216.34"], ["::1", "93.184.216.34", "127.0.0.1"]],
)
async def test_of_several_addresses_the_private_ones_are_never_dialled(
    server: LoopbackHttpServer,
    scripted_net: OutboundHttp,
    resolver: ScriptedResolver,
    dialled_addresses: list[str],
    addresses: list[str],
) -> None:
    resolver.answers = [addresses]
    assert "the address" in await read_refusal(scripted_net, server.at("mixed.example"))
    assert set(dialled_addresses) == {"93.184.216.34"}
    assert server.seen == []


async def test_the_guard_lets_public_addresses_pass(
    scripted_net: OutboundHttp, resolver: ScriptedResolver, dialled_addresses: list[str]
) -> None:
    resolver.answers = [["93.184.216.34"]]
    with pytest.raises(aiohttp.ClientConnectorError) as exc_info:
        await get(scripted_net, URL("http://public.example:8080/"), guarded=True)
    assert exc_info.value.os_error.errno == 111
    assert dialled_addresses == ["93.184.216.34"]


@pytest.mark.both_loops
async def test_connections_of_the_unguarded_session_do_not_bypass_the_guard(
    server: LoopbackHttpServer, net: OutboundHttp
) -> None:
    assert await get(net, server.url, guarded=False) == "hello"
    assert "is private" in await read_refusal(net, server.url)
    assert await get(net, server.url, guarded=False) == "hello"
    assert len(server.seen) == 2


# What the operator says about it.


def test_deny_wins_over_allow_and_allow_over_private() -> None:
    guard = AddressGuard.from_settings(
        ["10.0.0.0/8", "fd00::/8"], ["10.9.0.0/16", "93.184.216.34", "2001:db8::/32"]
    )
    for address in ("10.1.2.3", "fd00::1", "8.8.8.8", "::ffff:10.1.2.3"):
        assert guard.find_refusal(address) is None
    for address in ("10.9.1.1", "93.184.216.34", "::ffff:10.9.1.1", "192.168.1.1", "fe80::1", "nonsense"):
        assert guard.find_refusal(address) is not None
    refusal = guard.find_refusal("93.184.216.34")
    assert refusal is not None
    assert refusal.is_denied


def test_every_public_address_may_be_denied() -> None:
    guard = AddressGuard.from_settings([], ["0.0.0.0/0", "::/0"])
    for address in ("8.8.8.8", "2606:4700::1111"):
        assert not is_private(address)
        assert guard.find_refusal(address) is not None


def test_an_invalid_address_is_reported_with_its_setting() -> None:
    with pytest.raises(ConfigError) as exc_info:
        AddressGuard.from_settings(["10.0.0.0/8", "intranet"], ["10.0.0.1/8", ""])
    assert [problem.path for problem in exc_info.value.problems] == [
        "guard_allow",
        "guard_deny",
        "guard_deny",
    ]


async def test_an_allowed_address_is_dialled_and_a_denied_one_is_not(server: LoopbackHttpServer) -> None:
    for guard, cases in (
        (AddressGuard.from_settings(["127.0.0.1"], []), True),
        (AddressGuard.from_settings(["127.0.0.0/8"], ["127.0.0.1"]), False),
    ):
        net = OutboundHttp(guard)
        try:
            if cases:
                assert await get(net, server.url, guarded=True) == "hello"
            else:
                assert "is denied" in await read_refusal(net, server.url)
        finally:
            await net.close()
