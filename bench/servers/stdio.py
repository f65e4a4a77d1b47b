"""The benchmark's server on its standard streams: a blocking loop, the quickest to start and to answer.

python -m servers.stdio [--tools N] [--era both|modern|legacy] [--bigs 10,40]
"""

from __future__ import annotations

import os
import sys

import orjson

from servers.answers import Answers, Parts, modern_version

CHUNK = 1 << 20


def serve(answers: Answers) -> None:
    """Answers every line of the standard input until it ends."""
    rest = b""
    while data := os.read(0, CHUNK):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line:
                _write(_reply(answers, orjson.loads(line)))


def _reply(answers: Answers, message: dict) -> Parts:
    listens = message.get("method") == "subscriptions/listen"
    if listens and modern_version(message) and answers.era != "legacy":
        return (answers.acknowledged(message),)
    return answers.answer(message)[1]


def _write(reply: Parts) -> None:
    if reply:
        *large, last = reply
        for part in (*large, last + b"\n"):
            view = memoryview(part)
            while view:
                view = view[os.write(1, view) :]


def main(words: list[str]) -> None:
    """Arguments are read by hand, since argparse would double the time that a start takes."""
    options = dict(zip(words[::2], words[1::2], strict=True))
    bigs = map(int, filter(None, options.get("--bigs", "").split(",")))
    serve(Answers(int(options.get("--tools", 0)), options.get("--era", "both"), bigs))


if __name__ == "__main__":
    main(sys.argv[1:])
