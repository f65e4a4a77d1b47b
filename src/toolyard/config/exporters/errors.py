"""Error for an edit that would lose something in a client's file."""

from __future__ import annotations

from typing import NoReturn

from toolyard.errors import ConfigError, Problem

__all__ = ["EditRefused", "refuse_edit"]


class EditRefused(ConfigError):
    """Raised when a file cannot be changed without losing something in it. The file was not changed."""


def refuse_edit(message: str, *, path: str = "") -> NoReturn:
    """Raise EditRefused without a file name, which ``plan_edits`` adds."""
    raise EditRefused([Problem(message, path=path, hint="edit the file by hand")])
