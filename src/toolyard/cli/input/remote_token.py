"""The API token for ``--remote``: from a file or the environment, never from the command line."""

from __future__ import annotations

import os
from pathlib import Path

from toolyard.cli.error_exit import Usage

__all__ = ["REMOTE_TOKEN_VARIABLE", "read_token"]

REMOTE_TOKEN_VARIABLE = "TOOLYARD_REMOTE_TOKEN"


def read_token(file: str | None) -> str | None:
    """Return the token of a file, else of the variable; None if there is neither. Raises Usage."""
    if file is None:
        return _check_token(os.environ.get(REMOTE_TOKEN_VARIABLE, ""), REMOTE_TOKEN_VARIABLE)
    try:
        return _check_token(Path(file).read_text("utf-8"), f"--token-file {file}")
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise Usage(f"--token-file {file}: {words}") from None


def _check_token(text: str, source: str) -> str | None:
    token = text.strip()
    if not token.isprintable() or not token.isascii() or " " in token:
        raise Usage(f"{source}: this is no token", hint="it holds the token and nothing else")
    return token or None
