"""The socket that is listened on: made first, so that a port that is taken is told at once."""

from __future__ import annotations

import errno
import os
import socket

from toolyard.errors import ToolyardError

__all__ = ["CannotListen", "Listener", "open_listener"]

_MAX_PENDING_CONNECTIONS = 2048


class CannotListen(ToolyardError):
    """The address cannot be listened on."""

    exit_code = 2


class Listener:
    """A socket that listens. Who connects waits until somebody answers."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @property
    def address(self) -> str:
        """Where it is reached from this machine, without a slash at the end."""
        host, port = self.socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self.socket.close()


def open_listener(host: str, port: int) -> Listener:
    """Listen on an address; port 0 picks a free one. Raises CannotListen."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on '{host}': {error.strerror or error}",
            hint="--host takes an address of this machine, such as 127.0.0.1",
        ) from None
    family, kind, protocol, _, place = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        # A server that ended a moment ago leaves connections behind that would hold the port for a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(_MAX_PENDING_CONNECTIONS)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _build_listen_error(host, port, error) from None
    return Listener(sock)


def _build_listen_error(host: str, port: int, error: OSError) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return CannotListen(
            f"port {port} of {host} is in use: another program listens there",
            hint="end it, or choose another port with --port; --port 0 picks a free one",
        )
    if error.errno == errno.EACCES:
        return CannotListen(
            f"port {port} of {host} is not for us: {os.strerror(errno.EACCES)}",
            hint="ports below 1024 are reserved; choose a higher one and put a proxy in front",
        )
    return CannotListen(f"cannot listen on port {port} of {host}: {error.strerror or error}")
