"""The command, with patience for servers that start slowly: ``python -P tests/patient.py serve``.

A list waits two seconds for servers that have not answered yet, and goes without them. On a machine that does
many things at once that is not enough to begin to speak with one.
"""

from __future__ import annotations

from toolyard.cli import main
from toolyard.clients import deferred_listings

if __name__ == "__main__":
    assert deferred_listings.LIST_DEADLINE_SECONDS == 2.0
    deferred_listings.LIST_DEADLINE_SECONDS = 60.0
    main()
