"""Coding agents that others wrote, run against the shared background Toolyard with a scripted model."""
