"""From what was entered to servers and instances: every rule about their fields, all problems at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Literal, TypeVar

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
from toolyard.types.server import Trust

__all__ = ["FieldChecker", "is_different_origin", "validate_instance", "validate_server"]


E = TypeVar("E", bound=StrEnum)


class FieldChecker:
    """What is wrong so far. A question notes its problem and gives a value to go on with."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def add_problem(self, path: str, message: str, hint: str | None = None) -> None:
        """Something is wrong with the field at ``path``."""
        self._problems.append(Problem(message, path=path, hint=hint))

    def text(
        self, path: str, text: str, find_fault: Callable[[str], str | None], hint: str | None = None
    ) -> str:
        """The text without blanks around it, judged by ``fault``."""
        text = text.strip()
        if (wrong := find_fault(text)) is not None:
            self.add_problem(path, wrong, hint)
        return text

    def texts(
        self, path: str, texts: Iterable[str], find_fault: Callable[[str], str | None], max_entries: int
    ) -> tuple[str, ...]:
        """Each text once, judged by ``fault``; at most so many."""
        found = list(texts)
        if len(found) > max_entries:
            self.add_problem(path, f"has {len(found):,} entries, at most {max_entries:,} are allowed")
            return ()
        read = [self.text(f"{path}[{index}]", text, find_fault) for index, text in enumerate(found)]
        return tuple(dict.fromkeys(read))

    def parse_enum(self, path: str, value: str, enum_type: type[E], default: E) -> E:
        """The word as one of the values of an enumeration."""
        with suppress(ValueError):
            return enum_type(value)
        self.add_problem(path, f"must be one of {', '.join(each.value for each in enum_type)}")
        return default

    def raise_problems(self) -> None:
        """Raises Invalid where anything was wrong."""
        if self._problems:
            raise Invalid(self._problems)


_MAX_CHOICES = 10
_MAX_TOOL_PATTERNS = 500
_MAX_FILTERED_TOOLS = 2000
_MAX_SCOPES = 100


def new_id() -> str:
    """An id that nobody guesses and no address has to escape."""
    return secrets.token_hex(8)


def is_different_origin(old: str, new: str) -> bool:
    """Whether a changed URL leads to another origin, for which no credentials were given."""
    return not is_same_origin(URL(old), URL(new))


# Servers.


def validate_server(draft: ServerDraft, old: RegistryServer | None, now: float) -> RegistryServer:
    """The server that was entered, in place of ``old`` where that is given. Raises Invalid."""
    found = FieldChecker()
    url = found.text(
        "url", draft.url, field_validation.server_url_fault, "write it like https://mcp.example.com/mcp"
    )
    trust = found.parse_enum("trust", draft.trust, Trust, Trust.UNTRUSTED)
    allow = _validate_allow_tools(found, draft.allow_tools, trust)
    enabled = draft.enabled if draft.enabled is not None else (old.enabled if old is not None else True)
    server = RegistryServer(
        id=old.id if old is not None else new_id(),
        name=found.text("name", draft.name, field_validation.name_fault),
        url=url,
        transport=_validate_transport(found, draft.transport),
        trust=trust,
        enabled=enabled,
        description=found.text("description", draft.description, field_validation.description_fault),
        private_addresses=draft.private_addresses,
        allow_tools=allow,
        deny_tools=found.texts(
            "deny_tools", draft.deny_tools, field_validation.tool_pattern_fault, _MAX_TOOL_PATTERNS
        ),
        created_at=old.created_at if old is not None else now,
        updated_at=now,
    )
    kept = () if old is None else old.choices
    moved = (
        old is not None
        and field_validation.server_url_fault(url) is None
        and is_different_origin(old.url, url)
    )
    server = replace(server, choices=_validate_choices(found, draft.choices, kept, origin_changed=moved))
    found.raise_problems()
    return server


def _validate_transport(checker: FieldChecker, value: str) -> Literal["http", "sse"]:
    if value == "sse":
        return "sse"
    if value != "http":
        checker.add_problem(
            "transport", "must be one of http, sse", "stdio servers stand in the operator's files"
        )
    return "http"


def _validate_allow_tools(
    checker: FieldChecker, patterns: tuple[str, ...] | None, trust: Trust
) -> tuple[str, ...] | None:
    if patterns is not None and not patterns:
        checker.add_problem(
            "allow_tools",
            "must hold at least one tool where it is given",
            "leave it out to allow every tool of a trusted server",
        )
    allow = (
        None
        if patterns is None
        else checker.texts("allow_tools", patterns, field_validation.tool_pattern_fault, _MAX_TOOL_PATTERNS)
    )
    if trust is Trust.TRUSTED:
        return allow
    if patterns is None:
        checker.add_problem("allow_tools", "is required for an untrusted server", BARE_STAR_HINT)
    for index, pattern in enumerate(patterns or ()):
        if is_bare_star(pattern.strip()):
            checker.add_problem(
                f"allow_tools[{index}]", "must be a tool's name or a narrower glob", BARE_STAR_HINT
            )
    return allow


# Their ways of signing in.


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
    made: list[AuthChoice] = []
    for index, draft in enumerate(drafts or (ChoiceDraft(),)):
        path = f"choices[{index}]"
        # Each may be named once. A choice of another kind is another choice: what users gave does not fit.
        old = by_id.pop(draft.id, None) if draft.id is not None else None
        if draft.id is not None and old is None:
            checker.add_problem(f"{path}.id", "names no choice of this server")
        choice = _validate_choice(checker, path, draft, old, origin_changed=origin_changed)
        if any(choice.label.casefold() == other.label.casefold() for other in made):
            checker.add_problem(
                f"{path}.label", "is the label of another choice, too", "users must tell them apart"
            )
        made.append(choice)
    return tuple(made)


def _validate_choice(
    checker: FieldChecker, path: str, draft: ChoiceDraft, old: AuthChoice | None, *, origin_changed: bool
) -> AuthChoice:
    kind = checker.parse_enum(f"{path}.kind", draft.kind, AuthKind, AuthKind.PUBLIC)
    if old is not None and old.kind is not kind:
        old = None
    choice = AuthChoice(old.id if old is not None else new_id(), kind)
    if kind is AuthKind.HEADER:
        choice = _validate_header_choice(checker, path, draft, choice)
    elif kind is AuthKind.OAUTH:
        choice = _validate_oauth_choice(checker, path, draft, choice, old, origin_changed=origin_changed)
    label = checker.text(f"{path}.label", draft.label or _default_label(choice), field_validation.name_fault)
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
    return replace(choice, place=place, key=checker.text(f"{path}.key", draft.key or "", fault, hint))


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
    client_id = secret = None
    if registration in (RegistrationMethod.ENTERED, RegistrationMethod.AUTO):
        client_id = (draft.client_id or "").strip() or None
        secret = _validate_client_secret(checker, path, draft, old, origin_changed=origin_changed)
        if client_id is not None:
            checker.text(f"{path}.client_id", client_id, field_validation.client_credential_fault)
        elif registration is RegistrationMethod.ENTERED:
            checker.add_problem(
                f"{path}.client_id", "is required for this registration", "register Toolyard there"
            )
        elif secret is not None:
            checker.add_problem(f"{path}.client_id", "is required beside a client secret")
    resource = (draft.resource or "").strip() or None
    if resource is not None:
        checker.text(f"{path}.resource", resource, field_validation.resource_fault)
    issuer = (draft.issuer or "").strip() or None
    if issuer is not None:
        checker.text(
            f"{path}.issuer", issuer, field_validation.issuer_fault, "write it like https://login.example.com"
        )
    return replace(
        choice,
        registration=registration,
        client_id=client_id,
        client_secret=secret,
        scopes=checker.texts(f"{path}.scopes", draft.scopes, field_validation.scope_fault, _MAX_SCOPES),
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
            checker.text(f"{path}.client_secret", secret, field_validation.client_credential_fault)
            if secret
            else None
        )
    # Without a client id there is nothing that a secret could belong to.
    kept = old.client_secret if old is not None and (draft.client_id or "").strip() else None
    if kept is not None and origin_changed:
        checker.add_problem(
            f"{path}.client_secret",
            "must be given again, since the address leads to another host",
            "what was entered for one host is not shown to another",
        )
    return kept


# Instances.


def validate_instance(
    draft: InstanceDraft, server: RegistryServer, user_id: str, old: Instance | None, slug: str, now: float
) -> Instance:
    """The instance that was entered, in place of ``old`` where that is given. ``slug`` is for one that was
    not given. Raises Invalid."""
    found = FieldChecker()
    choice = _select_choice(found, draft, server, old)
    name = (draft.name or "").strip() or (old.name if old is not None else server.name)
    wanted = draft.tool_filter
    enabled = draft.enabled if draft.enabled is not None else (old.enabled if old is not None else True)
    same = old is not None and old.choice_id == choice.id
    value = _validate_value(found, draft, choice, old if same else None, required=not same)
    instance = Instance(
        id=old.id if old is not None else new_id(),
        user_id=user_id,
        server_id=server.id,
        choice_id=choice.id,
        slug=found.text("slug", (draft.slug or "").strip() or slug, field_validation.slug_fault),
        name=found.text("name", name, field_validation.name_fault),
        enabled=enabled,
        tool_filter=None
        if wanted is None
        else found.texts("tool_filter", wanted, field_validation.tool_pattern_fault, _MAX_FILTERED_TOOLS),
        value=value,
        created_at=old.created_at if old is not None else now,
        updated_at=now,
    )
    found.raise_problems()
    return _with_state(instance, choice, old if same else None)


def _select_choice(
    checker: FieldChecker, draft: InstanceDraft, server: RegistryServer, old: Instance | None
) -> AuthChoice:
    wanted = draft.choice_id or (old.choice_id if old is not None else None)
    if not wanted and len(server.choices) == 1:
        return server.choices[0]
    choice = server.choice(wanted) if wanted else None
    if choice is not None:
        return choice
    if not wanted:
        checker.add_problem("choice_id", "is required: the server offers several ways of signing in")
    else:
        checker.add_problem("choice_id", "names no way of signing in that the server offers")
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
            where = "header" if choice.place == "header" else "query parameter"
            checker.add_problem("value", f"is required: the server wants it in the {where} {choice.key}")
        return None
    header = choice.place == "header"
    return checker.text("value", value, lambda text: field_validation.value_fault(text, in_header=header))


def _with_state(instance: Instance, choice: AuthChoice, old: Instance | None) -> Instance:
    """What is known of it after a change: as before, unless what it signs in with is another."""
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
