"""Opening the person's browser, where there is one."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser

__all__ = ["open_browser"]


def open_browser(url: str) -> bool:
    """Try to open a page in a window of its own. False: there is no screen to open it on."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    graphical = bool(screen) or sys.platform in ("darwin", "win32")
    # Without a screen Python would find a browser for the terminal, and hand that over to it.
    if not graphical and not os.environ.get("BROWSER"):
        return False
    # Some browsers keep whoever starts them waiting; nobody waits for this thread.
    threading.Thread(target=_open_url, args=(url,), daemon=True).start()
    return True


def _open_url(url: str) -> None:
    try:
        webbrowser.open(url)
    except (OSError, webbrowser.Error):
        # The address stands on the screen, too.
        return
