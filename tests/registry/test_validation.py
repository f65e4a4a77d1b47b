from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.registry.errors import Invalid
from toolyard.registry.validation import validate_instance, validate_server
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    ChoiceDraft,
    InstanceDraft,
    InstanceState,
    RegistrationMethod,
    RegistryServer,
    ServerDraft,
)
from toolyard.types.server import Trust

GOOD = ServerDraft("GitHub", "https://api.github.com/mcp")


def problems(draft: ServerDraft, old: RegistryServer | None = None) -> dict[str, str]:
    with pytest.raises(Invalid) as exc_info:
        validate_server(draft, old, 1.0)
    return {problem.path: problem.message for problem in exc_info.value.problems}


def server(**changes: Any) -> RegistryServer:
    return validate_server(replace(GOOD, **changes), None, 1.0)


# Servers.


def test_a_name_and_an_address_are_enough() -> None:
    server_record = server()
    assert (server_record.name, server_record.url, server_record.transport, server_record.trust) == (
        GOOD.name,
        GOOD.url,
        "http",
        Trust.TRUSTED,
    )
    assert (
        server_record.enabled,
        server_record.private_addresses,
        server_record.allow_tools,
        server_record.deny_tools,
    ) == (
        True,
        False,
        None,
        (),
    )
    [choice] = server_record.choices
    assert (choice.kind, choice.label) == (AuthKind.PUBLIC, "No sign-in")
    assert server_record.created_at == server_record.updated_at == 1.0


def test_blanks_around_pasted_values_are_stripped() -> None:
    server_record = server(name=" GitHub \n", url=" https://api.github.com/mcp\n")
    assert (server_record.name, server_record.url) == ("GitHub", "https://api.github.com/mcp")


@pytest.mark.parametrize(
    "url",
    [
        "https://mcp.example.com/mcp",
        "http://127.0.0.1:4010/",
        "http://[::1]:80/mcp?x=y",
        "https://nowhere.invalid/not/a/server",
        "https://bücher.example/mcp",
        "http://10.0.0.1/mcp",
        "https://example.com/" + "x" * 2000,
    ],
)
def test_any_web_address_is_taken_unchecked(url: str) -> None:
    assert server(url=url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "nonsense",
        "ftp://example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//example.com/mcp",
        "https://",
        "https:///mcp",
        "https://exa mple.com/",
        "https://example.com:99999/",
        "https://example.com:port/",
        "https://[::1/",
        "https://user:secret@example.com/",
        "https://user@example.com/",
        "https://example.com/\x00",
        "https://exam\r\nple.com/",
        "https://example.com/\ud800",
        "https://example.com/" + "x" * 2048,
    ],
)
def test_an_invalid_address_is_reported(url: str) -> None:
    assert list(problems(replace(GOOD, url=url))) == ["url"]


def test_a_secret_in_the_query_of_a_new_address_is_refused() -> None:
    draft = replace(GOOD, url="https://example.com/mcp?region=eu&apiKey=hunter2-hunter2")
    url = problems(draft)["url"]
    assert "apiKey" in url
    assert "hunter2" not in url
    # An address that was stored before can still be edited.
    before = replace(server(), url=draft.url)
    assert validate_server(replace(draft, name="Other"), before, 2.0).url == draft.url


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "a\x00b", "a\x1b[31m", "a\u202eb", "a\ud800", "a\nb"])
def test_names_are_short_and_printable(name: str) -> None:
    assert list(problems(replace(GOOD, name=name))) == ["name"]


def test_all_problems_are_told_at_once() -> None:
    draft = ServerDraft(
        "",
        "nonsense",
        transport="stdio",
        trust="maybe",
        description="a\x00",
        deny_tools=("ok", ""),
        choices=(
            ChoiceDraft("header", place="cookie", key="Host"),
            ChoiceDraft("oauth", label="x" * 81, registration="entered", scopes=("a b",)),
            ChoiceDraft("magic"),
        ),
    )
    assert set(problems(draft)) == {
        "name",
        "url",
        "transport",
        "trust",
        "description",
        "allow_tools",
        "deny_tools[1]",
        "choices[0].place",
        "choices[0].key",
        "choices[1].label",
        "choices[1].client_id",
        "choices[1].scopes[0]",
        "choices[2].kind",
    }


def test_no_message_shows_a_secret() -> None:
    draft = replace(
        GOOD,
        url="https://user:hunter2@example.com/",
        choices=(ChoiceDraft("oauth", client_id="me", client_secret="hunter2\x00"),),
    )
    with pytest.raises(Invalid) as exc_info:
        validate_server(draft, None, 1.0)
    assert "hunter2" not in str(exc_info.value)
    assert "hunter2" not in repr(draft.choices)


@pytest.mark.parametrize("allow", [None, (), ("*",), ("***",), (" * ",), ("read", "*")])
def test_an_untrusted_server_must_say_which_tools(allow: tuple[str, ...] | None) -> None:
    draft = replace(GOOD, trust="untrusted", allow_tools=allow)
    assert all(path.startswith("allow_tools") for path in problems(draft))


def test_an_untrusted_server_with_narrow_globs_is_taken() -> None:
    server_record = server(trust="untrusted", allow_tools=("read*", "list", "list"), deny_tools=("*",))
    assert (server_record.allow_tools, server_record.deny_tools) == (("read*", "list"), ("*",))


def test_a_trusted_server_may_be_allowed_everything_but_not_nothing() -> None:
    assert server(allow_tools=("*",)).allow_tools == ("*",)
    assert list(problems(replace(GOOD, allow_tools=()))) == ["allow_tools"]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "X Key",
        "X-Key:",
        "X-Kéy",
        "a\r\nb",
        "x" * 129,
        *(
            "Host",
            "content-length",
            "Transfer-Encoding",
            "CONNECTION",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
        ),
        *(
            "Proxy-Authorization",
            "Mcp-Session-Id",
            "MCP-Protocol-Version",
            "Content-Type",
            "Accept",
            "Sec-Fetch",
        ),
        *("Last-Event-ID", "Expect"),
    ],
)
def test_headers_that_a_value_cannot_go_in(key: str) -> None:
    assert list(problems(replace(GOOD, choices=(ChoiceDraft("header", "x", key=key),)))) == ["choices[0].key"]


@pytest.mark.parametrize("key", ["Authorization", "X-Api-Key", "x_key", "Cookie", "API-Key!"])
def test_headers_that_a_value_can_go_in(key: str) -> None:
    [choice] = server(choices=(ChoiceDraft("header", key=key),)).choices
    assert (choice.key, choice.label) == (key, f"Header {key}")


@pytest.mark.parametrize(("key", "fine"), [("api_key", True), ("k[0]", True), ("", False), ("a b", False)])
def test_query_parameters_that_a_value_can_go_in(key: str, fine: bool) -> None:
    draft = replace(GOOD, choices=(ChoiceDraft("header", "x", place="query", key=key),))
    if fine:
        assert validate_server(draft, None, 1.0).choices[0].place == "query"
    else:
        assert list(problems(draft)) == ["choices[0].key"]


def test_several_choices_can_be_told_apart() -> None:
    server_record = server(
        choices=(ChoiceDraft("public"), ChoiceDraft("oauth"), ChoiceDraft("oauth", "For admins"))
    )
    assert [choice.label for choice in server_record.choices] == [
        "No sign-in",
        "Sign in with OAuth",
        "For admins",
    ]
    assert len({choice.id for choice in server_record.choices}) == 3
    twins = (ChoiceDraft("oauth", "Me"), ChoiceDraft("oauth", "ME"))
    assert list(problems(replace(GOOD, choices=twins))) == ["choices[1].label"]
    many = tuple(ChoiceDraft("oauth", str(number)) for number in range(11))
    assert list(problems(replace(GOOD, choices=many))) == ["choices"]


def test_fields_of_other_kinds_are_ignored() -> None:
    draft = ChoiceDraft("public", key="Host", registration="?", client_id="x", scopes=("a b",), place="?")
    [choice] = server(choices=(draft,)).choices
    assert choice == AuthChoice(AuthKind.PUBLIC, "No sign-in", id=choice.id)


@pytest.mark.parametrize(
    ("registration", "client_id", "secret", "wrong"),
    [
        ("auto", None, None, None),
        ("auto", "me", None, None),
        ("auto", None, "s", "choices[0].client_id"),
        ("entered", "me", None, None),
        ("entered", "me", "s", None),
        ("entered", " ", None, "choices[0].client_id"),
        ("entered", "mé", None, "choices[0].client_id"),
        ("entered", "me", "x" * 8193, "choices[0].client_secret"),
        ("document", "me", "s", None),
        ("dynamic", None, None, None),
        ("guess", None, None, "choices[0].registration"),
    ],
)
def test_registrations(
    registration: str, client_id: str | None, secret: str | None, wrong: str | None
) -> None:
    choice = ChoiceDraft("oauth", registration=registration, client_id=client_id, client_secret=secret)
    draft = replace(GOOD, choices=(choice,))
    if wrong is not None:
        assert list(problems(draft)) == [wrong]
        return
    [created_choice] = validate_server(draft, None, 1.0).choices
    keeps = registration in ("auto", "entered")
    assert created_choice.registration is RegistrationMethod(registration)
    assert created_choice.client_id == (client_id if keeps else None)
    assert created_choice.client_secret == (secret if keeps else None)


@pytest.mark.parametrize(
    ("resource", "fine"),
    [
        ("https://mcp.example.com", True),
        ("urn:example:mcp", True),
        ("", True),
        ("mcp", False),
        ("https://x/#f", False),
    ],
)
def test_resources(resource: str, fine: bool) -> None:
    draft = replace(GOOD, choices=(ChoiceDraft("oauth", resource=resource),))
    if fine:
        assert validate_server(draft, None, 1.0).choices[0].resource == (resource or None)
    else:
        assert list(problems(draft)) == ["choices[0].resource"]


# Edits of servers.


@pytest.fixture
def old() -> RegistryServer:
    choice = ChoiceDraft("oauth", registration="entered", client_id="me", client_secret="hidden")
    return server(choices=(choice, ChoiceDraft("header", key="X-Key")))


def edit_server_draft(old: RegistryServer, **changes: Any) -> ServerDraft:
    first, second = old.choices
    drafts = (
        ChoiceDraft("oauth", first.label, first.id, registration="entered", client_id="me"),
        ChoiceDraft("header", second.label, second.id, key="X-Key"),
    )
    return replace(GOOD, choices=drafts, **changes)


def test_an_edit_keeps_the_immutable_fields(old: RegistryServer) -> None:
    server_record = validate_server(edit_server_draft(old, name="Other"), replace(old, enabled=False), 9.0)
    assert (server_record.id, server_record.created_at, server_record.updated_at, server_record.enabled) == (
        old.id,
        1.0,
        9.0,
        False,
    )
    assert [choice.id for choice in server_record.choices] == [choice.id for choice in old.choices]


@pytest.mark.parametrize(
    ("secret_input", "expected_secret"), [(None, "hidden"), ("", None), (" new ", "new")]
)
def test_a_secret_is_kept_removed_or_replaced(
    old: RegistryServer, secret_input: str | None, expected_secret: str | None
) -> None:
    draft = edit_server_draft(old)
    draft = replace(draft, choices=(replace(draft.choices[0], client_secret=secret_input), draft.choices[1]))
    assert validate_server(draft, old, 9.0).choices[0].client_secret == expected_secret


def test_a_secret_is_not_carried_to_another_host(old: RegistryServer) -> None:
    draft = edit_server_draft(old, url="https://evil.example/mcp")
    assert list(problems(draft, old)) == ["choices[0].client_secret"]
    again = replace(draft, choices=(replace(draft.choices[0], client_secret="given"), draft.choices[1]))
    assert validate_server(again, old, 9.0).choices[0].client_secret == "given"
    path = edit_server_draft(old, url="https://api.github.com/other")
    assert validate_server(path, old, 9.0).choices[0].client_secret == "hidden"


def test_a_choice_of_another_kind_is_another_choice(old: RegistryServer) -> None:
    draft = edit_server_draft(old)
    changed_choices = (replace(draft.choices[0], kind="public", label="x"), draft.choices[1])
    server_record = validate_server(replace(draft, choices=changed_choices), old, 9.0)
    assert server_record.choices[0].id != old.choices[0].id
    assert server_record.choices[0].client_secret is None
    assert server_record.choices[1].id == old.choices[1].id


def test_ids_of_choices_cannot_be_made_up_or_used_twice(old: RegistryServer) -> None:
    first = ChoiceDraft("oauth", "a", old.choices[0].id)
    assert list(problems(replace(GOOD, choices=(replace(first, id="made-up"),)), old)) == ["choices[0].id"]
    twice = (first, replace(first, label="b"))
    assert list(problems(replace(GOOD, choices=twice), old)) == ["choices[1].id"]


# Instances.


def instance_problems(draft: InstanceDraft, of: RegistryServer, **more: Any) -> list[str]:
    with pytest.raises(Invalid) as exc_info:
        validate_instance(draft, of, "u", more.get("old"), "slug", 1.0)
    return [problem.path for problem in exc_info.value.problems]


def test_an_instance_of_a_public_server_needs_nothing() -> None:
    instance = validate_instance(InstanceDraft(), server(), "u", None, "github", 1.0)
    assert (instance.slug, instance.name, instance.tool_filter, instance.state) == (
        "github",
        "GitHub",
        None,
        InstanceState.READY,
    )


def test_an_instance_that_signs_in_is_pending() -> None:
    instance = validate_instance(
        InstanceDraft(), server(choices=(ChoiceDraft("oauth"),)), "u", None, "github", 1.0
    )
    assert instance.state is InstanceState.PENDING


def test_a_value_is_wanted_where_the_server_wants_one() -> None:
    of = server(choices=(ChoiceDraft("header", key="X-Key"),))
    assert instance_problems(InstanceDraft(), of) == ["value"]
    instance = validate_instance(InstanceDraft(value=" Bearer key-of-a-test \n"), of, "u", None, "s", 1.0)
    assert (instance.value, instance.state) == ("Bearer key-of-a-test", InstanceState.READY)
    assert "key-of-a-test" not in repr(instance)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "x" * 8193, "kéy", "\ud800"])
def test_values_that_no_header_may_have(value: str) -> None:
    of = server(choices=(ChoiceDraft("header", key="X-Key"),))
    assert instance_problems(InstanceDraft(value=value), of) == ["value"]


def test_a_query_parameter_may_have_more_characters_than_a_header() -> None:
    of = server(choices=(ChoiceDraft("header", place="query", key="key"),))
    assert validate_instance(InstanceDraft(value="kéy & more"), of, "u", None, "s", 1.0).value == "kéy & more"
    assert instance_problems(InstanceDraft(value="a\nb"), of) == ["value"]


def test_a_choice_is_named_where_there_are_several() -> None:
    of = server(choices=(ChoiceDraft("public"), ChoiceDraft("oauth")))
    assert instance_problems(InstanceDraft(), of) == ["choice_id"]
    assert instance_problems(InstanceDraft(choice_id="made-up"), of) == ["choice_id"]
    instance = validate_instance(InstanceDraft(choice_id=of.choices[1].id), of, "u", None, "s", 1.0)
    assert instance.choice_id == of.choices[1].id


def test_all_problems_of_an_instance_are_told_at_once() -> None:
    of = server(choices=(ChoiceDraft("header", key="X-Key"),))
    draft = InstanceDraft(slug="a b", name="x" * 81, tool_filter=("ok", "", "a\x00"))
    assert instance_problems(draft, of) == ["value", "slug", "name", "tool_filter[1]", "tool_filter[2]"]


@pytest.mark.parametrize("tool_filter", [None, (), ("a",), ("b", "a", "b")])
def test_a_filter_is_all_none_or_some(tool_filter: tuple[str, ...] | None) -> None:
    instance = validate_instance(InstanceDraft(tool_filter=tool_filter), server(), "u", None, "s", 1.0)
    assert instance.tool_filter == (None if tool_filter is None else tuple(dict.fromkeys(tool_filter)))


def test_an_edit_keeps_the_value_unless_another_is_given() -> None:
    of = server(choices=(ChoiceDraft("header", key="X-Key"),))
    first = validate_instance(InstanceDraft(value="abc"), of, "u", None, "s", 1.0)
    asleep = replace(first, state=InstanceState.NEEDS_REAUTH, reason="refused", enabled=False)

    def edit(**changes: Any) -> Any:
        return validate_instance(InstanceDraft(**changes), of, "u", asleep, asleep.slug, 2.0)

    same = edit(name="Other")
    assert (same.id, same.slug, same.name, same.value, same.enabled) == (first.id, "s", "Other", "abc", False)
    assert (same.state, same.reason) == (InstanceState.NEEDS_REAUTH, "refused")
    assert (edit(value="new").value, edit(value="new").state) == ("new", InstanceState.READY)
    cleared_instance = edit(value="")
    assert (cleared_instance.value, cleared_instance.state) == (None, InstanceState.PENDING)


def test_another_way_of_signing_in_starts_again() -> None:
    of = server(choices=(ChoiceDraft("header", key="X-Key"), ChoiceDraft("oauth"), ChoiceDraft("public")))
    header, oauth, public = (choice.id for choice in of.choices)
    first = validate_instance(InstanceDraft(choice_id=header, value="abc"), of, "u", None, "s", 1.0)
    to_oauth = validate_instance(InstanceDraft(choice_id=oauth), of, "u", first, "s", 2.0)
    assert (to_oauth.value, to_oauth.state) == (None, InstanceState.PENDING)
    ready = replace(to_oauth, state=InstanceState.READY, reason=None)
    assert validate_instance(InstanceDraft(), of, "u", ready, "s", 3.0).state is InstanceState.READY
    assert instance_problems(InstanceDraft(choice_id=header), of, old=ready) == ["value"]
    assert (
        validate_instance(InstanceDraft(choice_id=public), of, "u", ready, "s", 3.0).state
        is InstanceState.READY
    )


# Whatever comes.

TEXT = st.text(max_size=30)
CHOICES = st.builds(
    ChoiceDraft,
    kind=st.sampled_from(["public", "header", "oauth", "x"]) | TEXT,
    label=TEXT,
    id=st.none() | TEXT,
    place=st.sampled_from(["header", "query"]) | TEXT,
    key=st.none() | TEXT,
    registration=st.sampled_from(list(RegistrationMethod)) | TEXT,
    client_id=st.none() | TEXT,
    client_secret=st.none() | TEXT,
    scopes=st.lists(TEXT, max_size=3).map(tuple),
    resource=st.none() | TEXT,
)
SERVERS = st.builds(
    ServerDraft,
    name=TEXT,
    url=TEXT | TEXT.map(lambda text: f"https://{text}/"),
    transport=TEXT,
    trust=st.sampled_from(["trusted", "untrusted"]) | TEXT,
    description=TEXT,
    allow_tools=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    deny_tools=st.lists(TEXT, max_size=3).map(tuple),
    choices=st.lists(CHOICES, max_size=3).map(tuple),
)


@given(SERVERS)
def test_every_draft_becomes_a_server_or_a_list_of_problems(draft: ServerDraft) -> None:
    try:
        server_record = validate_server(draft, None, 1.0)
    except Invalid as error:
        problem_pairs = [(problem.path, problem.message) for problem in error.problems]
    else:
        problem_pairs = []
        assert server_record.choices
        # What is taken can be written down and sent.
        f"{server_record!r}".encode()
        again = ServerDraft(
            server_record.name,
            server_record.url,
            trust=server_record.trust,
            allow_tools=server_record.allow_tools,
        )
        assert validate_server(again, None, 1.0).name == server_record.name
    assert all(path and message for path, message in problem_pairs)
