"""Loading what talks to models: large libraries whose modules import one another in circles.

Two threads that enter such a circle at different places see half a module. So whoever loads a part of it, in
whichever thread, does it here, one after the other.
"""

from __future__ import annotations

import threading
from importlib import import_module

__all__ = ["LOADING", "load"]

LOADING = threading.Lock()
"""Of the process, as the modules are."""


def load(*modules: str) -> None:
    """Import these. Not in the event loop: it takes seconds. Raises ImportError."""
    with LOADING:
        for module in modules:
            import_module(module)
