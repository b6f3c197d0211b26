"""A replicated key-value store: the state machine, its commands, and a program that runs one node of it.

    python docs/examples/kv.py --id n0 --peers n0=127.0.0.1:7000,n1=127.0.0.1:7001,n2=127.0.0.1:7002 --data data/n0

Start it once for each of the peers, then use it from any trio program:

    async with raft.connect(["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"]) as client:
        await client.propose(put("colour", "green"))
        await client.query(get("colour"))  # 'green'
"""

from __future__ import annotations

import argparse
import logging
import signal
from contextlib import AsyncExitStack

import cbor2
import trio

import raft
from raft.loglimit import RepeatLimit


class KeyValueStore(raft.StateMachine):
    """Text by text. A bad command is answered, not raised: an exception would stop the node."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, command: bytes) -> object:
        match read(command):
            case ["put", str(key), str(value)]:
                before = self.values.get(key)
                self.values[key] = value
                return before
            case ["delete", str(key)]:
                return self.values.pop(key, None)
            case ["compare and put", str(key), expected, str(value)]:
                if fits := self.values.get(key) == expected:
                    self.values[key] = value
                return fits
        return "no such command"

    def query(self, data: bytes) -> object:
        match read(data):
            case ["get", str(key)]:
                return self.values.get(key)
            case ["count"]:
                return len(self.values)
            case ["all", str(prefix)]:
                return {key: value for key, value in self.values.items() if key.startswith(prefix)}
        return "no such query"

    def snapshot(self) -> bytes:
        return cbor2.dumps(self.values)

    def restore(self, data: bytes) -> None:
        self.values = cbor2.loads(data)


def read(data: bytes) -> object:
    """CBOR, or None for what is none."""
    try:
        return cbor2.loads(data)
    except cbor2.CBORError:
        return None


def put(key: str, value: str) -> bytes:
    """Command: set ``key``; gives the former value."""
    return cbor2.dumps(["put", key, value])


def delete(key: str) -> bytes:
    """Command: drop ``key``; gives the former value."""
    return cbor2.dumps(["delete", key])


def compare_and_put(key: str, expected: str | None, value: str) -> bytes:
    """Command: set ``key`` if it has the expected value; gives whether it had."""
    return cbor2.dumps(["compare and put", key, expected, value])


def get(key: str) -> bytes:
    """Query: the value of ``key``, or None."""
    return cbor2.dumps(["get", key])


def count() -> bytes:
    """Query: how many keys there are."""
    return cbor2.dumps(["count"])


def everything(prefix: str = "") -> bytes:
    """Query: all keys that begin with ``prefix``, with their values."""
    return cbor2.dumps(["all", prefix])


# --- one node ------------------------------------------------------------------------------------------------


async def run_node(arguments: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    peers = dict(peer.split("=", 1) for peer in arguments.peers.split(","))
    config = raft.Config(rules=raft.Rules(arguments.rules))
    async with AsyncExitStack() as stack:
        trace = None
        if arguments.trace:
            from raft.tracefile import open_trace_file

            trace = await stack.enter_async_context(open_trace_file(arguments.trace))
        await stack.enter_async_context(raft.open_node(
            arguments.id, peers, arguments.data, KeyValueStore(), bootstrap=not arguments.join, join=arguments.join,
            config=config, trace=trace))
        print(f"{arguments.id} listens at {peers[arguments.id]}", flush=True)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                return


def main() -> None:
    """Parse the command line and run one node."""
    parser = argparse.ArgumentParser(description="One node of a replicated key-value store.")
    parser.add_argument("--id", required=True, help="this node's id, one of --peers")
    parser.add_argument("--peers", required=True, help="all nodes: n0=host:port,n1=host:port,...")
    parser.add_argument("--data", required=True, help="this node's directory")
    parser.add_argument("--join", action="store_true", help="enter a running group (then add the node with raftctl)")
    parser.add_argument("--rules", choices=[rules.value for rules in raft.Rules], default="strict")
    parser.add_argument("--trace", help="write trace events to this file")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger().handlers[0].addFilter(RepeatLimit())
    trio.run(run_node, parser.parse_args())


if __name__ == "__main__":
    main()
