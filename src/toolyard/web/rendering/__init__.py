"""Text of models and tools as HTML that can do nothing, made within limits.

Uses nothing of the other parts of ``web``, because a child process loads it. Start with ``renderer.py``.
"""
