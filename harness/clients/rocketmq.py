"""The client of RocketMQ's targets, and what tells roles and whether all is well.

    python -m harness.clients.rocketmq work --namesrv HOST:PORT --queues 4
    python -m harness.clients.rocketmq roles --controllers A,B,C --brokers A,B,C --group broker-a
    python -m harness.clients.rocketmq well --controllers A,B,C --brokers A,B,C --group broker-a
    python -m harness.clients.rocketmq roles --namesrv N --master A --slaves B,C --group broker-a, and well

``work`` takes operations of queues (``harness.checkers.queues``): a key ``q1`` is queue 1 of the one topic. A receive
follows the queue from its begin; ``read-all`` is a new reading. Each send is one attempt, whose outcome is told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final

import attrs
import trio

from broker.client import (
    Client,
    ClientError,
    ClientSettings,
    ConsumerSettings,
    Message,
    MessageQueue,
    Puller,
    SendUnknown,
    Start,
    connect,
)
from broker.registration import ask_members
from mqcluster.looking import ClusterView, look
from remoting.client import Client as RemotingClient
from remoting.client import open_client
from remoting.errors import BodyError, RemotingError

TOPIC: Final = "chaos"
CLUSTER: Final = "DefaultCluster"
LOOK_S: Final = 0.2
ASK_MS: Final = 1_000
POLL_MS: Final = 200
_SETTINGS: Final = ClientSettings(resend_unknown=False)
_READING: Final = ConsumerSettings(suspend_ms=200, pull_timeout_ms=2_000)


@attrs.define(eq=False)
class QueueWork:
    """One client at work: a puller for each queue that it follows."""

    client: Client
    queues: dict[str, MessageQueue]
    stack: AsyncExitStack
    body_bytes: int = 0
    """Shorter bodies are filled up, behind a NUL, with what cannot be compressed."""
    _pullers: dict[str, Puller] = attrs.field(factory=dict, init=False)
    _assigned: set[str] = attrs.field(factory=set, init=False)

    async def do(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to one operation, without its number."""
        timeout_ms = asked["timeout_ms"]
        if asked["f"] == "receive" and asked["key"] not in self._pullers:  # it lives longer than this operation
            self._pullers[asked["key"]] = await self.stack.enter_async_context(self._pull(f"chaos-{os.getpid()}"))
        try:
            with trio.fail_after(timeout_ms / 1e3):
                if asked["f"] == "send":
                    return await self._send(asked)
                elif asked["f"] == "receive":
                    return {"type": "ok", "value": await self._receive(asked["key"])}
                elif asked["f"] == "read-all":
                    return {"type": "ok", "value": await self._read_all(asked["key"])}
                return {"type": "fail", "error": f"no operation {asked['f']}"}
        except (ClientError, trio.TooSlowError) as error:
            sure = asked["f"] != "send" or not isinstance(error, SendUnknown | trio.TooSlowError)
            return {"type": "fail" if sure else "info", "error": f"{type(error).__name__}: {error}"}

    async def _send(self, asked: dict[str, Any]) -> dict[str, Any]:
        body = str(asked["value"]).encode()
        if len(body) < self.body_bytes:
            body += b"\0" + os.urandom(self.body_bytes - len(body) - 1)
        message = Message(TOPIC, body)
        sent = await self.client.send(message, queue=self.queues[asked["key"]], timeout_ms=asked["timeout_ms"])
        return {"type": "ok", "value": {"body": asked["value"], "offset": sent.queue_offset}}

    async def _receive(self, key: str) -> list[dict[str, Any]]:
        puller = self._pullers[key]
        if key not in self._assigned:
            await puller.assign([self.queues[key]])
            self._assigned.add(key)
        return _told(await puller.poll(timeout_ms=POLL_MS))

    async def _read_all(self, key: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with self._pull("chaos-last") as puller:
            await puller.assign([self.queues[key]])
            end = await self.client.max_offset(self.queues[key])
            while puller.position(self.queues[key]) < end:
                found += _told(await puller.poll(timeout_ms=POLL_MS))
        return found

    def _pull(self, group: str) -> AbstractAsyncContextManager[Puller]:
        return self.client.pull(group, start=Start.FIRST, settings=_READING)


def _told(messages: list[Any]) -> list[dict[str, Any]]:
    return [{"body": each.body.partition(b"\0")[0].decode(), "offset": each.queue_offset} for each in messages]


async def work(options: argparse.Namespace) -> None:
    """Answer line by line until standard input ends."""
    async with connect(options.namesrv.split(","), producer_group=f"chaos-{os.getpid()}",
                       settings=_SETTINGS) as client, AsyncExitStack() as stack:
        found = await _topic(client, options.group, options.queues)
        queues = {f"q{queue.queue_id}": queue for queue in found}
        working = QueueWork(client, queues, stack, options.body_bytes)
        print(json.dumps({"ready": True}), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            asked = json.loads(line)
            print(json.dumps({"id": asked["id"], **await working.do(asked)}), flush=True)


async def _topic(client: Client, group: str, queues: int) -> list[MessageQueue]:
    """Made where it is missing; tried until the cluster is there."""
    while True:
        try:
            await client.create_topic(TOPIC, queues=queues)
            found = [queue for queue in await client.queues(TOPIC) if queue.broker_name == group]
            if len(found) >= queues:
                return found
        except ClientError:
            pass  # it is not there yet
        await trio.sleep(LOOK_S)


def roles_of(
    view: ClusterView, group: str, brokers: dict[str, str], controllers: dict[str, str],
) -> dict[str, list[str]]:
    """Names of nodes by role; ``brokers`` and ``controllers`` name the node of each address."""
    found = view.groups.get(group)
    master = None if found is None else found.master
    return {
        "master": [name for address, name in brokers.items() if address == master],
        "slave": [name for address, name in brokers.items() if master is not None and address != master],
        "in-sync": [name for address, name in brokers.items() if found is not None and address in found.in_sync],
        "active": [name for address, name in controllers.items() if address == view.active],
        "standby": [name for address, name in controllers.items() if view.active and address != view.active]}


def roles_listed(listed: Mapping[int, str], master: str, slaves: dict[str, str]) -> dict[str, list[str]]:
    """The same of a group without controllers, of which a name server lists addresses by broker id.

    While it lists no master, the slave of the smallest id acts, if it may at all.
    """
    here = [name for _, address in sorted(listed.items()) for name in [slaves.get(address)] if name is not None]
    leads = listed.get(0) == master
    return {"master": ["master-1"] if leads else [], "slave": here, "acting": [] if leads else here[:1]}


async def _look(client: RemotingClient, options: argparse.Namespace) -> dict[str, list[str]] | None:
    """Roles as they are now; None where nobody told."""
    if options.controllers:
        brokers, controllers = _named(options.brokers, "broker"), _named(options.controllers, "controller")
        return roles_of(await look(client, list(controllers), [options.group]), options.group, brokers, controllers)
    try:
        listed = await ask_members(client, options.namesrv, CLUSTER, options.group, ASK_MS)
    except (RemotingError, BodyError):
        return None
    found = roles_listed(listed, options.master, _named(options.slaves, "slave"))
    return found if options.acting == "true" else {**found, "acting": []}


async def roles(options: argparse.Namespace) -> None:
    """Print them whenever they change, until killed."""
    last: dict[str, list[str]] = {}
    async with open_client() as client:
        while True:
            found = await _look(client, options)
            if found is not None and found != last:
                print(json.dumps(found), flush=True)
                last = found
            await trio.sleep(LOOK_S)


async def well(options: argparse.Namespace) -> None:
    """End with 0 if the group has a master and all are in sync, or listed; else with 1."""
    async with open_client() as client:
        found = await _look(client, options) or {}
    here = found.get("in-sync", []) if options.controllers else [*found.get("master", []), *found.get("slave", [])]
    wanted = _named(options.brokers or f"{options.master},{options.slaves}", "broker")
    if not found.get("master") or len(here) < len(wanted):
        sys.exit(1)


def _named(addresses: str, kind: str) -> dict[str, str]:
    return {address: f"{kind}-{number}" for number, address in enumerate(addresses.split(","), 1)}


def parser() -> argparse.ArgumentParser:
    """The command line of the three."""
    made = argparse.ArgumentParser("python -m harness.clients.rocketmq", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = made.add_subparsers(dest="command", required=True)
    runs: dict[str, Callable[[argparse.Namespace], Any]] = {"work": work, "roles": roles, "well": well}
    for name, run in runs.items():
        each = commands.add_parser(name)
        each.add_argument("--group", default="broker-a")
        if name == "work":
            each.add_argument("--namesrv", required=True)
            each.add_argument("--queues", type=int, default=4)
            each.add_argument("--body-bytes", type=int, default=0)
        else:
            told = each.add_mutually_exclusive_group(required=True)
            told.add_argument("--controllers", help="of a group that controllers elect for")
            told.add_argument("--namesrv", help="of a group without controllers")
            each.add_argument("--brokers", default="")
            each.add_argument("--master", default="")
            each.add_argument("--slaves", default="")
            each.add_argument("--acting", default="true", help="whether a slave acts while there is no master")
        each.set_defaults(run=run)
    return made


if __name__ == "__main__":
    asked_for = parser().parse_args()
    trio.run(asked_for.run, asked_for)
