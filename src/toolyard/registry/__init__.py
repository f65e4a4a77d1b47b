"""The registry: servers and models that admins add, users' instances of servers, and sign-in to both.

May import ``agents.models``, ``auth``, ``net``, ``config``, ``types`` and ``errors``, and ``store`` for type
checking, except ``model_registry``, which is not loaded with the others. Start reading with ``service``
(servers and instances), ``model_registry``, ``validation`` (rules for fields) and ``auth_provider_factory``
(credentials of connections).
"""

from toolyard.registry.service import Registry
from toolyard.types.registry import ChoiceDraft, InstanceDraft, ServerDraft

__all__ = ["ChoiceDraft", "InstanceDraft", "Registry", "ServerDraft"]
