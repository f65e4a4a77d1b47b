from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from toolyard.config import Configuration, load_config, parse_config
from toolyard.errors import ConfigError, Problem


@pytest.fixture
def problems() -> Callable[..., list[Problem]]:
    """``problems(text)``: parse an invalid configuration, and return its problems."""

    def parse(source: object, **options: object) -> list[Problem]:
        try:
            configuration = parse_config(source, **options)  # type: ignore[arg-type]
        except ConfigError as error:
            return list(error.problems)
        problem_texts = [problem for server in configuration.servers.values() for problem in server.problems]
        assert problem_texts
        return problem_texts

    return parse


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def load(project: Path, data_dir: Path) -> Callable[..., Configuration]:
    """``load_config`` in a project and data directory of the test, without the real environment."""

    def call(path: str | Path | None = None, **options: object) -> Configuration:
        options = {"env": {}, "cwd": project, "data_dir": data_dir, **options}
        return load_config(path, **options)  # type: ignore[arg-type]

    return call


@pytest.fixture
def write() -> Callable[[Path, object], Path]:
    """Write a file: text as it is, anything else as JSON."""

    def call(path: Path, content: object) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), "utf-8")
        return path

    return call


@pytest.fixture
def http() -> Callable[..., Mapping[str, object]]:
    """A configuration of one HTTP server in the strict dialect, with further keys of its entry."""

    def call(
        server_id: str = "repo", url: str = "http://localhost:4010/mcp", **keys: object
    ) -> dict[str, object]:
        entry = {"trust": "trusted", "transport": {"type": "http", "url": url}, **keys}
        return {"servers": {server_id: entry}}

    return call
