"""Why a file of another client is left as it is."""

from __future__ import annotations

from typing import NoReturn

from toolyard.errors import ConfigError, Problem

__all__ = ["EditRefused", "refuse_edit"]


class EditRefused(ConfigError):
    """The file could only be changed at the cost of something in it. It was not touched."""


def refuse_edit(message: str, *, path: str = "") -> NoReturn:
    """Raises EditRefused; the file's name is added by whoever knows it."""
    raise EditRefused([Problem(message, path=path, hint="put the entry there by hand")])
