"""Live updates for open pages and for listening gateway clients.

``updates.py`` polls status records for pages and has no dependencies in ``web``; ``notices.py`` notifies
gateway clients after changes of the registry.
"""
