"""Frozen dataclasses and enums that the packages of Toolyard exchange.

They contain data and values derived from it, no I/O. This package imports only ``toolyard.errors``. Start
with ``server`` (definition of a server), ``tool`` and ``call``.
"""
