"""Servers that other clients know, brought over into one file of ours.

Each client's shape has a module of its own that turns an entry into one of our ``mcpServers``; whatever
cannot be carried over becomes a note, never a failure of the rest.
"""
