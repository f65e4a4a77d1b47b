"""Building blocks for tasks and caches that several packages use.

This package imports no other package of Toolyard. ``tasks`` has background tasks and shared calls,
``lru_cache`` a bounded cache.
"""
