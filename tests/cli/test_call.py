"""``toolyard call``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

SERVERS = Path(__file__).parent.parent / "servers"


def test_words_are_converted_by_the_schema(cli_with_server: Cli) -> None:
    words = ["text=7", "whole=7", "share=1.5", "flag=yes", "names=a", "names=b", "sizes=[1, 2]", "box.wide=3"]
    result = cli_with_server("call", "odd_typed", *words, 'more:={"deep": [null]}', "other=8")
    assert json.loads(result.out) == {
        "text": "7",
        "whole": 7,
        "share": 1.5,
        "flag": True,
        "names": ["a", "b"],
        "sizes": [1, 2],
        "box": {"wide": 3},
        "more": {"deep": [None]},
        "other": "8",
    }


def test_a_json_object_goes_as_it_is(cli_with_server: Cli) -> None:
    json_argument = '{"whole": "seven", "emoji": "🎉"}'
    assert json.loads(cli_with_server("call", "odd_typed", json_argument).out) == json.loads(json_argument)
    assert json.loads(cli_with_server("call", "odd_typed", "-", input=json_argument).out) == json.loads(
        json_argument
    )


def test_raw_prints_the_answer_of_the_server(cli_with_server: Cli) -> None:
    assert cli_with_server("call", "odd_fail", "--raw").json == {
        "content": [{"type": "text", "text": "it went wrong"}],
        "isError": True,
    }


def test_a_person_gets_all_of_a_long_answer(cli_with_server: Cli) -> None:
    assert cli_with_server("call", "odd_long").out == "x" * 200_000 + "\n"


def test_a_pipe_gets_a_text_byte_for_byte(cli_with_server: Cli) -> None:
    assert cli_with_server("call", "odd_screen").out == "\x1b[2Jcleared\tyour screen\n"


def test_media_are_described_and_written_only_where_asked(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_image")
    assert result.out == "[image: image/png, 28 bytes]\n"
    assert result.err == "note: media were not saved\nhint: use --save DIR to write them to files\n"
    for number in (1, 2):
        command_result = cli_with_server("call", "odd_image", "--save", "media")
        assert command_result.out == f"[image: image/png, 28 bytes] -> media/odd_image-{number}.png\n"
        assert (cli_with_server.home / f"media/odd_image-{number}.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_is_described_alike_for_all_callers(cli: Cli) -> None:
    server = {"command": sys.executable, "args": [str(SERVERS / "results_server.py")]}
    cli.write({"mcpServers": {"r": server}})
    cli.agents("## Reader\n---\ndescription: Reads.\n---\nRead.\n")
    command = ["call", "r_media", "mime=application/zip", "data=UEsDBA=="]
    for words in ([], ["--agent", "reader"]):
        result = cli(*command, *words, "--save", "media")
        assert result.out.startswith("[file file:///made/up: application/zip, 4 bytes] -> media/")
    assert not (cli.data / "results.db").exists()


def test_a_folder_that_cannot_be_written_is_a_clear_error(cli_with_server: Cli) -> None:
    (cli_with_server.home / "file").write_text("")
    result = cli_with_server("call", "odd_image", "--save", "file/media")
    assert result.code == 2
    assert result.err.startswith("error: --save file/media: ")


def test_json_has_text_structure_and_media(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_image", "--json", "--save", "media")
    assert result.json["media"] == [
        {"kind": "image", "mime": "image/png", "bytes": 28, "uri": None, "file": "media/odd_image-1.png"}
    ]


def test_only_the_server_of_the_tool_is_started(
    cli: Cli, unusual_server: dict[str, Any], demo: dict[str, Any], starts_file: Path
) -> None:
    cli.write({"mcpServers": {"odd": unusual_server, "demo": demo}})
    assert cli("call", "demo_weekday", "date=2026-07-28").out == "2026-07-28 is a Tuesday.\n"
    assert not starts_file.exists()


def test_a_tool_of_a_program_is_called_without_network_modules(cli_with_server: Cli) -> None:
    result = cli_with_server.run(
        [sys.executable, "-X", "importtime", *cli_with_server.words("call", "odd_typed", "text=7")[1:]]
    )
    loaded_modules = {line.split()[-1] for line in result.err.splitlines()}
    assert json.loads(result.out) == {"text": "7"}
    assert "toolyard.library" in loaded_modules
    assert not {"aiohttp", "yarl", "urllib.request", "sqlalchemy", "pydantic"} & loaded_modules


def test_progress_is_told_on_standard_error_in_lines_when_verbose(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo}})
    result = cli("-v", "call", "demo_count", "to=3", "pause=0.01")
    assert result.out == "Counted to 3.\n"
    assert [line for line in result.err.splitlines() if line.startswith("progress: ")] == [
        "progress: 1/3 1 of 3",
        "progress: 2/3 2 of 3",
        "progress: 3/3 3 of 3",
    ]
    assert "DEBUG toolyard.calls: demo/count: ok in" in result.err
    assert cli("call", "demo_count", "to=3", "pause=0.01").err == ""


def test_a_write_tool_is_refused_without_a_terminal(cli_with_server: Cli) -> None:
    result = cli_with_server("call", "odd_write", TOOLYARD_WRITE_TOOLS="ask")
    assert result.code == 4
    assert result.err == (
        "error: 'odd_write' needs an approval, and nobody is available to ask\n"
        "hint: call the tool at a terminal, or set write_tools to 'allow'\n"
    )
    assert cli_with_server("call", "odd_write", TOOLYARD_WRITE_TOOLS="allow").code == 0


def test_an_untrusted_answer_is_fenced(cli: Cli, unusual_server: dict[str, Any]) -> None:
    server = {"trust": "untrusted", "allowTools": ["typed"], "transport": {"type": "stdio", **unusual_server}}
    cli.write({"servers": {"odd": server}})
    result = cli("call", "odd_typed", "text=hi", TOOLYARD_WRITE_TOOLS="allow")
    assert result.code == 0
    assert '{"text": "hi"}' in result.out
    assert len(result.lines) > 1
