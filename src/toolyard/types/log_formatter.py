"""Formatter of logs for people."""

from __future__ import annotations

import logging

from toolyard.types.visible_text import visible

__all__ = ["TextFormatter"]


class TextFormatter(logging.Formatter):
    """Format of text logs, in which texts from outside neither begin lines nor control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record)).replace("\n", "\n    ")
