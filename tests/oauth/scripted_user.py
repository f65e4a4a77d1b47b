"""A person who signs in on the pages of ``oidc-provider``, without a browser."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import aiohttp
from yarl import URL

__all__ = ["agree"]


async def agree(url: str, arrived: Callable[[URL], bool]) -> URL:
    """Follow an authorization request and fill in each form, until ``arrived`` accepts a redirect."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        method, at, data = "GET", URL(url, encoded=True), dict[str, str]()
        for _ in range(20):
            async with session.request(method, at, data=data or None, allow_redirects=False) as response:
                page = await response.text()
                if response.status in (302, 303):
                    method, at, data = "GET", at.join(URL(response.headers["Location"], encoded=True)), {}
                    if arrived(at):
                        return at
                    continue
            form = re.search(r'<form[^>]*action="([^"]+)"', page)
            assert form is not None, page
            data = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
            data.update({"login": "ann", "password": "x"} if 'name="login"' in page else {})
            method, at = "POST", at.join(URL(html.unescape(form[1])))
    raise AssertionError("the pages never end")
