"""The web app: pages and JSON over the same core."""
