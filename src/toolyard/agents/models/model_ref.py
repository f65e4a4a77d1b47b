"""How a provider is reached, and which of its models is asked: what messages name."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toolyard.results.redaction import redact_secrets
from toolyard.transports.transport import to_single_line

__all__ = ["API_KEY_VARIABLES", "DEFAULT_BASE_URLS", "ModelRef", "ProviderAccess"]

DEFAULT_BASE_URLS = {
    "openai": "https://api.openai.com/v1",
    "openai-responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
    "ollama": "http://127.0.0.1:11434/v1",
}
"""The address of each provider. The libraries would take others from the environment, so they are told."""

API_KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
}
"""The variables in which people keep their keys. A provider that is not here needs none."""

_MAX_MESSAGE_CHARACTERS = 300
_MAX_REDACTION_CHARACTERS = 20_000
"""Characters of what was said that are searched for secrets; a page of many megabytes takes seconds."""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """How a provider is reached. ``base_url`` None: at its own address."""

    provider: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    display_name: str | None = None
    """What to call it instead of by its host."""

    @property
    def url(self) -> str:
        return self.base_url or DEFAULT_BASE_URLS[self.provider]

    @property
    def place(self) -> str:
        """The provider in a word: its name, or the host of another address."""
        if self.display_name is not None or self.base_url is None:
            return self.display_name or self.provider
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def lacks_key(self) -> bool:
        """Is it certain that the provider will want a key? Whoever has another address may need none."""
        return self.base_url is None and self.api_key is None and self.provider in API_KEY_VARIABLES


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Which model is asked, and where."""

    access: ProviderAccess
    name: str

    def words(self, text: str) -> str:
        """What somebody said, fit to stand in a message: short, on one line, without the key."""
        key = self.access.api_key
        return to_single_line(
            redact_secrets(text[:_MAX_REDACTION_CHARACTERS], () if key is None else (key,)),
            _MAX_MESSAGE_CHARACTERS,
        )
