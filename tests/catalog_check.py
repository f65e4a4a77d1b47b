"""``make catalog-check``: check the catalogue of known servers against the package registries.

Needs the network, npm and uv. Each package is downloaded and searched for the names of its variables, and
each server that needs no key is added and started by the real program. Addresses are not contacted.
``--write`` stores the outcome in the data file; names as arguments check only these servers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DATA = ROOT / "src" / "toolyard" / "config" / "known_servers.json"
SAMPLE_VALUES = {"DATABASE": ":memory:"}
START_SECONDS = 300


def run(*words: str, cwd: Path, seconds: float = START_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)


def package_of(server: dict[str, Any]) -> str:
    words = server["entry"]["args"]
    return next(word for word in words if not word.startswith("-"))


def download(server: dict[str, Any], folder: Path) -> str | None:
    """Download the package into the folder; return the reason of a failure."""
    package = package_of(server)
    if server["entry"]["command"] == "npx":
        result = run("npm", "pack", "--silent", package, cwd=folder)
        if result.returncode:
            return result.stderr.strip()[-200:]
        run("tar", "xzf", result.stdout.split()[-1], cwd=folder)
        return None
    command = ("uv", "pip", "install", "-q", "--no-deps", "--python-version", "3.13", "--target", "found")
    install_result = run(*command, package, cwd=folder)
    return install_result.stderr.strip()[-200:] if install_result.returncode else None


def has_word(folder: Path, word: str) -> bool:
    return any(word.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def start(server: dict[str, Any], folder: Path) -> str | None:
    """Add the server with the real program, which starts it; return the reason of a failure."""
    values = [
        word
        for one in server["variables"]
        for word in ("--set", f"{one['name']}={SAMPLE_VALUES.get(one['name'], folder)}")
    ]
    data = folder / "data"
    base = (sys.executable, "-m", "toolyard", "--data-dir", str(data))
    result = run(*base, "add", server["id"], *values, "--json", cwd=folder)
    if result.returncode:
        return result.stderr.strip()[-300:]
    state = json.loads(result.stdout)["servers"][server["id"]]
    return None if state["state"] == "ready" and state["tools"] else f"{state['state']}: {state['cause']}"


def check(server: dict[str, Any]) -> tuple[str | None, list[str]]:
    """Return the best method by which the server was checked, or None, and what failed."""
    if "url" in server["entry"]:
        return "documents", []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        failure = download(server, folder)
        if failure is not None:
            return None, [failure]
        secrets = [one["name"] for one in server["variables"] if one["secret"]]
        missing = [secret for secret in secrets if not has_word(folder, secret)]
        if missing:
            return None, [f"the package does not contain {', '.join(missing)}"]
        if secrets:
            return "package", []
        failure = start(server, folder)
        return ("started", []) if failure is None else ("package", [f"not started: {failure}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--write", action="store_true", help="store method and date in the data file")
    options = parser.parse_args()
    servers: list[dict[str, Any]] = json.loads(DATA.read_text())
    failures = 0
    for server in servers:
        if options.ids and server["id"] not in options.ids:
            continue
        try:
            method, notes = check(server)
        except subprocess.TimeoutExpired as error:
            method, notes = None, [f"timed out: {error.cmd[:3]}"]
        before = server["checked"]["how"]
        worse = method is None or (before == "started" and method != "started")
        failures += worse
        print(f"{server['id']}: {method or 'FAILED'}", *notes, sep=" | ", flush=True)
        if options.write and method is not None and "url" not in server["entry"]:
            server["checked"] = {"how": method, "on": f"{datetime.now(UTC):%Y-%m-%d}"}
            DATA.write_text(json.dumps(servers, indent=2, ensure_ascii=False) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
