"""Transports: they move messages between a session and one server; one transport per module.

All implement ``transport.Transport`` and report to a ``transport.Receiver``; start reading there. May import
``protocol``, ``net``, ``auth``, ``types`` and ``errors``, but not ``clients``.
"""
