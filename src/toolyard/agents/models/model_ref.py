"""Address a provider and one of its models, and describe the models that can be selected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolyard.config.settings.model_entries import MODEL_PROVIDERS, ModelProvider
from toolyard.results.redaction import redact_secrets
from toolyard.transports.transport import to_single_line

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.tools import ToolDefinition

__all__ = [
    "ModelChoice",
    "ModelRef",
    "ModelRequest",
    "ProviderAccess",
    "TokenPrices",
    "can_take_audio",
    "can_take_images",
]


_MAX_MESSAGE_CHARACTERS = 300
_MAX_REDACTION_CHARACTERS = 20_000
"""Maximum characters of a provider's message that are searched for secrets; a text of many megabytes
takes seconds.
"""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """Address and key of a provider. Without ``base_url``, its own address is used."""

    provider: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    display_name: str | None = None
    """Name to use in messages instead of the host."""
    stored: bool = False
    """True if an admin entered it in the web app."""
    guarded: bool = False
    """True if private network addresses are refused."""

    @property
    def definition(self) -> ModelProvider:
        """The provider's row of the table."""
        return MODEL_PROVIDERS[self.provider]

    @property
    def key_variable(self) -> str | None:
        """The usual environment variable of the key; None if the provider needs no key."""
        return next(iter(self.definition.key_variables), None)

    @property
    def compatible(self) -> bool:
        """True if the address is used with OpenAI's Chat Completions API."""
        return self.definition.model_class is None or (
            self.base_url is not None and self.definition.compatible_elsewhere
        )

    @property
    def url(self) -> str:
        return self.base_url or self.definition.base_url

    @property
    def provider_label(self) -> str:
        """The provider for messages: its name, or the host of another address."""
        if self.display_name is not None or self.base_url is None:
            return self.display_name or self.provider
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def lacks_key(self) -> bool:
        """True if the provider certainly needs a missing key. A custom address may need none."""
        return self.base_url is None and self.api_key is None and self.key_variable is not None


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Prices in US dollars per million tokens."""

    input: float
    output: float

    def compute_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the cost of a request in US dollars."""
        return (
            Decimal(str(self.input)) * input_tokens + Decimal(str(self.output)) * output_tokens
        ) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model and how to reach its provider."""

    access: ProviderAccess
    name: str

    def sanitize_message(self, text: str) -> str:
        """Return text fit for a message: short, on one line, with the key redacted."""
        key = self.access.api_key
        return to_single_line(
            redact_secrets(text[:_MAX_REDACTION_CHARACTERS], () if key is None else (key,)),
            _MAX_MESSAGE_CHARACTERS,
        )


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
    """True if images may be sent to it."""
    hears: bool
    """True if audio may be sent to it."""
    base_url: str | None
    """Its address without user and password; None for the provider's own address."""

    @property
    def tool_format(self) -> str:
        """Value of ``ProviderApi`` for the schemas of tools. The local model is OpenAI-compatible."""
        return MODEL_PROVIDERS[self.provider if self.provider in MODEL_PROVIDERS else "openai"].tool_format


def can_take_images(model_name: str) -> bool:
    """Return whether a model of this name is known to accept images."""
    return bool(_IMAGE_MODEL_PATTERN.search(model_name)) and not _TEXT_ONLY_MODEL_PATTERN.search(model_name)


def can_take_audio(model_name: str) -> bool:
    """Return whether a model of this name is known to accept audio."""
    return bool(_AUDIO_MODEL_PATTERN.search(model_name))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Content of a request to a model."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ToolDefinition]
    instructions: str | None
    temperature: float | None
    max_tokens: int | None = None
