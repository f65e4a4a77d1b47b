from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolyard.registry.field_validation import slug_fault
from toolyard.registry.service import MAX_SLUG_CHARACTERS, derive_slug, make_slug_unique

VALID = re.compile(r"[A-Za-z0-9-]{1,24}")


@pytest.mark.parametrize(
    ("url", "slug"),
    [
        ("https://api.github.com/mcp", "github"),
        ("https://www.example.co.uk/mcp", "example"),
        ("https://mcp.api.example.com.au/", "example"),
        ("https://mcp.linear.app/sse", "linear"),
        ("https://API.GitHub.COM:8443/x?y=z#w", "github"),
        ("https://mcp.example.com./mcp", "example"),
        ("https://docs.mcp.cloudflare.com/sse", "cloudflare"),
        # Only generic words, or none but the suffix.
        ("https://mcp.com/", "mcp"),
        ("https://api.co.uk/", "api"),
        ("https://co.uk/", "co"),
        # Hosts of many people's things.
        ("https://my-tools.vercel.app/mcp", "my-tools"),
        ("https://tools-abc-uc.a.run.app/", "tools-abc-uc"),
        ("https://vercel.app/", "vercel"),
        # Machines without a domain.
        ("http://localhost:4010/mcp", "local"),
        ("http://127.0.0.1:4010/mcp", "local"),
        ("http://[::1]/mcp", "local"),
        ("http://app.localhost/", "app"),
        ("http://gitea:3000/mcp", "gitea"),
        ("http://192.168.1.20/mcp", "192-168-1-20"),
        ("http://[2001:db8::7]/mcp", "server"),
        # International names.
        ("https://xn--bcher-kva.example/", "bucher"),
        ("https://bücher.example/", "bucher"),
        ("https://xn--fiqs8s.cn/", "xn-fiqs8s"),
        ("https://中国.cn/", "xn-fiqs8s"),
        # Numbers, and more than fits.
        ("https://360.cn/", "360"),
        (f"https://{'a' * 60}.com/", "a" * 24),
        (f"https://{'a' * 23}-b.com/", "a" * 23),
        # No address at all.
        ("", "server"),
        ("nonsense", "server"),
        ("http://[", "server"),
        ("https://_/", "server"),
    ],
)
def test_a_slug_is_proposed_from_the_domain(url: str, slug: str) -> None:
    assert derive_slug(url) == slug


@pytest.mark.parametrize(
    ("url", "name", "slug"),
    [
        ("https://api.github.com/mcp", "Code", "github"),
        ("http://127.0.0.1:8000/mcp", "Home Assistant", "home-assistant"),
        ("http://localhost/mcp", "Ärzte!", "arzte"),
        ("http://192.168.1.5/mcp", "NAS", "nas"),
        ("https://mcp.dev/", "Wiki", "wiki"),
        ("http://[2001:db8::7]/mcp", "Wiki", "wiki"),
        ("http://127.0.0.1/", "…", "local"),
    ],
)
def test_a_slug_comes_from_the_name_where_the_host_says_nothing(url: str, name: str, slug: str) -> None:
    assert derive_slug(url, name) == slug


@given(st.text())
@example("https://xn--\x80/")
@example("https://xn--a/")
@example("https://-.--.-/")
@example("https://١٢٣.com")
def test_every_proposal_is_valid(text: str) -> None:
    for url in (text, f"https://{text}/", f"https://{text}.example.com/mcp"):
        assert VALID.fullmatch(derive_slug(url))
        assert VALID.fullmatch(derive_slug("http://127.0.0.1/", text))


@given(st.from_regex(r"[A-Za-z0-9-]{1,24}", fullmatch=True), st.integers(0, 120))
def test_slugs_become_unique_and_stay_valid(slug: str, others: int) -> None:
    taken_slugs: list[str] = []
    for _ in range(others):
        fresh = make_slug_unique(slug, taken_slugs)
        assert VALID.fullmatch(fresh)
        assert fresh.casefold() not in [each.casefold() for each in taken_slugs]
        taken_slugs.append(fresh.upper() if len(taken_slugs) % 2 else fresh.lower())


def test_the_second_gets_a_two_and_long_ones_are_cut_for_it() -> None:
    assert make_slug_unique("github", []) == "github"
    assert make_slug_unique("github", ["GitHub"]) == "github-2"
    assert make_slug_unique("github", ["github", "GITHUB-2"]) == "github-3"
    assert make_slug_unique("a" * MAX_SLUG_CHARACTERS, ["a" * MAX_SLUG_CHARACTERS]) == "a" * 22 + "-2"


@pytest.mark.parametrize("slug", ["a", "A-1", "-", "x" * 24])
def test_slugs(slug: str) -> None:
    assert slug_fault(slug) is None


@pytest.mark.parametrize("slug", ["", "x" * 25, "a_b", "a b", "a/b", "ä", "a\n", "@a", "\u0661"])
def test_no_slugs(slug: str) -> None:
    assert slug_fault(slug) is not None
