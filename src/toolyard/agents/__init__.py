"""Agents: their file, their tools, their chat."""
