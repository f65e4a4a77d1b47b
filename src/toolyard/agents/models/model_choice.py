"""A model that can be picked, and what is known of its senses."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ModelChoice", "hears", "sees"]

# Providers do not say it, and a picture that a model does not take ends the turn; so the unknown is blind.
_SEEING_FAMILIES = re.compile(
    r"gpt-(4o|4\.1|4-turbo|4\.5|[5-9])|chatgpt-4o|\bo[1-9]\b|claude|gemini|gemma-?[3-9]|llava|pixtral|moondream"
    r"|minicpm-v|vision|internvl|llama-?4|mistral-small-?3|granite.*vision|glm-[0-9.]+v|(^|[-_/:.])vl([-_/:.]|$)"
    r"|[0-9]-?vl\b",
    re.IGNORECASE,
)
_BLIND = re.compile(
    r"o1-mini|o1-preview|o3-mini|gpt-oss|embed|gpt-4o-(mini-)?audio|claude-(2|instant)", re.IGNORECASE
)
_HEARING = re.compile(r"audio|gemini|omni|voxtral|ultravox", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What a picker shows of a model. It never holds the key."""

    id: str
    label: str
    provider: str
    sees: bool
    """Pictures may be sent to it."""
    hears: bool
    """Sounds may be sent to it."""
    base_url: str | None
    """Where it is asked, without user and password; None: its provider's own address."""


def sees(model_name: str) -> bool:
    """Does a model of this name take pictures, as far as is known?"""
    return bool(_SEEING_FAMILIES.search(model_name)) and not _BLIND.search(model_name)


def hears(model_name: str) -> bool:
    """Does a model of this name take sounds, as far as is known?"""
    return bool(_HEARING.search(model_name))
