"""The listening socket. It is opened before anything else, to report a used port at once."""

from __future__ import annotations

import errno
import os
import socket

from toolyard.errors import ToolyardError

__all__ = ["CannotListen", "Listener", "open_listener"]

_MAX_PENDING_CONNECTIONS = 2048


class CannotListen(ToolyardError):
    """Raised when the server cannot listen on an address."""

    exit_code = 2


class Listener:
    """A listening socket. Connections are queued until the server accepts them."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @property
    def address(self) -> str:
        """URL of the socket on this machine, without a trailing slash."""
        host, port = self.socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self.socket.close()


def open_listener(host: str, port: int) -> Listener:
    """Listen on an address. Port 0 selects a free port. Raises CannotListen."""
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on '{host}': {error.strerror or error}",
            hint="set --host to an address of this machine, such as 127.0.0.1",
        ) from None
    family, kind, protocol, _, bind_address = candidates[0]
    sock = socket.socket(family, kind, protocol)
    try:
        # Connections of a server that has just ended would block the port for a minute (TIME_WAIT).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(bind_address)
        sock.listen(_MAX_PENDING_CONNECTIONS)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _build_listen_error(host, port, error) from None
    return Listener(sock)


def _build_listen_error(host: str, port: int, error: OSError) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return CannotListen(
            f"port {port} on {host} is already in use",
            hint="stop the other program, or choose another port with --port (0 selects a free one)",
        )
    if error.errno == errno.EACCES:
        return CannotListen(
            f"cannot listen on port {port} of {host}: {os.strerror(errno.EACCES)}",
            hint="ports below 1024 need special rights; use a higher port behind a proxy",
        )
    return CannotListen(f"cannot listen on port {port} of {host}: {error.strerror or error}")
