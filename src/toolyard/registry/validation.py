"""Validation of form input for servers and instances; all problems are collected before raising."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar, get_args

from yarl import URL

from toolyard.config.entries.allowlists import BARE_STAR_HINT, is_bare_star
from toolyard.errors import Problem
from toolyard.net import is_same_origin
from toolyard.registry import field_validation
from toolyard.registry.errors import Invalid
from toolyard.registry.form_input import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    Instance,
    InstanceState,
    RegistrationMethod,
    RegistryServer,
)
from toolyard.types.server import Trust, UrlTransportName

__all__ = ["FieldChecker", "is_different_origin", "validate_instance", "validate_server"]


E = TypeVar("E", bound=StrEnum)


class FieldChecker:
    """Collects problems of fields. Each check records its problem and returns a value to continue with."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def add_problem(self, path: str, message: str, hint: str | None = None) -> None:
        """Record a problem of the field at ``path``."""
        self._problems.append(Problem(message, path=path, hint=hint))

    def check_text(
        self, path: str, text: str, find_fault: Callable[[str], str | None], hint: str | None = None
    ) -> str:
        """Check a text with ``find_fault``, and return it without surrounding whitespace."""
        text = text.strip()
        if (fault := find_fault(text)) is not None:
            self.add_problem(path, fault, hint)
        return text

    def check_texts(
        self, path: str, texts: Iterable[str], find_fault: Callable[[str], str | None], max_entries: int
    ) -> tuple[str, ...]:
        """Check each text with ``find_fault``, and return them without duplicates."""
        entries = list(texts)
        if len(entries) > max_entries:
            self.add_problem(path, f"has {len(entries):,} entries, at most {max_entries:,} are allowed")
            return ()
        checked = [
            self.check_text(f"{path}[{index}]", text, find_fault) for index, text in enumerate(entries)
        ]
        return tuple(dict.fromkeys(checked))

    def parse_enum(self, path: str, value: str, enum_type: type[E], default: E) -> E:
        """Return the member of an enumeration with this value, or ``default`` if it is not valid."""
        with suppress(ValueError):
            return enum_type(value)
        self.add_problem(path, f"must be one of {', '.join(each.value for each in enum_type)}")
        return default

    def raise_problems(self) -> None:
        """Raise Invalid if any problem was recorded."""
        if self._problems:
            raise Invalid(self._problems)


_MAX_CHOICES = 10
_MAX_TOOL_PATTERNS = 500
_MAX_FILTERED_TOOLS = 2000
_MAX_SCOPES = 100


def new_id() -> str:
    """Return a random id that is hard to guess and needs no escaping in URLs."""
    return secrets.token_hex(8)


def is_different_origin(old: str, new: str) -> bool:
    """Return whether two URLs have different origins, so that they must not share credentials."""
    return not is_same_origin(URL(old), URL(new))


# Servers.


def validate_server(draft: ServerDraft, old: RegistryServer | None, now: float) -> RegistryServer:
    """Return the server described by a draft, which replaces ``old`` if that is given. Raises Invalid."""
    checker = FieldChecker()
    url = checker.check_text(
        "url", draft.url, field_validation.server_url_fault, "write it like https://mcp.example.com/mcp"
    )
    trust = checker.parse_enum("trust", draft.trust, Trust, Trust.UNTRUSTED)
    allow = _validate_allow_tools(checker, draft.allow_tools, trust)
    enabled = draft.enabled if draft.enabled is not None else (old.enabled if old is not None else True)
    server = RegistryServer(
        id=old.id if old is not None else new_id(),
        name=checker.check_text("name", draft.name, field_validation.name_fault),
        url=url,
        transport=_validate_transport(checker, draft.transport),
        trust=trust,
        enabled=enabled,
        description=checker.check_text("description", draft.description, field_validation.description_fault),
        private_addresses=draft.private_addresses,
        allow_tools=allow,
        deny_tools=checker.check_texts(
            "deny_tools", draft.deny_tools, field_validation.tool_pattern_fault, _MAX_TOOL_PATTERNS
        ),
        created_at=old.created_at if old is not None else now,
        updated_at=now,
    )
    old_choices = () if old is None else old.choices
    # An invalid URL cannot be compared; it is reported as a problem of its own field.
    origin_changed = (
        old is not None
        and field_validation.server_url_fault(url) is None
        and is_different_origin(old.url, url)
    )
    choices = _validate_choices(checker, draft.choices, old_choices, origin_changed=origin_changed)
    checker.raise_problems()
    return replace(server, choices=choices)


def _validate_transport(checker: FieldChecker, value: str) -> UrlTransportName:
    names: tuple[UrlTransportName, ...] = get_args(UrlTransportName)
    if value in names:
        return value
    checker.add_problem(
        "transport",
        f"must be one of {', '.join(names)}",
        "stdio servers are configured in the operator's files",
    )
    return "http"


def _validate_allow_tools(
    checker: FieldChecker, patterns: tuple[str, ...] | None, trust: Trust
) -> tuple[str, ...] | None:
    if patterns is not None and not patterns:
        checker.add_problem(
            "allow_tools",
            "must contain at least one tool if it is given",
            "omit it to allow all tools of a trusted server",
        )
    allow = (
        None
        if patterns is None
        else checker.check_texts(
            "allow_tools", patterns, field_validation.tool_pattern_fault, _MAX_TOOL_PATTERNS
        )
    )
    if trust is Trust.TRUSTED:
        return allow
    # New tools of an untrusted server must not become available by themselves, so it needs an allowlist
    # that names tools.
    if patterns is None:
        checker.add_problem("allow_tools", "is required for an untrusted server", BARE_STAR_HINT)
    for index, pattern in enumerate(patterns or ()):
        if is_bare_star(pattern.strip()):
            checker.add_problem(
                f"allow_tools[{index}]", "must be a tool's name or a narrower glob", BARE_STAR_HINT
            )
    return allow


# Sign-in choices of servers.


def _validate_choices(
    checker: FieldChecker,
    drafts: tuple[ChoiceDraft, ...],
    old_choices: tuple[AuthChoice, ...],
    *,
    origin_changed: bool,
) -> tuple[AuthChoice, ...]:
    if len(drafts) > _MAX_CHOICES:
        checker.add_problem("choices", f"has {len(drafts)} entries, at most {_MAX_CHOICES} are allowed")
        return ()
    by_id = {choice.id: choice for choice in old_choices}
    choices: list[AuthChoice] = []
    for index, draft in enumerate(drafts or (ChoiceDraft(),)):
        path = f"choices[{index}]"
        # ``pop``: an id may be used by one draft only.
        old = by_id.pop(draft.id, None) if draft.id is not None else None
        if draft.id is not None and old is None:
            checker.add_problem(f"{path}.id", "is not the id of a choice of this server")
        choice = _validate_choice(checker, path, draft, old, origin_changed=origin_changed)
        if any(choice.label.casefold() == other.label.casefold() for other in choices):
            checker.add_problem(
                f"{path}.label", "is also the label of another choice", "give each choice a distinct label"
            )
        choices.append(choice)
    return tuple(choices)


def _validate_choice(
    checker: FieldChecker, path: str, draft: ChoiceDraft, old: AuthChoice | None, *, origin_changed: bool
) -> AuthChoice:
    kind = checker.parse_enum(f"{path}.kind", draft.kind, AuthKind, AuthKind.PUBLIC)
    if old is not None and old.kind is not kind:
        # Another kind makes it a new choice: the credentials of users do not fit any more.
        old = None
    choice = AuthChoice(old.id if old is not None else new_id(), kind)
    if kind is AuthKind.HEADER:
        choice = _validate_header_choice(checker, path, draft, choice)
    elif kind is AuthKind.OAUTH:
        choice = _validate_oauth_choice(checker, path, draft, choice, old, origin_changed=origin_changed)
    label = checker.check_text(
        f"{path}.label", draft.label or _default_label(choice), field_validation.name_fault
    )
    return replace(choice, label=label)


def _default_label(choice: AuthChoice) -> str:
    if choice.kind is AuthKind.PUBLIC:
        return "No sign-in"
    if choice.kind is AuthKind.OAUTH:
        return "Sign in with OAuth"
    return f"{'Header' if choice.place == 'header' else 'Parameter'} {choice.key}"[:80]


def _validate_header_choice(
    checker: FieldChecker, path: str, draft: ChoiceDraft, choice: AuthChoice
) -> AuthChoice:
    if draft.place not in ("header", "query"):
        checker.add_problem(f"{path}.place", "must be one of header, query")
    place = "query" if draft.place == "query" else "header"
    fault = field_validation.query_key_fault if place == "query" else field_validation.header_fault
    hint = "write it like X-Api-Key" if place == "header" else "write it like api_key"
    return replace(choice, place=place, key=checker.check_text(f"{path}.key", draft.key or "", fault, hint))


def _validate_oauth_choice(
    checker: FieldChecker,
    path: str,
    draft: ChoiceDraft,
    choice: AuthChoice,
    old: AuthChoice | None,
    *,
    origin_changed: bool,
) -> AuthChoice:
    registration = checker.parse_enum(
        f"{path}.registration", draft.registration, RegistrationMethod, RegistrationMethod.AUTO
    )
    # Other registrations obtain a client id themselves, so an entered one is discarded.
    client_id = secret = None
    if registration in (RegistrationMethod.ENTERED, RegistrationMethod.AUTO):
        client_id = (draft.client_id or "").strip() or None
        secret = _validate_client_secret(checker, path, draft, old, origin_changed=origin_changed)
        if client_id is not None:
            checker.check_text(f"{path}.client_id", client_id, field_validation.client_credential_fault)
        elif registration is RegistrationMethod.ENTERED:
            checker.add_problem(
                f"{path}.client_id", "is required for this registration", "register Toolyard there"
            )
        elif secret is not None:
            checker.add_problem(f"{path}.client_id", "is required together with a client secret")
    resource = (draft.resource or "").strip() or None
    if resource is not None:
        checker.check_text(f"{path}.resource", resource, field_validation.resource_fault)
    issuer = (draft.issuer or "").strip() or None
    if issuer is not None:
        checker.check_text(
            f"{path}.issuer", issuer, field_validation.issuer_fault, "write it like https://login.example.com"
        )
    return replace(
        choice,
        registration=registration,
        client_id=client_id,
        client_secret=secret,
        scopes=checker.check_texts(f"{path}.scopes", draft.scopes, field_validation.scope_fault, _MAX_SCOPES),
        resource=resource,
        legacy_discovery=draft.legacy_discovery,
        issuer=issuer if client_id is not None else None,
        issuer_redirect=draft.issuer_redirect and client_id is not None,
    )


def _validate_client_secret(
    checker: FieldChecker, path: str, draft: ChoiceDraft, old: AuthChoice | None, *, origin_changed: bool
) -> str | None:
    if draft.client_secret is not None:
        secret = draft.client_secret.strip()
        return (
            checker.check_text(f"{path}.client_secret", secret, field_validation.client_credential_fault)
            if secret
            else None
        )
    # Without a client id, the stored secret is dropped, too.
    stored = old.client_secret if old is not None and (draft.client_id or "").strip() else None
    if stored is not None and origin_changed:
        checker.add_problem(
            f"{path}.client_secret",
            "must be entered again, because the URL now points to another host",
            "a secret entered for one host is never sent to another",
        )
    return stored


# Instances.


def validate_instance(
    draft: InstanceDraft, server: RegistryServer, user_id: str, old: Instance | None, slug: str, now: float
) -> Instance:
    """Return the instance described by a draft, which replaces ``old`` if that is given.

    ``slug`` is used if the draft has none. Raises Invalid.
    """
    checker = FieldChecker()
    choice = _select_choice(checker, draft, server, old)
    name = (draft.name or "").strip() or (old.name if old is not None else server.name)
    tool_filter = draft.tool_filter
    enabled = draft.enabled if draft.enabled is not None else (old.enabled if old is not None else True)
    is_same_choice = old is not None and old.choice_id == choice.id
    value = _validate_value(
        checker, draft, choice, old if is_same_choice else None, required=not is_same_choice
    )
    instance = Instance(
        id=old.id if old is not None else new_id(),
        user_id=user_id,
        server_id=server.id,
        choice_id=choice.id,
        slug=checker.check_text("slug", (draft.slug or "").strip() or slug, field_validation.slug_fault),
        name=checker.check_text("name", name, field_validation.name_fault),
        enabled=enabled,
        tool_filter=None
        if tool_filter is None
        else checker.check_texts(
            "tool_filter", tool_filter, field_validation.tool_pattern_fault, _MAX_FILTERED_TOOLS
        ),
        value=value,
        created_at=old.created_at if old is not None else now,
        updated_at=now,
    )
    checker.raise_problems()
    return _with_state(instance, choice, old if is_same_choice else None)


def _select_choice(
    checker: FieldChecker, draft: InstanceDraft, server: RegistryServer, old: Instance | None
) -> AuthChoice:
    choice_id = draft.choice_id or (old.choice_id if old is not None else None)
    if not choice_id and len(server.choices) == 1:
        return server.choices[0]
    choice = server.find_choice(choice_id) if choice_id else None
    if choice is not None:
        return choice
    if not choice_id:
        checker.add_problem("choice_id", "is required: the server offers several sign-in methods")
    else:
        checker.add_problem("choice_id", "is not a sign-in method that the server offers")
    return AuthChoice("", AuthKind.PUBLIC)


def _validate_value(
    checker: FieldChecker, draft: InstanceDraft, choice: AuthChoice, old: Instance | None, *, required: bool
) -> str | None:
    if choice.kind is not AuthKind.HEADER:
        return None
    if draft.value is None and not required:
        return old.value if old is not None else None
    value = (draft.value or "").strip()
    if not value:
        if required:
            place = "header" if choice.place == "header" else "query parameter"
            checker.add_problem("value", f"is required: the server expects it in the {place} {choice.key}")
        return None
    in_header = choice.place == "header"
    return checker.check_text(
        "value", value, lambda text: field_validation.value_fault(text, in_header=in_header)
    )


def _with_state(instance: Instance, choice: AuthChoice, old: Instance | None) -> Instance:
    """Return the instance with its state after an edit: unchanged, unless its credentials changed."""
    if choice.kind is AuthKind.OAUTH:
        state, reason = InstanceState.PENDING, "not signed in yet"
        if old is not None:
            state, reason = old.state, old.reason
    elif choice.kind is AuthKind.HEADER and instance.value is None:
        state, reason = InstanceState.PENDING, f"the value for {choice.key} is missing"
    elif old is not None and old.value == instance.value and old.state is not InstanceState.PENDING:
        state, reason = old.state, old.reason
    else:
        state, reason = InstanceState.READY, None
    return replace(instance, state=state, reason=reason)
