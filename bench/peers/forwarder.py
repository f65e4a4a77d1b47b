"""The least that can stand between a client and several servers: parse, pick by name, pass on. On the event
loop that comes with Python.

python -m peers.forwarder URL...

Tools are named ``{number}_{tool}``. Prints its port as one line of JSON and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from urllib.parse import urlsplit

import orjson

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of a request or an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().find(b"content-length:")
    size = int(head[at + 15 : head.index(b"\r\n", at)]) if at >= 0 else 0
    return head, await reader.readexactly(size)


async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origins: list[str]) -> None:
    ways: dict[int, Stream] = {}
    try:
        while True:
            _, body = await message(reader)
            document = orjson.loads(body)
            number, _, name = document["params"]["name"].partition("_")
            document["params"]["name"] = name
            place = int(number)
            if place not in ways:
                origin = urlsplit(origins[place])
                ways[place] = await asyncio.open_connection(origin.hostname, origin.port)
            body = orjson.dumps(document)
            ways[place][1].write(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
                b"Mcp-Method: tools/call\r\nMcp-Name: %b\r\nContent-Length: %d\r\n\r\n%b"
                % (name.encode(), len(body), body)
            )
            head, body = await message(ways[place][0])
            writer.write(head + body)
    except asyncio.IncompleteReadError:
        pass
    finally:
        for _, way in ways.values():
            way.close()
        writer.close()


async def main(origins: list[str]) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: client(reader, writer, origins), "127.0.0.1", 0
    )
    print(json.dumps(server.sockets[0].getsockname()[1]), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
