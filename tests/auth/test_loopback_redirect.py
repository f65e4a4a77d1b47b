from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from toolyard.auth.errors import AuthUnavailable
from toolyard.auth.loopback_redirect import CallbackListener
from toolyard.errors import ToolyardError


@pytest.fixture
async def browser(no_proxies: None) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.both_loops
async def test_the_redirect_is_handed_over_and_the_person_sees_a_page(browser: aiohttp.ClientSession) -> None:
    async with CallbackListener() as listener:
        task = asyncio.create_task(listener.wait(30))
        async with browser.get(f"{listener.redirect_uri}?state=s&code=a%20b&iss=i") as response:
            assert response.status == 200
            page = await response.text()
        received = await task
        assert received.params == {"state": "s", "code": "a b", "iss": "i"}
        assert received.address == listener.redirect_uri
    assert "close this window" in page
    assert "a b" not in page
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Referrer-Policy"] == "no-referrer"


async def test_the_address_that_was_called_is_handed_over(browser: aiohttp.ClientSession) -> None:
    async with CallbackListener() as listener:
        address = f"{listener.redirect_uri}/0123"
        async with browser.get(f"{address}?state=s&code=c") as response:
            assert response.status == 200
        assert (await listener.wait(30)).address == address


async def test_an_error_is_handed_over_too(browser: aiohttp.ClientSession) -> None:
    async with CallbackListener() as listener:
        url = f"{listener.redirect_uri}?state=s&error=access_denied&error_description=<script>"
        async with browser.get(url) as response:
            assert "<script>" not in await response.text()
        assert (await listener.wait(30)).params["error"] == "access_denied"


async def test_only_the_first_redirect_counts(browser: aiohttp.ClientSession) -> None:
    async with CallbackListener() as listener:
        for code, status in (("first", 200), ("second", 410)):
            async with browser.get(f"{listener.redirect_uri}?state=s&code={code}") as response:
                assert response.status == status
        assert (await listener.wait(30)).params["code"] == "first"


async def test_the_window_of_an_earlier_sign_in_ends_no_later_one(browser: aiohttp.ClientSession) -> None:
    async with CallbackListener() as listener:
        task = asyncio.create_task(listener.wait(30, state="later"))
        await asyncio.sleep(0)
        for state, status in (("earlier", 409), ("later", 200)):
            async with browser.get(f"{listener.redirect_uri}?state={state}&code={state}") as response:
                assert response.status == status
        assert (await task).params["code"] == "later"


async def test_other_requests_are_not_taken_for_the_redirect(browser: aiohttp.ClientSession) -> None:
    async with CallbackListener() as listener:
        base = listener.redirect_uri.removesuffix("/callback")
        for method, path, host in [
            ("GET", "/", None),
            ("GET", "/favicon.ico", None),
            ("GET", "/callback", None),
            ("POST", "/callback?state=s&code=c", None),
            ("GET", "/callback?state=s&code=c", "evil.example"),
        ]:
            headers = {"Host": host} if host else {}
            async with browser.request(method, base + path, headers=headers) as response:
                assert response.status == 404
        # An image on another site that has our address.
        picture = {"Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "cross-site"}
        async with browser.get(f"{listener.redirect_uri}?state=s&code=c", headers=picture) as response:
            assert response.status == 404
        with pytest.raises(AuthUnavailable, match="was not completed"):
            await listener.wait(0.05)


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        busy_socket.listen()
        port = busy_socket.getsockname()[1]
        with pytest.raises(ToolyardError, match=f"port {port} of .*: Address already") as exc_info:
            async with CallbackListener(port):
                pass
    assert "callbackPort" in (exc_info.value.hint or "")


async def test_a_chosen_port_is_used_and_free_again_afterwards(leaks: None) -> None:
    async with CallbackListener() as first:
        port = int(first.redirect_uri.split(":")[2].split("/")[0])
    for _ in range(2):
        async with CallbackListener(port) as again:
            assert again.redirect_uri == f"http://127.0.0.1:{port}/callback"
