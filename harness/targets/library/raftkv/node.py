"""One node of a key-value store on ``raft``, to be tortured.

    python node.py --id kv-1 --nodes kv-1,kv-2,kv-3 --addresses A,B,C --listen HOST:PORT --data /tmp/kv-1

Commands and queries are JSON, ``[f, key, value]``: put (or write), delete, cas ``[old, new]``, txn of one key; get (or
read). What ``apply`` returns is the answer's value.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
from typing import Any, Final

import trio

import raft

SNAPSHOT_BYTES: Final = 64 << 10
"""Bytes of log between two snapshots: so few that a run has many."""
TAIL_ENTRIES: Final = 200
"""Behind a snapshot: who was away for longer gets the snapshot itself."""


class Keys(raft.StateMachine[bytes, Any, Any]):
    """Values by key. A bad command is answered, not raised: an exception would stop the node."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def apply(self, command: bytes) -> Any:
        f, key, value = json.loads(command)
        return self._done(f, key, value)

    def query(self, data: bytes) -> Any:
        return self.values.get(json.loads(data)[1])

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, data: bytes) -> None:
        self.values = json.loads(data)

    def _done(self, f: str, key: str, value: Any) -> Any:
        if f in ("put", "write", "w"):
            self.values[key] = value
            return value
        elif f in ("get", "read", "r"):
            return self.values.get(key)
        elif f == "delete":
            self.values.pop(key, None)
            return None
        elif f == "cas":
            old, new = value
            fits = self.values.get(key) == old
            if fits:
                self.values[key] = new
            return fits
        elif f == "txn":
            return [[inner, of, self._done(inner, key, given)] for inner, of, given in value]
        return f"no such command: {f}"


async def serve(options: argparse.Namespace) -> None:
    """Serve until a SIGTERM or SIGINT comes."""
    peers = dict(zip(options.nodes.split(","), options.addresses.split(","), strict=True))
    config = raft.Config(sync=raft.Sync(options.sync), snapshot_log_bytes=SNAPSHOT_BYTES,
                         snapshot_tail_entries=TAIL_ENTRIES)
    async with raft.open_node(options.id, peers, options.data, Keys(), bootstrap=True, config=config,
                              listen=options.listen):
        print(f"{options.id} listens at {options.listen}", flush=True)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                return


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    for name in ("id", "nodes", "addresses", "listen", "data"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--sync", choices=[each.value for each in raft.Sync], default="always")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    trio.run(serve, parser.parse_args())


if __name__ == "__main__":
    main()
