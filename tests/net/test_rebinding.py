"""DNS rebinding with a real name server, the system's resolver, and real connections.

The program runs in namespaces of its own, where public addresses belong to the loopback interface.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("rebinding.py")
PUBLIC = "93.184.216.34"
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def can_unshare() -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


def run(folder: Path, mode: str) -> list[dict[str, Any]]:
    command = [*NAMESPACES, sys.executable, str(PROGRAM), str(folder), mode]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.skipif(not can_unshare(), reason="needs unshare and ip, and the right to use them")
def test_a_connection_goes_only_to_the_address_that_was_checked(tmp_path: Path) -> None:
    """A name server that first answers with a public address, then with a private one, or with both."""
    report = run(tmp_path, "guarded")
    assert len(report) == 6 * 3
    assert {address for each in report for address in each["reached"]} == {PUBLIC}
    # Each connection takes one lookup, so that there is no second answer to use.
    assert {each["lookups"] for each in report} == {1}
    for first, second, third in (report[at : at + 3] for at in (0, 3, 6)):
        assert (first["outcome"], first["reached"]) == ("ok", [PUBLIC])
        assert second["outcome"] == third["outcome"] == f"the address {first['answers'][1][0]} is private"
    # Without the guard the same name server leads to the private addresses.
    result = run(tmp_path, "unguarded")
    assert {"127.0.0.1", "169.254.169.254", "10.1.2.3"} <= {
        address for each in result for address in each["reached"]
    }
