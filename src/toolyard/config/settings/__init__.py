"""Settings of the platform: their table, value types, sources, and the models listed by an operator.

Start with ``table.py``, which declares every setting, and ``sources.load_settings``.
"""
