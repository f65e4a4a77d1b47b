"""The limit on open file descriptors of a process that serves."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["raise_descriptor_limit"]

_MAX_DESCRIPTORS = 65_536


def raise_descriptor_limit(max_descriptors: int = _MAX_DESCRIPTORS) -> int | None:
    """Raise the soft limit as far as the hard one allows, and return the limit in force; None: there is none.

    Soft limits are low for the sake of programs that use select(), which we do not.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_descriptors if hard == resource.RLIM_INFINITY else min(max_descriptors, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft
