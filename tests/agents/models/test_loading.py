"""The libraries for models are loaded by several threads at once, as at the first message."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
from toolyard.agents.models.asked import Access, Asked
from toolyard.agents.models.loading import load
from toolyard.agents.models.providers import Clients

wrong = []

def noted(work, *given):
    try:
        work(*given)
    except BaseException as error:
        wrong.append(repr(error))

asked = Asked(Access("openai", "http://127.0.0.1:1/v1", "key"), "some-model")
threads = [
    threading.Thread(target=noted, args=(load, "toolyard.agents.chat.talking")),
    threading.Thread(target=noted, args=(load, "toolyard.agents.chat.sampling")),
    threading.Thread(target=noted, args=(Clients(1.0)._make, asked)),
]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit("; ".join(wrong) or 0)
"""


def test_whoever_loads_them_at_the_same_time_sees_whole_modules() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
