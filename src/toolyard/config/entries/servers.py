"""Parse entries of ``servers`` (Toolyard's dialect), ``mcpServers`` (that of other clients) and ``bundles``.

Keys common to both dialects are read by the same function. The dialects differ in the location of the
transport, in the key that disables a server, and in whether ``trust`` is required. Transport and OAuth
options are parsed here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from toolyard.config.entries.checked_object import CheckedObject, ProblemReport
from toolyard.config.sources.json_document import JsonPath
from toolyard.config.suggestions import did_you_mean
from toolyard.types.server import (
    Bundle,
    HttpSpec,
    OAuthSpec,
    ProtocolEra,
    RestartPolicy,
    Server,
    SessionPolicy,
    StdioSpec,
    Timeouts,
    TransportSpec,
    Trust,
    UrlTransportName,
)

__all__ = [
    "BARE_STAR_HINT",
    "ConfigLayer",
    "RawBundle",
    "UnexpandedServer",
    "invalid_compatible_server",
    "is_bare_star",
    "read_allow_tools",
    "read_bundle",
    "read_compatible_server",
    "read_flat_transport",
    "read_nested_transport",
    "read_oauth",
    "read_strict_server",
    "report_bare_stars",
]


@dataclass(frozen=True, slots=True)
class UnexpandedServer:
    """A server with unexpanded variables. ``server`` is None if its transport is invalid.

    ``transport_path`` is the location of the transport's keys, which depends on the dialect.
    """

    server: Server | None
    path: JsonPath
    transport_path: JsonPath
    report: ProblemReport
    fallback: Server | None = None
    """Definition that is listed if the entry is invalid. None in the strict dialect, where an invalid entry
    makes the whole configuration invalid. ``report`` then belongs to this entry alone."""


@dataclass(frozen=True, slots=True)
class RawBundle:
    """A bundle with the location of its entry. ``bundle`` is None if its entry is invalid."""

    bundle: Bundle | None
    server_id: str | None
    path: JsonPath
    report: ProblemReport


@dataclass(frozen=True, slots=True)
class ConfigLayer:
    """All entries of one source. ``approved`` is False for a discovered file that is not approved yet."""

    report: ProblemReport
    servers: dict[str, UnexpandedServer] = field(default_factory=dict[str, UnexpandedServer])
    bundles: dict[str, RawBundle] = field(default_factory=dict[str, RawBundle])
    broken: bool = False
    """The source is not valid JSON, so references to missing entries are not reported."""
    approved: bool = True
    folder: Path | None = None
    """Project folder of a discovered file, in which its stdio servers run."""


BARE_STAR_HINT = "an untrusted server cannot be allowed everything: list the tools you need"

_ALLOW_TOOLS_KEY = "allowTools"


def read_allow_tools(entry: CheckedObject) -> tuple[str, ...] | None:
    """Return the allowlist, or None if it is missing.

    An empty one is a problem: it would block every tool.
    """
    if entry.value.get(_ALLOW_TOOLS_KEY) == []:
        entry.report.add_problem(
            (*entry.path, _ALLOW_TOOLS_KEY),
            "expected at least one tool, found an empty list",
            hint="leave allowTools out to allow every tool of a trusted server",
        )
    return entry.patterns(_ALLOW_TOOLS_KEY)


def is_bare_star(pattern: str) -> bool:
    """Return whether a pattern matches every name."""
    return bool(pattern) and not pattern.strip("*")


def report_bare_stars(patterns: tuple[str, ...] | None, path: JsonPath, report: ProblemReport) -> None:
    """Report patterns that match everything, which are not allowed for an untrusted server."""
    for index, pattern in enumerate(patterns or ()):
        if is_bare_star(pattern):
            report.add_problem(
                (*path, _ALLOW_TOOLS_KEY, index),
                f'expected the name of a tool or a narrower glob, found "{pattern}"',
                hint=BARE_STAR_HINT,
            )


_NO_IDS: Mapping[str, str] = MappingProxyType({})
_URL_ALIASES = ("serverUrl", "httpUrl")
"""Names that some clients use for ``url``."""


def read_nested_transport(entry: CheckedObject) -> TransportSpec | None:
    """Parse the object ``transport`` of an entry. Returns None, with problems reported, if it is invalid."""
    if entry.get("transport") is None:
        flat = "url" in entry.value or "command" in entry.value
        hint = (
            "under 'servers' the transport is a separate object; entries that contain url or command "
            "directly belong under 'mcpServers'"
        )
        entry.report_mismatch("transport", "an object", None, hint=hint if flat else None)
        return None
    inner = entry.child_object("transport")
    if inner is None:
        return None
    kind = inner.choice("type", tuple(_SPEC_READERS), required=True)
    if kind is None:
        return None
    transport = _SPEC_READERS[kind](inner)
    inner.report_unknown_keys()
    return transport


def read_flat_transport(entry: CheckedObject) -> TransportSpec | None:
    """Parse the transport's keys from the entry itself, the form of most clients."""
    kind = _read_transport_type(entry)
    if kind is None:
        return None
    return _SPEC_READERS[kind](entry)


def _read_transport_type(entry: CheckedObject) -> str | None:
    # Some clients use the key "transport" for the type; a string there has the same meaning.
    key = "transport" if entry.get("type") is None and entry.get("transport") is not None else "type"
    value = entry.get(key)
    if value is None:
        return _infer_transport_type(entry)
    if isinstance(value, str):
        word = value.casefold().replace("-", "").replace("_", "")
        word = _TYPE_ALIASES.get(word, word)
        if word in _SPEC_READERS:
            return word
    expected = " or ".join(f'"{word}"' for word in _FLAT_TYPE_NAMES)
    entry.report_mismatch(key, expected, value, show_value=True, hint=_hint_for_type(value))
    return None


def _infer_transport_type(entry: CheckedObject) -> str | None:
    has_url, has_command = entry.get("url") is not None, entry.get("command") is not None
    if has_url and has_command:
        hint = 'add "type": "http" or "type": "stdio"'
        entry.report.add_problem(entry.path, "both 'url' and 'command' are given", hint=hint)
        return None
    if not has_url and not has_command:
        alias = next((key for key in _URL_ALIASES if entry.get(key) is not None), None)
        hint = "set the URL of the server, or the command that starts it"
        if alias is not None:
            hint = f"rename '{alias}' to 'url', or convert the file with `toolyard import`"
        entry.report.add_problem(entry.path, "expected 'url' or 'command', found neither", hint=hint)
        return None
    return "http" if has_url else "stdio"


def _hint_for_type(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if value in ("local", "remote"):
        return "this is opencode's format; convert the file with `toolyard import`"
    return did_you_mean(value, _FLAT_TYPE_NAMES, list_known=False)


def _read_url_spec(entry: CheckedObject, kind: UrlTransportName) -> HttpSpec | None:
    url = entry.text("url", required=True)
    headers = entry.text_map("headers")
    provider = entry.text("authProviderId")
    if url is None:
        return None
    return HttpSpec(url=url, headers=headers, auth_provider_id=provider, type=kind)


def _read_stdio_spec(entry: CheckedObject) -> StdioSpec | None:
    command = entry.text("command", required=True)
    args = entry.texts("args")
    env = entry.text_map("env")
    cwd = entry.text("cwd")
    if command is None:
        return None
    return StdioSpec(command=command, args=args or (), env=env, cwd=cwd)


_SPEC_READERS: Mapping[str, Callable[[CheckedObject], TransportSpec | None]] = {
    "http": partial(_read_url_spec, kind="http"),
    "sse": partial(_read_url_spec, kind="sse"),
    "stdio": _read_stdio_spec,
}
"""Reader of the keys of each transport, by its name."""
_TYPE_ALIASES = {"streamablehttp": "http"}
_FLAT_TYPE_NAMES = ("streamableHttp", *_SPEC_READERS)


def read_oauth(entry: CheckedObject) -> OAuthSpec | None:
    """Parse the object ``oauth`` of an entry; None if it is missing."""
    inner = entry.child_object("oauth")
    if inner is None:
        return None
    grant = inner.choice("grant", ("authorization_code", "client_credentials"))
    spec = OAuthSpec(
        client_id=inner.text("clientId"),
        client_secret=inner.text("clientSecret"),
        scopes=_read_scopes(inner),
        resource=inner.text("resource"),
        callback_port=inner.port("callbackPort") or 0,
        legacy_discovery=inner.flag("legacyDiscovery") or False,
        grant="client_credentials" if grant == "client_credentials" else "authorization_code",
        private_key_file=inner.text("privateKeyFile"),
        issuer=inner.text("issuer"),
        issuer_redirect=inner.flag("issuerRedirect") or False,
    )
    inner.report_unknown_keys()
    _check_client_credentials(inner, spec)
    return spec


def _read_scopes(inner: CheckedObject) -> tuple[str, ...]:
    """Return the scopes from a list or, in the format of other clients, from a string with spaces."""
    value = inner.get("scopes")
    if isinstance(value, str) and not inner.strict:
        return tuple(value.split())
    return inner.texts("scopes") or ()


def _check_client_credentials(inner: CheckedObject, spec: OAuthSpec) -> None:
    proof = spec.client_secret or spec.private_key_file
    if spec.grant == "client_credentials" and not proof:
        inner.report.add_problem(
            inner.path,
            "the grant client_credentials needs 'clientSecret' or 'privateKeyFile', found neither",
        )
    elif proof and not spec.client_id:
        inner.report.add_problem(inner.path, "expected 'clientId' beside the secret or key, found none")


_PLACEHOLDER_TRANSPORT = StdioSpec(command="")
"""Replacement for an invalid transport, so that the other keys are still checked."""
_DEFAULT_SERVER = Server(id="", transport=_PLACEHOLDER_TRANSPORT)
_DEFAULT_TIMEOUTS, _DEFAULT_CACHE_TTL_SECONDS = _DEFAULT_SERVER.timeouts, _DEFAULT_SERVER.cache_ttl


def read_strict_server(server_id: str, entry: CheckedObject) -> UnexpandedServer:
    """Parse an entry of ``servers``: ``trust`` and ``transport`` are required, unknown keys are problems."""
    trust = entry.enum_member("trust", Trust, required=True)
    transport = read_nested_transport(entry)
    enabled = entry.flag("enabled")
    return _read_server(server_id, entry, transport, trust, enabled, (*entry.path, "transport"))


def read_compatible_server(server_id: str, entry: CheckedObject) -> UnexpandedServer:
    """Parse an entry of ``mcpServers``: it contains the transport's keys itself, unknown keys are hints."""
    trust = entry.enum_member("trust", Trust)
    nested = isinstance(entry.value.get("transport"), dict)
    transport = read_nested_transport(entry) if nested else read_flat_transport(entry)
    path = (*entry.path, "transport") if nested else entry.path
    return _read_server(server_id, entry, transport, trust, _read_enabled(entry), path)


def invalid_compatible_server(server_id: str, entry: CheckedObject) -> UnexpandedServer:
    """Return an entry of ``mcpServers`` that is not an object; its report has the problem."""
    server = Server(
        id=server_id, transport=_PLACEHOLDER_TRANSPORT, provenance=entry.report.provenance(entry.path)
    )
    return UnexpandedServer(None, entry.path, entry.path, entry.report, server)


def _read_server(
    server_id: str,
    entry: CheckedObject,
    transport: TransportSpec | None,
    trust: Trust | None,
    enabled: bool | None,
    transport_path: JsonPath,
) -> UnexpandedServer:
    """Parse the keys common to both dialects, even if the transport is invalid."""
    server = Server(
        id=server_id,
        transport=transport or _choose_placeholder(entry),
        trust=trust or Trust.TRUSTED,
        enabled=enabled is not False,
        label=entry.text("label"),
        description=entry.text("description"),
        shared=entry.flag("shared") or False,
        protocol=entry.enum_member("protocol", ProtocolEra) or ProtocolEra.AUTO,
        timeouts=_read_timeouts(entry),
        stop_when_idle=entry.seconds("stopWhenIdle"),
        restart=entry.enum_member("restart", RestartPolicy) or RestartPolicy.NEVER,
        sessions=entry.enum_member("sessions", SessionPolicy) or SessionPolicy.SHARED,
        cache_ttl=_read_cache_ttl(entry),
        allow_tools=read_allow_tools(entry),
        deny_tools=entry.patterns("denyTools") or (),
        private_addresses=entry.flag("privateAddresses"),
        oauth=read_oauth(entry),
        provenance=entry.report.provenance(entry.path),
    )
    if transport is not None or entry.strict:
        # The keys of an unknown transport are unknown, too; one problem is enough for them.
        entry.report_unknown_keys()
    if server.trust is Trust.UNTRUSTED:
        report_bare_stars(server.allow_tools, entry.path, entry.report)
    if server.oauth is not None and isinstance(transport, StdioSpec):
        entry.report.add_hint((*entry.path, "oauth"), "has no effect on a stdio server")
    if server.sessions is SessionPolicy.PER_CLIENT:
        path = (*entry.path, "sessions")
        if isinstance(transport, HttpSpec):
            entry.report.add_hint(path, "has no effect on an HTTP server")
        elif server.shared:
            entry.report.add_problem(path, "contradicts 'shared'", hint="keep one of the two")
    usable = server if transport is not None else None
    fallback = None if entry.strict else server
    return UnexpandedServer(usable, entry.path, transport_path, entry.report, fallback)


def _choose_placeholder(entry: CheckedObject) -> TransportSpec:
    has_url = "url" in entry.value and "command" not in entry.value
    return HttpSpec(url="") if has_url else _PLACEHOLDER_TRANSPORT


def _read_timeouts(entry: CheckedObject) -> Timeouts:
    inner = entry.child_object("timeouts")
    if inner is None:
        return _DEFAULT_TIMEOUTS
    timeouts = Timeouts(
        connect=inner.seconds("connect") or _DEFAULT_TIMEOUTS.connect,
        silence=inner.seconds("silence") or _DEFAULT_TIMEOUTS.silence,
        call=inner.seconds("call") or _DEFAULT_TIMEOUTS.call,
    )
    inner.report_unknown_keys()
    return timeouts


def _read_cache_ttl(entry: CheckedObject) -> float:
    inner = entry.child_object("cache")
    if inner is None:
        return _DEFAULT_CACHE_TTL_SECONDS
    ttl = inner.seconds("ttl", allow_zero=True)
    inner.report_unknown_keys()
    return _DEFAULT_CACHE_TTL_SECONDS if ttl is None else ttl


def _read_enabled(entry: CheckedObject) -> bool | None:
    """Read ``enabled``, or ``disabled`` as other clients write it. If both are present, they must agree."""
    enabled, disabled = entry.flag("enabled"), entry.flag("disabled")
    if enabled is not None and disabled is not None and enabled is disabled:
        entry.report.add_problem(
            (*entry.path, "disabled"),
            "contradicts 'enabled'",
            hint="keep one of the two",
        )
    if enabled is None and disabled is not None:
        return not disabled
    return enabled


def read_bundle(bundle_id: str, entry: CheckedObject, server_ids: Mapping[str, str] = _NO_IDS) -> RawBundle:
    """Parse one bundle. Its server is checked later, when all sources have been read.

    ``server_ids`` has the ids of servers whose names in the file are not valid ids.
    """
    name = entry.text("serverId", required=True)
    server_id = None if name is None else server_ids.get(name, name)
    mode = entry.choice("mode", ("direct", "meta"), required=True)
    label = entry.text("label")
    allow, deny = read_allow_tools(entry), entry.patterns("denyTools")
    entry.report_unknown_keys()
    bundle = None
    if server_id is not None and mode is not None:
        bundle = Bundle(
            id=bundle_id,
            server_id=server_id,
            mode="direct" if mode == "direct" else "meta",
            label=label,
            allow_tools=allow,
            deny_tools=deny or (),
            provenance=entry.report.provenance(entry.path),
        )
    return RawBundle(bundle, server_id, entry.path, entry.report)
