"""The folder in which Toolyard keeps what is its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["default_data_dir"]


def default_data_dir(env: Mapping[str, str] | None = None) -> Path:
    """``TOOLYARD_DATA_DIR``, else the platform's folder for a user's data. Nothing is created."""
    chosen = (os.environ if env is None else env).get("TOOLYARD_DATA_DIR")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    from platformdirs import user_data_path  # not needed where the folder is named

    return user_data_path("toolyard", appauthor=False)
