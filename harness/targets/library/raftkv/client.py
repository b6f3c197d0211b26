"""The client of a key-value store on ``raft``, and what tells who leads, and whether all is well.

It knows the library's client and the store's commands, and no harness.

    python client.py work --nodes kv-1,kv-2,kv-3 --addresses A,B,C --read index
    python client.py roles --nodes kv-1,kv-2,kv-3 --addresses A,B,C
    python client.py well --nodes kv-1,kv-2,kv-3 --addresses A,B,C
"""

from __future__ import annotations

import argparse
import json
import sys
from random import Random
from typing import Any, Final

import trio

import raft

LOOK_S: Final = 0.1
LOOK_MS: Final = 300
_READS: Final = ("get", "read")


async def work(options: argparse.Namespace) -> None:
    """Answer line by line until standard input ends. Reads that need not be fresh are asked of any node."""
    addresses = options.addresses.split(",")
    level, chance = raft.Read(options.read), Random()
    async with raft.connect(addresses) as client:
        print(json.dumps({"ready": True}), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            asked = json.loads(line)
            data = json.dumps([asked["f"], asked["key"], asked["value"]]).encode()
            try:
                if asked["f"] in _READS:
                    where = chance.choice(addresses) if level is raft.Read.UNSAFE else None
                    value = await client.query(data, level=level, address=where, timeout_ms=asked["timeout_ms"])
                else:
                    value = await client.propose(data, timeout_ms=asked["timeout_ms"])
                told = {"type": "ok", "value": value}
            except raft.Unknown as error:
                told = {"type": "info", "error": str(error)}
            except raft.RaftError as error:
                told = {"type": "fail", "error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"id": asked["id"], **told}), flush=True)


async def seen(client: raft.Client[Any, Any, Any], named: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The status of each node that answers, by its name."""
    found: dict[str, dict[str, Any]] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = await client.status(named[name], timeout_ms=LOOK_MS)
        except raft.RaftError:
            return

    async with trio.open_nursery() as nursery:
        for name in named:
            nursery.start_soon(ask, name)
    return found


def leader(found: dict[str, dict[str, Any]]) -> str | None:
    """Return the node that leads in the newest term; None: none says that it leads."""
    leading = [(status["term"], name) for name, status in found.items() if status["role"] == "leader"]
    return max(leading)[1] if leading else None


async def roles(options: argparse.Namespace) -> None:
    """Print them whenever they change, until killed."""
    named, last = _named(options), None
    async with raft.connect(list(named.values())) as client:
        while True:
            leads = leader(await seen(client, named))
            if leads != last and leads is not None:
                last = leads
                found = {"leader": [leads], "follower": [name for name in named if name != leads]}
                print(json.dumps(found), flush=True)
            await trio.sleep(LOOK_S)


async def well(options: argparse.Namespace) -> None:
    """End with 0 if somebody leads and all have applied what is committed; else with 1, and words."""
    named = _named(options)
    async with raft.connect(list(named.values())) as client:
        found = await seen(client, named)
    leads = leader(found)
    behind = [name for name in named
              if leads is None or name not in found or found[name]["applied_index"] < found[leads]["commit_index"]]
    if behind:
        print(f"leader: {leads or 'none'}; silent or behind: {', '.join(behind)}")
        sys.exit(1)


def _named(options: argparse.Namespace) -> dict[str, str]:
    return dict(zip(options.nodes.split(","), options.addresses.split(","), strict=True))


def main() -> None:
    """Work, tell the roles, or say whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = {"work": work, "roles": roles, "well": well}
    parser.add_argument("what", choices=runs)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--addresses", required=True)
    parser.add_argument("--read", choices=[each.value for each in raft.Read], default="index")
    options = parser.parse_args()
    trio.run(runs[options.what], options)


if __name__ == "__main__":
    main()
