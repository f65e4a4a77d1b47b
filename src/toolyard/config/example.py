"""Example configuration that is included in the package."""

from __future__ import annotations

__all__ = ["example_config"]


def example_config() -> str:
    """Return the text of a first ``mcp.json``, with the server Context7, disabled."""
    from importlib.resources import files  # slow to import, and rarely needed

    return files("toolyard.config").joinpath("example.mcp.json").read_text(encoding="utf-8")
