"""Secrets in the address and the arguments of an entry that is added."""

from __future__ import annotations

import pytest

from toolyard.config.secret_replacement import find_secret_parameter, replace_secrets
from toolyard.config.sources.json_document import JsonValue

TOKEN = "NmFmZGU0Yzk3ZTQ2NGY1YThiOTM4MGM2"
HEX_TOKEN = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c"


@pytest.mark.parametrize(
    ("values", "expected_value"),
    [
        ("https://x.example/?token=s3cret-1234#top", "https://x.example/?token=${API_TOKEN}#top"),
        ("https://me:s3cret-1234@x.example/", "https://me:${API_PASSWORD}@x.example/"),
        (f"https://x.example/s/{TOKEN}/mcp?page=1", "https://x.example/s/${API_TOKEN}/mcp?page=1"),
        (f"https://x.example/s/{TOKEN}%3D%3D", "https://x.example/s/${API_TOKEN}"),
        (f"https://x.example/{HEX_TOKEN}/{TOKEN}", "https://x.example/${API_TOKEN_2}/${API_TOKEN}"),
        ("https://x.example/ghp_s3cret1234/mcp", "https://x.example/${API_TOKEN}/mcp"),
        ("https://x.example/?key=short", "https://x.example/?key=short"),
        ("https://x.example/?key=${SOME_KEY}", "https://x.example/?key=${SOME_KEY}"),
    ],
)
def test_the_secrets_of_an_address_become_variables(values: str, expected_value: str) -> None:
    assert replace_secrets("api", {"url": values}, {}).value == {"url": expected_value}


@pytest.mark.parametrize(
    ("values", "expected_value"),
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
        (["mcp-remote", f"https://h/s/{TOKEN}/sse"], ["mcp-remote", "https://h/s/${API_TOKEN}/sse"]),
        (["sk-s3cret-1234", "from-the-shell"], ["${API_TOKEN}", "from-the-shell"]),
        (["--password", "from-the-shell"], ["--password", "${SHELL_KEY}"]),
    ],
)
def test_the_secrets_of_arguments_become_variables(
    values: list[JsonValue], expected_value: list[JsonValue]
) -> None:
    replaced = replace_secrets("api", {"command": "x", "args": values}, {"SHELL_KEY": "from-the-shell"})
    assert replaced.value == {"command": "x", "args": expected_value}


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


@pytest.mark.parametrize(
    "path",
    [
        "2b6f0cc9-04d1-4d5c-8a4f-1b1a3c0e9d77/mcp",  # a UUID is an id
        "2b6f0cc904d14d5c8a4f1b1a3c0e9d77/mcp",
        "o/r/tree/069351b85f9a706f60d3e98fbc8aaf40c374356b",  # a commit
        "ModelContextProtocolServer2025/mcp",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "my-project-2024-server-v2-production-eu-west-1/mcp",
        "aaaaaaaaaaBBBBBBBBBB1111111111/mcp",
        f"mcp#{TOKEN}",
    ],
)
def test_readable_parts_of_a_path_stay_as_they_are(path: str) -> None:
    entry: dict[str, JsonValue] = {"url": f"https://x.example/{path}"}
    assert replace_secrets("api", entry, {}).value == entry


def test_the_parameter_with_the_secret_is_named() -> None:
    assert find_secret_parameter("https://me:s3cret-1234@h.example/?page=10&api_key=s3cret-1234") == "api_key"
    assert find_secret_parameter("https://me:s3cret-1234@h.example/?page=10000000") is None
