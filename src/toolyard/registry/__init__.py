"""Servers that an admin entered, and each person's instances of them: the rules about both."""

from toolyard.registry.form_input import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.registry.service import Registry

__all__ = ["ChoiceDraft", "InstanceDraft", "Registry", "ServerDraft"]
