"""A register store to be tortured: one process, a log that is read at a start. Standard library alone.

    python server.py --listen 127.0.0.1:7001 --data /tmp/store [--lazy]

    GET /k1          its value, as JSON
    PUT /k1          sets it

With ``--lazy`` it answers before its log is written, which is the bug that a kill finds.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LAZY_S = 10.0


class Store:
    """Values by key, and the log in which they stand."""

    def __init__(self, directory: Path, lazy: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "log"
        self.values: dict[str, Any] = {}
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            if not line.endswith(b"\n"):
                break  # a kill cut the line, before its answer left
            key, value = json.loads(line)
            self.values[key] = value
            whole += len(line)
        self._log = path.open("ab")
        self._log.truncate(whole)
        self._lock, self._lazy = threading.Lock(), lazy
        if lazy:
            threading.Thread(target=self._write_later, daemon=True).start()

    def put(self, key: str, value: Any) -> None:
        """It is in the log when this returns; but not if the store is lazy."""
        with self._lock:
            self._log.write(json.dumps([key, value]).encode() + b"\n")
            if not self._lazy:
                self._log.flush()
            self.values[key] = value

    def get(self, key: str) -> Any:
        with self._lock:
            return self.values.get(key)

    def _write_later(self) -> None:
        while True:
            time.sleep(LAZY_S)
            with self._lock:
                self._log.flush()


class Handler(BaseHTTPRequestHandler):
    """One connection of a client, with a thread of its own."""

    protocol_version = "HTTP/1.1"
    store: Store

    def do_GET(self) -> None:
        self._answer(json.dumps(self.store.get(self.path)).encode())

    def do_PUT(self) -> None:
        self.store.put(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(b"null")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Write nothing: a line for each request would fill the log."""


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lazy", action="store_true")
    options = parser.parse_args()
    Handler.store = Store(options.data, options.lazy)
    host, _, port = options.listen.rpartition(":")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
