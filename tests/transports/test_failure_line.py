"""Of a program's last lines, the one that says what happened."""

from __future__ import annotations

import pytest

from toolyard.transports.transport import find_failure_line

STACK = """\
file:///srv/dist/main.js:23
        throw new Error("No API key");
              ^

Error: No API key provided. Set AIRTABLE_API_KEY
    at new Service (file:///srv/dist/service.js:11:19)
    at async Loader.import (node:internal/modules/esm/loader:606:24) {
  code: 'ERR_NO_KEY'
}

Node.js v20.20.2
"""
USAGE = """\
Error: No access token was provided.
Run `serve auth login` first, or pass `--access-token`.
Usage: serve [--access-token=<token>]

Examples:
  serve --access-token=TOKEN
"""
PANIC = """\
thread 'main' panicked at src/main.rs:5:
no configuration
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
NPM = """\
npm warn Unknown user config "nodedir". This will stop working in the next major version of npm.
npm error code E404
npm error 404 Not Found - GET https://packages.test/nothing-mcp - Not found
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/debug-0.log
"""
UV = """\
error: No solution found when resolving tool dependencies
  cause: Because nothing-mcp was not found in the package registry and you require nothing-mcp, we can \
conclude that your requirements are unsatisfiable.

hint: Packages were unavailable because the network was disabled.
"""
UV_IN_LINES = """\
  × No solution found when resolving tool dependencies:
  ╰─▶ Because nothing-mcp was not found in the package registry and you require
      nothing-mcp, we can conclude that your requirements are unsatisfiable.
"""
UV_REASON = (
    "Because nothing-mcp was not found in the package registry and you require nothing-mcp, we can conclude"
    " that your requirements are unsatisfiable."
)
UV_CHAIN = """\
  × Failed to download `nothing-mcp==1.0`
  ├─▶ Failed to fetch: `https://packages.test/nothing-mcp.whl`
  ╰─▶ HTTP status client error (403 Forbidden)
"""
DOCKER = """\
docker: Cannot connect to the Docker daemon. Is the docker daemon running?

Run 'docker run --help' for more information
"""
RETRIES = """\
starting
[Redis Error] Error: connect ECONNREFUSED 127.0.0.1:1
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1611:16)
"""


@pytest.mark.parametrize(
    ("stderr_text", "failure_line"),
    [
        (STACK, "Error: No API key provided. Set AIRTABLE_API_KEY"),
        (USAGE, "Error: No access token was provided."),
        (PANIC, "no configuration"),
        (NPM, "npm error 404 Not Found - GET https://packages.test/nothing-mcp - Not found"),
        (
            "npm ERR! could not determine executable to run\n",
            "npm ERR! could not determine executable to run",
        ),
        ("npm error code 1\n", "npm error code 1"),
        (UV, UV_REASON),
        (UV_IN_LINES, UV_REASON),
        (UV_CHAIN, "HTTP status client error (403 Forbidden)"),
        ("error: x\n  cause:\n", "error: x"),
        ("  ╰─▶ \x1b[31mred\n", "red"),
        ("error: it ends\n  cause: y\nlater\n", "later"),
        (DOCKER, "docker: Cannot connect to the Docker daemon. Is the docker daemon running?"),
        (RETRIES, "[Redis Error] Error: connect ECONNREFUSED 127.0.0.1:1"),
        ("Traceback (most recent call last):\n  File 'x', line 1\nKeyError: 'TOKEN'\n", "KeyError: 'TOKEN'"),
        ("Error: no cache, going on\nPlease set TOKEN\n", "Please set TOKEN"),
        ("error: no such agent\nhint: there are: a, b\n", "error: no such agent"),
        ("One moment.\nWhat is missing:\n  TOKEN\n", "One moment."),
        ("  only this  \n\n", "only this"),
        ("Node.js v20.20.2\n", ""),
        ("", ""),
    ],
)
def test_the_line_that_describes_the_failure_is_chosen(stderr_text: str, failure_line: str) -> None:
    assert find_failure_line(stderr_text.splitlines()) == failure_line
