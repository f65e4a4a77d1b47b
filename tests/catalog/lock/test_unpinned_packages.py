"""Commands that always run the newest version of a package."""

from __future__ import annotations

import shlex

import pytest

from toolyard.catalog.lock.lock_file import detect_unpinned_package
from toolyard.types.server import StdioSpec


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("npx -y some-server", "some-server"),
        ("npx -y @scope/server --flag", "@scope/server"),
        ("npx -y @scope/server@latest", "@scope/server@latest"),
        ("npx -y @scope/server@^1", "@scope/server@^1"),
        ("npx --package=server run-it", "server"),
        ("npx -p server@1.0.0 run-it", None),
        ("npx -y @scope/server@1.2.3", None),
        ("npx -y ./here", None),
        ("npx -y github:owner/repo", None),
        ("npx", None),
        ("/usr/bin/npx server", "server"),
        ("uvx mcp-server", "mcp-server"),
        ("uvx --python 3.12 mcp-server", "mcp-server"),
        ("uvx mcp-server==1.0", None),
        ("uvx mcp-server@1.0", None),
        ("uvx --from mcp-server run", "mcp-server"),
        ("uvx --from git+https://example.com/x run", None),
        ("uv tool run mcp-server", "mcp-server"),
        ("uv run mcp-server", None),
        ("pipx run mcp-server", "mcp-server"),
        ("bunx server", "server"),
        ("mcp-server", None),
        ("python -m server", None),
    ],
)
def test_the_package_without_a_version_is_found(line: str, package: str | None) -> None:
    command, *args = shlex.split(line)
    assert detect_unpinned_package(StdioSpec(command, tuple(args))) == package
