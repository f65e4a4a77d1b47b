"""A model that can be selected, and the input that it accepts."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ModelChoice", "can_take_audio", "can_take_images"]

# Providers do not publish this, and an unsupported image fails the whole turn; so unknown models get no
# images.
_IMAGE_MODEL_PATTERN = re.compile(
    r"gpt-(4o|4\.1|4-turbo|4\.5|[5-9])|chatgpt-4o|\bo[1-9]\b|claude|gemini|gemma-?[3-9]|llava|pixtral|moondream"
    r"|minicpm-v|vision|internvl|llama-?4|mistral-small-?3|granite.*vision|glm-[0-9.]+v|(^|[-_/:.])vl([-_/:.]|$)"
    r"|[0-9]-?vl\b",
    re.IGNORECASE,
)
_TEXT_ONLY_MODEL_PATTERN = re.compile(
    r"o1-mini|o1-preview|o3-mini|gpt-oss|embed|gpt-4o-(mini-)?audio|claude-(2|instant)", re.IGNORECASE
)
_AUDIO_MODEL_PATTERN = re.compile(r"audio|gemini|omni|voxtral|ultravox", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model as a picker shows it. Never contains the key."""

    id: str
    label: str
    provider: str
    sees: bool
    """Whether images may be sent to it."""
    hears: bool
    """Whether audio may be sent to it."""
    base_url: str | None
    """Its address without user and password; None for the provider's own address."""


def can_take_images(model_name: str) -> bool:
    """Return whether a model of this name is known to accept images."""
    return bool(_IMAGE_MODEL_PATTERN.search(model_name)) and not _TEXT_ONLY_MODEL_PATTERN.search(model_name)


def can_take_audio(model_name: str) -> bool:
    """Return whether a model of this name is known to accept audio."""
    return bool(_AUDIO_MODEL_PATTERN.search(model_name))
