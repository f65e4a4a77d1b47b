"""The example that comes with the package."""

from __future__ import annotations

__all__ = ["example_config"]


def example_config() -> str:
    """The text of an ``mcp.json`` to begin with: Context7, disabled."""
    from importlib.resources import files  # slow to load, and rarely needed

    return files("toolyard.config").joinpath("example.mcp.json").read_text(encoding="utf-8")
