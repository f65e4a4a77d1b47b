"""How a provider is reached, and which of its models is asked: what messages name."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toolyard.results.redaction import redact
from toolyard.transports.transport import in_one_line

__all__ = ["OWN", "VARIABLES", "Access", "Asked"]

OWN = {
    "openai": "https://api.openai.com/v1",
    "openai-responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
    "ollama": "http://127.0.0.1:11434/v1",
}
"""The address of each provider. The libraries would take others from the environment, so they are told."""

VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
}
"""The variables in which people keep their keys. A provider that is not here needs none."""

_WIDTH = 300
_LOOKED_AT = 20_000
"""Characters of what was said that are searched for secrets; a page of many megabytes takes seconds."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a provider is reached. ``base_url`` None: at its own address."""

    provider: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    called: str | None = None
    """What to call it instead of by its host."""

    @property
    def url(self) -> str:
        return self.base_url or OWN[self.provider]

    @property
    def place(self) -> str:
        """The provider in a word: its name, or the host of another address."""
        if self.called is not None or self.base_url is None:
            return self.called or self.provider
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def lacks_key(self) -> bool:
        """Is it certain that the provider will want a key? Whoever has another address may need none."""
        return self.base_url is None and self.api_key is None and self.provider in VARIABLES


@dataclass(frozen=True, slots=True)
class Asked:
    """Which model is asked, and where."""

    access: Access
    name: str

    def words(self, text: str) -> str:
        """What somebody said, fit to stand in a message: short, on one line, without the key."""
        key = self.access.api_key
        return in_one_line(redact(text[:_LOOKED_AT], () if key is None else (key,)), _WIDTH)
