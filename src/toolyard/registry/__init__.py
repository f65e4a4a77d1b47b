"""The registry: servers that admins add, users' instances of them, and sign-in to both.

May import ``auth``, ``net``, ``config``, ``types`` and ``errors``, and ``store`` for type checking. Start
reading with ``service`` (servers and instances), ``validation`` (rules for their fields) and ``credentials``
(credentials of connections).
"""

from toolyard.registry.service import Registry
from toolyard.types.registry import ChoiceDraft, InstanceDraft, ServerDraft

__all__ = ["ChoiceDraft", "InstanceDraft", "Registry", "ServerDraft"]
