"""Validation of form input for servers and instances; all problems are collected before raising."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

from yarl import URL

from toolyard.config.entries.servers import BARE_STAR_HINT, is_bare_star
from toolyard.config.secret_replacement import find_secret_parameter
from toolyard.errors import Problem
from toolyard.net import is_same_origin
from toolyard.registry import field_validation
from toolyard.registry.errors import Invalid
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    ChoiceDraft,
    Instance,
    InstanceDraft,
    InstanceState,
    RecordField,
    RegistrationMethod,
    RegistryServer,
    ServerDraft,
    get_record_field,
    record_fields,
)
from toolyard.types.server import Trust

__all__ = ["FieldChecker", "is_different_origin", "validate_instance", "validate_server"]


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
        self,
        path: str,
        texts: Iterable[str],
        find_fault: Callable[[str], str | None],
        max_entries: int | None,
    ) -> tuple[str, ...]:
        """Check each text with ``find_fault``, and return them without duplicates."""
        entries = list(texts)
        if max_entries is not None and len(entries) > max_entries:
            self.add_problem(path, f"has {len(entries):,} entries, at most {max_entries:,} are allowed")
            return ()
        checked = [
            self.check_text(f"{path}[{index}]", text, find_fault) for index, text in enumerate(entries)
        ]
        return tuple(dict.fromkeys(checked))

    def check_field(self, path: str, record_field: RecordField, value: Any) -> Any:
        """Check the input for a field, and return the value of the record."""
        spec = record_field.spec
        if allowed := record_field.allowed_values:
            if value in allowed:
                return record_field.type(value) if record_field.is_enum else value
            self.add_problem(path, f"must be one of {', '.join(allowed)}", spec.error_hint)
            return value
        find_fault = None if spec.rule is None else field_validation.TEXT_FAULTS[spec.rule]
        if find_fault is None or value is None:
            return value
        if record_field.item_type is not None:
            return self.check_texts(path, value, find_fault, spec.max_entries)
        if record_field.optional and not value.strip():
            return None
        return self.check_text(path, value, find_fault, spec.error_hint)

    def check_fields(
        self,
        record: type[Any],
        draft: object,
        prefix: str = "",
        *,
        kind: AuthKind | None = None,
        skip: Container[str] = (),
    ) -> dict[str, Any]:
        """Check the fields of a draft that apply to ``kind``, and return their values in the record."""
        return {
            each.name: self.check_field(f"{prefix}{each.name}", each, getattr(draft, each.name))
            for each in record_fields(record)
            if each.settable and each.spec.kind is kind and each.name not in skip
        }

    def raise_problems(self) -> None:
        """Raise Invalid if any problem was recorded."""
        if self._problems:
            raise Invalid(self._problems)


def new_id() -> str:
    """Return a random id that is hard to guess and needs no escaping in URLs."""
    return secrets.token_hex(8)


def is_different_origin(old: str, new: str) -> bool:
    """Return whether two URLs have different origins, so they must not share credentials."""
    return not is_same_origin(URL(old), URL(new))


# Servers.


def validate_server(draft: ServerDraft, old: RegistryServer | None, now: float) -> RegistryServer:
    """Return the server described by a draft, which replaces ``old`` if that is given. Raises Invalid."""
    checker = FieldChecker()
    server = RegistryServer(
        **checker.check_fields(RegistryServer, draft, skip=("choices", "enabled")),
        **_keep_values(draft, old, now),
    )
    _check_allow_tools(checker, draft.allow_tools, server.trust)
    parameter = None if old is not None and old.url == server.url else find_secret_parameter(server.url)
    if parameter is not None:
        checker.add_problem(
            "url",
            f"must not contain a secret: everyone sees the URL, with the value of {parameter}",
            f"remove {parameter} from the URL, and add it as an API key in a query parameter",
        )
    # An invalid URL cannot be compared; it is reported as a problem of its own field.
    origin_changed = (
        old is not None
        and field_validation.server_url_fault(server.url) is None
        and is_different_origin(old.url, server.url)
    )
    old_choices = () if old is None else old.choices
    choices = _validate_choices(checker, draft.choices, old_choices, origin_changed=origin_changed)
    checker.raise_problems()
    return replace(server, choices=choices)


def _keep_values(
    draft: ServerDraft | InstanceDraft, old: RegistryServer | Instance | None, now: float
) -> dict[str, Any]:
    """Return the values that a new record gets and a changed one keeps."""
    enabled = True if old is None else old.enabled
    return {
        "id": new_id() if old is None else old.id,
        "enabled": enabled if draft.enabled is None else draft.enabled,
        "created_at": now if old is None else old.created_at,
        "updated_at": now,
    }


def _check_allow_tools(checker: FieldChecker, patterns: tuple[str, ...] | None, trust: Trust) -> None:
    if patterns is not None and not patterns:
        checker.add_problem(
            "allow_tools",
            "must contain at least one tool if it is given",
            "omit it to allow all tools of a trusted server",
        )
    if trust is Trust.TRUSTED:
        return
    # New tools of an untrusted server must not become available by themselves, so it needs an allowlist
    # that names tools.
    if patterns is None:
        checker.add_problem("allow_tools", "is required for an untrusted server", BARE_STAR_HINT)
    for index, pattern in enumerate(patterns or ()):
        if is_bare_star(pattern.strip()):
            checker.add_problem(
                f"allow_tools[{index}]", "must be a tool's name or a narrower glob", BARE_STAR_HINT
            )


# Sign-in choices of servers.


def _validate_choices(
    checker: FieldChecker,
    drafts: tuple[ChoiceDraft, ...],
    old_choices: tuple[AuthChoice, ...],
    *,
    origin_changed: bool,
) -> tuple[AuthChoice, ...]:
    max_choices = get_record_field(RegistryServer, "choices").spec.max_entries
    if max_choices is not None and len(drafts) > max_choices:
        checker.add_problem("choices", f"has {len(drafts)} entries, at most {max_choices} are allowed")
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
    kind: AuthKind = checker.check_field(f"{path}.kind", get_record_field(AuthChoice, "kind"), draft.kind)
    if old is not None and old.kind is not kind:
        # Another kind makes it a new choice: the credentials of users do not fit any more.
        old = None
    values: dict[str, Any] = {}
    if kind is AuthKind.HEADER:
        values = _validate_header_fields(checker, path, draft)
    elif kind is AuthKind.OAUTH:
        values = _validate_oauth_fields(checker, path, draft, old, origin_changed=origin_changed)
    choice = AuthChoice(kind, id=new_id() if old is None else old.id, **values)
    label = checker.check_field(
        f"{path}.label", get_record_field(AuthChoice, "label"), draft.label or _default_label(choice)
    )
    return replace(choice, label=label)


def _default_label(choice: AuthChoice) -> str:
    if choice.kind is AuthKind.PUBLIC:
        return "No sign-in"
    if choice.kind is AuthKind.OAUTH:
        return "Sign in with OAuth"
    return f"{'Header' if choice.place == 'header' else 'Parameter'} {choice.key}"[:80]


def _validate_header_fields(checker: FieldChecker, path: str, draft: ChoiceDraft) -> dict[str, Any]:
    values = checker.check_fields(AuthChoice, draft, f"{path}.", kind=AuthKind.HEADER, skip=("key",))
    in_query = draft.place == "query"
    fault = field_validation.query_key_fault if in_query else field_validation.header_fault
    hint = "write it like api_key" if in_query else "write it like X-Api-Key"
    return {**values, "key": checker.check_text(f"{path}.key", draft.key or "", fault, hint)}


def _validate_oauth_fields(
    checker: FieldChecker, path: str, draft: ChoiceDraft, old: AuthChoice | None, *, origin_changed: bool
) -> dict[str, Any]:
    # Other registrations obtain a client id themselves, so an entered one is discarded.
    uses_client_id = draft.registration not in (RegistrationMethod.DOCUMENT, RegistrationMethod.DYNAMIC)
    skip = ("client_secret",) if uses_client_id else ("client_id", "client_secret")
    values = checker.check_fields(AuthChoice, draft, f"{path}.", kind=AuthKind.OAUTH, skip=skip)
    if uses_client_id:
        values["client_secret"] = _validate_client_secret(
            checker, path, draft, old, origin_changed=origin_changed
        )
    if values.get("client_id") is not None:
        return values
    if values["registration"] is RegistrationMethod.ENTERED:
        checker.add_problem(
            f"{path}.client_id", "is required for this registration", "register Toolyard there"
        )
    elif values.get("client_secret") is not None:
        checker.add_problem(f"{path}.client_id", "is required together with a client secret")
    return {**values, "issuer": None, "issuer_redirect": False}


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
    named = replace(draft, slug=(draft.slug or "").strip() or slug, name=name)
    is_same_choice = old is not None and old.choice_id == choice.id
    value = _validate_value(
        checker, draft, choice, old if is_same_choice else None, required=not is_same_choice
    )
    instance = Instance(
        **checker.check_fields(Instance, named, skip=("server_id", "choice_id", "value", "enabled")),
        **_keep_values(draft, old, now),
        user_id=user_id,
        server_id=server.id,
        choice_id=choice.id,
        value=value,
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
    return AuthChoice(id="")


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
