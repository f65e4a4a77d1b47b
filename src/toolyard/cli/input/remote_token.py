"""The API token for ``--remote``: from a file or the environment, never from the command line."""

from __future__ import annotations

import os
from pathlib import Path

from toolyard.cli.error_exit import Usage
from toolyard.cli.output.messages import show_note
from toolyard.config.files import is_exposed

__all__ = ["REMOTE_TOKEN_VARIABLE", "read_token"]

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
        raise Usage(f"--token-file {file}: the file is empty", hint="write the token to it")
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
