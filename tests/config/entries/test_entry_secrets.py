"""Secrets in the address and the arguments of an entry that is added."""

from __future__ import annotations

import pytest

from toolyard.config.secret_variables import find_secret_parameter, replace_secrets
from toolyard.config.sources.json_document import JsonValue


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("https://x.example/?token=s3cret-1234#top", "https://x.example/?token=${API_TOKEN}#top"),
        ("https://me:s3cret-1234@x.example/", "https://me:${API_PASSWORD}@x.example/"),
        ("https://x.example/?key=short", "https://x.example/?key=short"),
        ("https://x.example/?key=${SOME_KEY}", "https://x.example/?key=${SOME_KEY}"),
    ],
)
def test_the_secrets_of_an_address_become_variables(given: str, written: str) -> None:
    assert replace_secrets("api", {"url": given}, {}).value == {"url": written}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (
            ["--token=s3cret-1234", "--api-key", "s3cret-5678"],
            ["--token=${API_TOKEN}", "--api-key", "${API_API_KEY}"],
        ),
        (["--key", "s3cret-1234", "--key", "s3cret-5678"], ["--key", "${API_KEY}", "--key", "${API_KEY_2}"]),
        (
            ["-e", "GITHUB_TOKEN=s3cret-1234", "i:token-1"],
            ["-e", "GITHUB_TOKEN=${GITHUB_TOKEN}", "i:token-1"],
        ),
        (["--header=X-API-Key: s3cret-1234"], ["--header=X-API-Key: ${API_API_KEY}"]),
        (["--url=http://h?token=s3cret-1234"], ["--url=http://h?token=${API_TOKEN}"]),
        (["postgresql://me:s3cret-1234@db/x"], ["postgresql://me:${API_PASSWORD}@db/x"]),
        (["sk-s3cret-1234", "from-the-shell"], ["${API_TOKEN}", "from-the-shell"]),
        (["--password", "from-the-shell"], ["--password", "${SHELL_KEY}"]),
    ],
)
def test_the_secrets_of_arguments_become_variables(given: list[JsonValue], written: list[JsonValue]) -> None:
    stored = replace_secrets("api", {"command": "x", "args": given}, {"SHELL_KEY": "from-the-shell"})
    assert stored.value == {"command": "x", "args": written}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-tokens", "10000000", "--key-file", "some-file-name", "--keyboard=some-layout"],
        ["--key", "/a/path/to.pem", "--token", "--some-option", "--secret", "${MY_SECRET}"],
        ["token", "some-positional", "keys:several-words", 5, {"token": "s3cret-1234"}],
    ],
)
def test_other_arguments_stay_as_they_are(arguments: list[JsonValue]) -> None:
    entry: dict[str, JsonValue] = {"command": "x", "args": arguments}
    assert replace_secrets("api", entry, {}).value == entry


def test_the_parameter_with_the_secret_is_named() -> None:
    assert find_secret_parameter("https://me:s3cret-1234@h.example/?page=10&api_key=s3cret-1234") == "api_key"
    assert find_secret_parameter("https://me:s3cret-1234@h.example/?page=10000000") is None
