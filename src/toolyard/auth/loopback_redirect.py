"""Loopback HTTP listener for the redirect of a sign-in that was started at a terminal."""

from __future__ import annotations

import asyncio
import html
import os

from aiohttp import web

from toolyard.auth.errors import AnswerRejected, AuthUnavailable
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.errors import ToolyardError

__all__ = ["CallbackListener"]

_CALLBACK_PATH = "/callback"
_PAGE_TEMPLATE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>
body{{font:16px/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0;
color:#1c2430;background:#f6f7f9}}main{{max-width:28rem;padding:2rem;text-align:center}}
h1{{font-size:1.4rem}}@media(prefers-color-scheme:dark){{body{{color:#e6e9ee;background:#14181f}}}}
</style><main><h1>{title}</h1><p>{words}</p></main></html>"""
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


class CallbackListener:
    """Listens on 127.0.0.1 for one redirect. Use ``async with``, then ``wait``.

    Accepts the first request to the callback path with a ``state``. If ``wait`` is given a state, other
    states are refused: on a fixed port, the browser may still return from an earlier sign-in.
    """

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._response_future: asyncio.Future[AuthorizationResponse] | None = None
        self._expected_state: str | None = None

    @property
    def redirect_uri(self) -> str:
        """The shared redirect URI; the addresses of single issuers are paths below it."""
        return f"{self._origin}{_CALLBACK_PATH}"

    @property
    def _origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> CallbackListener:
        self._response_future = asyncio.get_running_loop().create_future()
        self._runner = web.ServerRunner(web.Server(self._handle_request), shutdown_timeout=1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ToolyardError(
                f"cannot listen on port {self._port} of this machine: {os.strerror(error.errno or 0)}",
                hint="set another callbackPort under 'oauth', or stop the program that uses the port",
            ) from None
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def wait(
        self, timeout_seconds: float = 300.0, *, state: str | None = None
    ) -> AuthorizationResponse:
        """Wait for the redirect, and return its parameters and address. Raises AuthUnavailable on timeout."""
        assert self._response_future is not None, "enter the context with `async with` first"
        self._expected_state = state
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(self._response_future)
        except TimeoutError:
            raise AuthUnavailable(
                f"the sign-in was not completed within {timeout_seconds:g} s",
                hint="start again when you are ready",
            ) from None

    async def _handle_request(self, request: web.BaseRequest) -> web.Response:
        assert self._response_future is not None
        # Scripts of other web pages must not reach this listener: require our own host name, against DNS
        # rebinding, and a document navigation, which a script's fetch() is not.
        is_navigation = request.host in (f"127.0.0.1:{self._port}", f"localhost:{self._port}")
        is_navigation = is_navigation and request.headers.get("Sec-Fetch-Dest", "document") == "document"
        is_callback = request.path == _CALLBACK_PATH or request.path.startswith(f"{_CALLBACK_PATH}/")
        if not is_navigation or not is_callback or request.method != "GET" or "state" not in request.query:
            return _render_page(404, "Page not found", "This address only completes sign-ins.")
        if self._response_future.done():
            return _render_page(410, "Already done", "This sign-in has ended. You can close this window.")
        if self._expected_state not in (None, request.query["state"]):
            return _render_page(
                409, "Different sign-in", "This page belongs to an earlier sign-in. Start again."
            )
        try:
            response = AuthorizationResponse.from_query(self._origin + request.path, request.query.items())
        except AnswerRejected as error:
            return _render_page(400, "Not signed in", error.cause)
        self._response_future.set_result(response)
        if "error" in request.query:
            return _render_page(
                200, "Not signed in", "The sign-in was refused. See the terminal for details."
            )
        return _render_page(200, "Almost done", "You can close this window and return to the terminal.")


def _render_page(status: int, title: str, message: str) -> web.Response:
    text = _PAGE_TEMPLATE.format(title=html.escape(title), words=html.escape(message))
    return web.Response(status=status, text=text, content_type="text/html", headers=_PAGE_HEADERS)
