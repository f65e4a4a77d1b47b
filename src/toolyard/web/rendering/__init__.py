"""Rendering of untrusted Markdown from models and tools as safe HTML, within time limits.

Imports no other part of ``web``, because a child process loads this package. Start with ``renderer.py``.
"""
