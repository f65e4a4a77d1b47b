"""The browser of the tests."""

from __future__ import annotations

import shutil

EXECUTABLE = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The same engine twice: the first, without windows, takes a quarter of the CPU time."""

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
