"""Agents: their definition files, their built-in tools, the model providers and the chats.

``definitions`` reads AGENTS.md, ``models`` streams from model providers, ``builtin_tools`` is the server of
local tools and ``chat`` runs turns. May import ``catalog``, ``clients``, ``meta_tools``, ``policy``,
``config`` and ``types``; not ``web``, ``gateway`` or ``cli``.
"""
