"""FastMCP's proxy in front of several servers.

python -m peers.fastmcp_proxy PORT URL...
"""

from __future__ import annotations

import sys

from fastmcp.server import create_proxy

config = {"mcpServers": {f"s{n}": {"url": url} for n, url in enumerate(sys.argv[2:])}}
create_proxy(config).run(
    transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="error"
)
