"""A number of seconds as an option takes it."""

from __future__ import annotations

from math import isnan
from typing import Any

import click

__all__ = ["PositiveSeconds"]


class PositiveSeconds(click.FloatRange):
    """Above 0. What is no number at all, ``nan``, is neither below it nor above, and no time to wait."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        return seconds
