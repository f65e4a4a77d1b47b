"""Minimal client of the pyright language server: open a workspace and find references."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


class LanguageServer:
    """A pyright language server over the standard streams. Requests are answered one at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        command = [str(root / ".venv/bin/pyright-langserver"), "--stdio"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        self._next_id = 0
        self._open: set[Path] = set()
        self.request(
            "initialize",
            {
                "processId": None,
                "rootUri": root.as_uri(),
                "capabilities": {"workspace": {"configuration": True, "workspaceFolders": True}},
                "workspaceFolders": [{"uri": root.as_uri(), "name": root.name}],
            },
        )
        self._send({"method": "initialized", "params": {}})

    def references(self, path: Path, line: int, column: int) -> list[tuple[Path, int, int]]:
        """Return (path, line, column) of every reference, the declaration included. All are zero-based."""
        self._open_document(path)
        found = self.request(
            "textDocument/references",
            {
                "textDocument": {"uri": path.as_uri()},
                "position": {"line": line, "character": column},
                "context": {"includeDeclaration": True},
            },
        )
        return [
            (
                Path(unquote(urlparse(each["uri"]).path)),
                each["range"]["start"]["line"],
                each["range"]["start"]["character"],
            )
            for each in found or []
        ]

    def _open_document(self, path: Path) -> None:
        if path not in self._open:
            self._open.add(path)
            document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text("utf-8")}
            self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def close_document(self, path: Path) -> None:
        """Forget an open document, so that the server stops publishing diagnostics for it."""
        if path in self._open:
            self._open.discard(path)
            self._send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": path.as_uri()}}})

    def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result; answer the server's own requests meanwhile."""
        self._next_id += 1
        request_id = self._next_id
        self._send({"id": request_id, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": self._answer(message)})
            elif message.get("id") == request_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _answer(self, message: dict[str, Any]) -> Any:
        if message["method"] == "workspace/configuration":
            # Tests are analysed too, although the command-line check leaves most of them out.
            analysis = {"diagnosticMode": "openFilesOnly", "indexing": False, "include": ["src", "tests", "bench"]}
            return [
                {"analysis": analysis, "pythonPath": str(self.root / ".venv/bin/python")}
                for _ in message["params"]["items"]
            ]
        return None

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not length:
            raise EOFError("the language server ended")
        return json.loads(stream.read(length))

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()
