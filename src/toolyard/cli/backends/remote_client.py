"""Client of another Toolyard's API, for ``--remote``, and its token: from a file or the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from toolyard import errors
from toolyard.cli.invocation import Options, Usage
from toolyard.cli.output.console import show_note
from toolyard.config.file_io import is_exposed

__all__ = ["REMOTE_TOKEN_VARIABLE", "RemoteClient", "quote_path_segment", "read_token"]

_CONNECT_TIMEOUT_SECONDS = 10.0
_PROBLEM_TYPE_PREFIX = "urn:toolyard:problem:"
_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


class RemoteClient:
    """One running Toolyard. Use it as an async context manager."""

    def __init__(self, url: str, token: str | None) -> None:
        import aiohttp  # slow to load, and not for the help

        self.url = url.rstrip("/")
        headers = {"Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
        )

    @classmethod
    def from_options(cls, options: Options) -> RemoteClient:
        """Build the client from the command line's options. Raises Usage."""
        url = options.remote or ""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Usage(
                f"--remote {url}: not a valid web address", hint="write it like http://127.0.0.1:8420"
            )
        token = read_token(options.token_file)
        if token is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
            show_note("the token is sent without encryption", "use an https address")
        return cls(url, token)

    async def __aenter__(self) -> RemoteClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, **query: str | list[str] | None) -> Any:
        """Return the response to a GET request. Raises the error that the remote reports, or Unreachable."""
        given = [
            (name, each)
            for name, value in query.items()
            if value is not None
            for each in (value if isinstance(value, list) else [value])
        ]
        return await self._send_request("GET", path, params=given)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the response to a POST request. Raises like ``get``."""
        return await self._send_request("POST", path, json=body)

    async def _send_request(self, method: str, path: str, **request_options: Any) -> Any:
        import aiohttp  # loaded by now

        try:
            async with self._session.request(
                method, f"{self.url}/api/v1{path}", allow_redirects=False, **request_options
            ) as response:
                body = await response.read()
                return _parse_response(self.url, response.status, body)
        except (aiohttp.ClientError, OSError) as error:
            raise errors.Unreachable(
                f"Toolyard at {self.url} cannot be reached: {str(error) or type(error).__name__}",
                hint="is it running? `toolyard serve` prints its address",
            ) from None


def quote_path_segment(name: str) -> str:
    """Quote a name as a segment of a path."""
    return quote(name, safe="")


def _parse_response(url: str, status: int, body: bytes) -> Any:
    try:
        found: Any = json.loads(body or b"{}")
    except ValueError:
        found = None
    if status < 300 and found is not None:
        return found
    if not isinstance(found, dict) or "status" not in found:
        raise errors.BadAnswer(
            f"the server at {url} is not Toolyard (HTTP status {status})", hint="check the address"
        )
    raise _build_error(status, cast("dict[str, Any]", found))


_SERVER_ERRORS: dict[str, type[errors.ServerError]] = {
    "unreachable": errors.Unreachable,
    "session-lost": errors.SessionLost,
    "bad-answer": errors.BadAnswer,
    "timeout": errors.CallTimeout,
    "outcome-unknown": errors.OutcomeUnknown,
    "server-error": errors.ServerError,
    "throttled": errors.Throttled,
    "sign-in-needed": errors.SignInNeeded,
}
_FILE_ERRORS: dict[str, type[errors.AgentsError | errors.ConfigError]] = {
    "no-such-agent": errors.AgentsError,
    "no-such-bundle": errors.ConfigError,
}
_OTHER_ERRORS: dict[str, type[errors.ToolyardError]] = {
    "tool-refused": errors.ToolRefused,
    "not-allowed": errors.ToolRefused,
    "not-found": Usage,
}


def _build_error(status: int, problem: dict[str, Any]) -> errors.ToolyardError:
    """Rebuild the error that the remote reports, as it would have been raised here."""
    cause, hint = str(problem.get("detail", "")), problem.get("hint")
    kind = str(problem.get("type", "")).removeprefix(_PROBLEM_TYPE_PREFIX)
    if status == 401:
        sign_in_hint = f"set {REMOTE_TOKEN_VARIABLE} to a token, or pass a file with --token-file"
        return errors.SignInNeeded(cause, hint=sign_in_hint)
    if kind in _FILE_ERRORS:
        return _FILE_ERRORS[kind]([errors.Problem(cause, hint=hint)])
    if kind == "rpc-error":
        code = problem.get("code") or 0
        message = cause.removesuffix(f" (code {code})")
        error: errors.ServerError = errors.RpcError(code, message, problem.get("data"), hint=hint)
    elif kind in _SERVER_ERRORS:
        error = _SERVER_ERRORS[kind](cause, hint=hint)
    else:
        return _OTHER_ERRORS.get(kind, errors.ToolyardError)(cause, hint=hint)
    error.server = problem.get("server") or ""
    return error


REMOTE_TOKEN_VARIABLE = "TOOLYARD_REMOTE_TOKEN"
_MAX_TOKEN_BYTES = 64 * 1024


def read_token(file: str | None) -> str | None:
    """Return the token of a file, else of the variable; None if there is neither. Raises Usage."""
    if file is None:
        return _check_token(os.environ.get(REMOTE_TOKEN_VARIABLE, ""), REMOTE_TOKEN_VARIABLE)
    try:
        text = _read_file(file).decode("utf-8")
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise Usage(f"--token-file {file}: {words}") from None
    token = _check_token(text, f"--token-file {file}")
    if token is None:
        raise Usage(f"--token-file {file}: the file is empty", hint="write the token to the file")
    if is_exposed(Path(file)):
        show_note(
            f"--token-file {file}: all users of this machine can read this file", f"run: chmod o-rwx {file}"
        )
    return token


def _read_file(file: str) -> bytes:
    # A pipe is accepted, because a shell makes one for <(command). With O_NONBLOCK, a pipe without a writer
    # is read as empty instead of waiting forever. The size is limited, because a device may never end.
    flags = getattr(os, "O_NONBLOCK", 0)
    with open(file, "rb", opener=lambda path, mode: os.open(path, mode | flags)) as stream:
        if flags:
            os.set_blocking(stream.fileno(), True)
        return stream.read(_MAX_TOKEN_BYTES)


def _check_token(text: str, source: str) -> str | None:
    token = text.strip()
    if not token.isprintable() or not token.isascii() or " " in token:
        raise Usage(f"{source}: not a valid token", hint="it must contain the token and nothing else")
    return token or None
