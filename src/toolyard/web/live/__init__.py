"""Live updates for open pages and gateway clients."""
