"""Agent patterns, with the examples of the decision that asked for them (D5) to the letter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.policy.agent_patterns import compile_patterns, is_exact_name, matches_patterns, unused_patterns
from toolyard.policy.glob import matches_glob

ALL_TOOLS = (
    "context7_query-docs",
    "context7_resolve-library-id",
    "find_files",
    "grep",
    "list_dir",
    "view_file",
    "web_fetch",
    "web_search",
)

names = st.text(alphabet="abc_", max_size=6)
signed_patterns = st.builds("{}{}".format, st.sampled_from(["", "!"]), st.text(alphabet="abc_**", max_size=5))


def scope(*tools: str) -> tuple[str, ...]:
    return tuple(name for name in ALL_TOOLS if matches_patterns(tools, name))


def reference(texts: list[str], name: str) -> bool:
    """Scan left to right; a ``!`` prefix denies; the last matching pattern wins; no match hides."""
    answer = False
    for text in texts:
        deny = text.startswith("!")
        if matches_glob(text[1:] if deny else text, name):
            answer = not deny
    return answer


def test_star_is_all_tools_the_same_as_leaving_tools_out() -> None:
    assert scope("*") == ALL_TOOLS
    assert all(matches_patterns(None, name) for name in ALL_TOOLS)


def test_star_and_not_web_is_all_tools_except_web() -> None:
    assert scope("*", "!web_*") == tuple(name for name in ALL_TOOLS if not name.startswith("web_"))


def test_two_names_and_a_glob_are_only_these_and_all_context7_tools() -> None:
    assert scope("view_file", "grep", "context7_*") == (
        "context7_query-docs",
        "context7_resolve-library-id",
        "grep",
        "view_file",
    )


def test_star_on_architect_and_view_file_on_prompt_builder_give_each_its_intended_scope() -> None:
    architect, prompt_builder = compile_patterns(("*",)), compile_patterns(("view_file",))
    assert [name for name in ALL_TOOLS if architect.allows(name)] == list(ALL_TOOLS)
    assert [name for name in ALL_TOOLS if prompt_builder.allows(name)] == ["view_file"]


def test_view_star_is_all_tools_that_start_with_view() -> None:
    assert scope("view_*") == ("view_file",)


def test_plain_names_are_exact() -> None:
    assert scope("view", "grep") == ("grep",)


def test_the_last_match_wins() -> None:
    assert scope("!web_fetch", "web_*") == ("web_fetch", "web_search")
    assert scope("web_*", "!web_fetch") == ("web_search",)
    assert scope("web_*", "!web_*", "web_fetch") == ("web_fetch",)


def test_no_match_hides() -> None:
    assert scope() == ()
    assert scope("!web_*") == ()


def test_question_marks_and_double_stars_mean_nothing_of_their_own() -> None:
    assert scope("gre?") == ()
    assert scope("**") == scope("*")


@given(texts=st.lists(signed_patterns, max_size=6), name=names)
def test_a_list_equals_a_scan_from_left_to_right(texts: list[str], name: str) -> None:
    assert matches_patterns(tuple(texts), name) is reference(texts, name)


@given(texts=st.lists(signed_patterns, max_size=6), name=names)
def test_the_deciding_pattern_has_the_sign_of_the_answer(texts: list[str], name: str) -> None:
    patterns = compile_patterns(tuple(texts))
    text = patterns.deciding_pattern(name)
    assert patterns.allows(name) is (text is not None and not text.startswith("!"))


@given(texts=st.lists(signed_patterns, max_size=6), last=signed_patterns, name=names)
def test_a_last_pattern_that_matches_overrules_all_before_it(texts: list[str], last: str, name: str) -> None:
    if matches_glob(last.removeprefix("!"), name):
        assert matches_patterns((*texts, last), name) is not last.startswith("!")
    else:
        assert matches_patterns((*texts, last), name) is matches_patterns(tuple(texts), name)


def test_patterns_without_a_match_are_reported_with_either_sign() -> None:
    assert unused_patterns(("*", "!webb_*", "gerp", "grep"), ALL_TOOLS) == ("!webb_*", "gerp")


def test_a_pattern_without_a_star_is_plain() -> None:
    assert is_exact_name("grep")
    assert is_exact_name("!grep")
    assert not is_exact_name("!web_*")
