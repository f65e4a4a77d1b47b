"""The standard streams, made fit for whatever is read and printed."""

from __future__ import annotations

import codecs
import os
import sys
from typing import cast

__all__ = ["prepare_streams"]

_STREAM_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def prepare_streams() -> None:
    """Call it before anything is opened.

    A stream that whoever started us had closed leads nowhere from then on. Else the next file or connection
    would get its number: what is printed would go there, and an event loop ends the process over it.
    """
    codecs.register_error("toolyard", _escape_unencodable)
    for name, mode in _STREAM_MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we run
    for stream in (sys.stdout, sys.stderr):
        # A server may send what this terminal's encoding does not have; that must not end us.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="toolyard")


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """What an encoding does not have, as JSON writes it: what we print may be JSON, and stays it."""
    import json  # only for what cannot be printed as it is

    failed = cast("UnicodeEncodeError", error)
    return json.dumps(failed.object[failed.start : failed.end])[1:-1], failed.end
