"""The client of RocketMQ's targets, and what tells roles and whether all is well.

    python -m harness.clients.rocketmq work --namesrv HOST:PORT --queues 4
    python -m harness.clients.rocketmq roles --controllers A,B,C --brokers A,B,C --group broker-a
    python -m harness.clients.rocketmq well --controllers A,B,C --brokers A,B,C --group broker-a
    python -m harness.clients.rocketmq roles --namesrv N --master A --slaves B,C --group broker-a, and well

``work`` takes operations of queues (``harness.checkers.queues``): a key ``q1`` is queue 1 of the one topic. A receive
follows the queue from its begin; ``read-all`` is a new reading. Each send is one attempt, whose outcome is told; it may
be delayed, or a transaction. All clients pop as one group.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from typing import Any, Final

import attrs
import trio

from broker.client import (
    Client,
    ClientError,
    ClientSettings,
    ConsumerSettings,
    Decision,
    Message,
    MessageQueue,
    Popper,
    Puller,
    Received,
    Refused,
    SendFailed,
    Start,
    Transactions,
    Unreachable,
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
POP_GROUP: Final = "chaos-pop"
SPARE_MS: Final = 100
"""Part of an operation's time that is kept for its answer, in milliseconds."""
REVIVED_MS: Final = 8_000
"""Until what was hidden is seen again, at most, by a broker that is well."""
LATE_MS: Final = 2_000
"""Until what is due can be read, at most."""
COMMIT: Final = "commit"
_SETTINGS: Final = ClientSettings(resend_unknown=False)
_READING: Final = ConsumerSettings(suspend_ms=200, pull_timeout_ms=2_000)


@attrs.define(eq=False)
class QueueWork:
    """One client at work: a puller for each queue that it follows, a popper, transactions; each when it is first asked.

    They live longer than the operation that needs them first.
    """

    client: Client
    queues: dict[str, MessageQueue]
    stack: AsyncExitStack
    body_bytes: int = 0
    """Shorter bodies are filled up, behind a NUL, with what cannot be compressed."""
    _pullers: dict[str, Puller] = attrs.field(factory=dict, init=False)
    _assigned: set[str] = attrs.field(factory=set, init=False)
    _popper: Popper | None = attrs.field(default=None, init=False)
    _transactions: Transactions | None = attrs.field(default=None, init=False)

    async def do(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to one operation, without its number."""
        f, key, value, timeout_ms = asked["f"], asked["key"], asked["value"], asked["timeout_ms"]
        told = value if isinstance(value, dict) else {}
        await self._open(f, key, told)
        try:
            with trio.fail_after(timeout_ms / 1e3):
                if f == "send":
                    return await self._send(key, value, timeout_ms)
                elif f == "receive":
                    return {"type": "ok", "value": await self._receive(key)}
                elif f in ("pop", "abandon"):
                    return {"type": "ok", "value": await self._pop(told["most"], timeout_ms - SPARE_MS, f == "pop")}
                elif f == "read-all":
                    return {"type": "ok", "value": await self._read_all(key)}
                elif f == "drain":
                    return {"type": "ok", "value": await self._drain(told)}
                return {"type": "fail", "error": f"no operation {f}"}
        except (ClientError, trio.TooSlowError) as error:
            if f == "send" and told.get("commit") is False:
                return {"type": "fail", "error": f"it is rolled back; {type(error).__name__}: {error}"}
            unknown = f == "drain" or (f == "send" and not isinstance(error, SendFailed))
            return {"type": "info" if unknown else "fail", "error": f"{type(error).__name__}: {error}"}

    async def _open(self, f: str, key: str | None, told: dict[str, Any]) -> None:
        if f == "receive" and key is not None and key not in self._pullers:
            self._pullers[key] = await self.stack.enter_async_context(self._pull(f"chaos-{os.getpid()}"))
        if "invisible_ms" in told and self._popper is None:
            self._popper = await self.stack.enter_async_context(self.client.pop(
                POP_GROUP, TOPIC, invisible_ms=told["invisible_ms"], start=Start.FIRST, settings=_READING))
        if ("commit" in told or "open_ms" in told) and self._transactions is None:
            self._transactions = await self.stack.enter_async_context(
                self.client.transactions(_decided, topics=[TOPIC]))

    async def _send(self, key: str, value: Any, timeout_ms: int) -> dict[str, Any]:
        told = value if isinstance(value, dict) else {"body": value}
        body = str(told["body"]).encode()
        if len(body) < self.body_bytes:
            body += b"\0" + os.urandom(self.body_bytes - len(body) - 1)
        delay = timedelta(milliseconds=told["delay_ms"]) if "delay_ms" in told else None
        if "commit" in told:
            return await self._transact(key, told, body, timeout_ms)
        message = Message(TOPIC, body, delay=delay)
        sent = await self.client.send(message, queue=self.queues[key], timeout_ms=timeout_ms)
        if delay is not None:  # the offset is of the queue where it waits, not of the topic
            return {"type": "ok", "value": told["body"]}
        return {"type": "ok", "value": {"body": told["body"], "offset": sent.queue_offset}}

    async def _transact(self, key: str, told: dict[str, Any], body: bytes, timeout_ms: int) -> dict[str, Any]:
        """Sends a transaction. A decision left to the check counts as told: any client of the group says the same."""
        assert self._transactions is not None
        message = Message(TOPIC, body, properties={COMMIT: str(told["commit"])})
        async with self._transactions.begin(message, queue=self.queues[key], timeout_ms=timeout_ms) as transaction:
            if not told["commit"]:
                transaction.rollback()
        if not told["commit"]:
            return {"type": "fail", "error": "it is rolled back"}
        return {"type": "ok", "value": told["body"]}

    async def _receive(self, key: str) -> list[dict[str, Any]]:
        puller = self._pullers[key]
        if key not in self._assigned:
            await puller.assign([self.queues[key]])
            self._assigned.add(key)
        return _told(await puller.poll(timeout_ms=POLL_MS))

    async def _pop(self, most: int, timeout_ms: float, ack: bool, poll_ms: float = POLL_MS) -> list[str]:
        """Pop once; bodies without places, since a message that comes again has another place.

        A message that was surely not acknowledged comes again, and counts as not received."""
        assert self._popper is not None
        found: list[str] = []
        with trio.move_on_after(timeout_ms / 1e3):
            for message in await self._popper.poll(timeout_ms=poll_ms, most=most):
                found.append(_body(message.body))
                try:
                    if ack:
                        await message.ack()
                except Unreachable:
                    pass  # the acknowledgement may have arrived: the message counts as received
                except Refused:
                    found.pop()
        return found

    async def _read_all(self, key: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with self._pull("chaos-last") as puller:
            await puller.assign([self.queues[key]])
            end = await self.client.max_offset(self.queues[key])
            while puller.position(self.queues[key]) < end:
                found += _told(await puller.poll(timeout_ms=POLL_MS))
        return found

    async def _drain(self, told: dict[str, Any]) -> list[str]:
        """Takes all that is left.

        Pops until nothing came for longer than a message may be hidden; without POP, waits for what is due or not
        decided, and reads all queues."""
        if "invisible_ms" in told:
            found: list[str] = []
            quiet_ms = told["invisible_ms"] + REVIVED_MS
            while some := await self._pop(32, math.inf, True, quiet_ms):
                found += some
            return found
        await trio.sleep((told.get("delay_ms", 0) + told.get("open_ms", 0) + LATE_MS) / 1e3)
        return [each["body"] for key in self.queues for each in await self._read_all(key)]

    def _pull(self, group: str) -> AbstractAsyncContextManager[Puller]:
        return self.client.pull(group, start=Start.FIRST, settings=_READING)


async def _decided(message: Received) -> Decision:
    """Decide a half by its own property, so that any client of the group can tell."""
    return Decision.COMMIT if message.properties[COMMIT] == "True" else Decision.ROLLBACK


def _body(body: bytes) -> str:
    return body.partition(b"\0")[0].decode()


def _told(messages: list[Any]) -> list[dict[str, Any]]:
    return [{"body": _body(each.body), "offset": each.queue_offset} for each in messages]


async def work(options: argparse.Namespace) -> None:
    """Answer line by line until standard input ends."""
    async with connect(options.namesrv.split(","), producer_group="chaos",
                       settings=_SETTINGS) as client, AsyncExitStack() as stack:
        found = await _topic(client, options.group, options.queues)
        queues = {f"q{queue.queue_id}": queue for queue in found}
        working = QueueWork(client, queues, stack, options.body_bytes)
        print(json.dumps({"ready": True}), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            asked = json.loads(line)
            print(json.dumps({"id": asked["id"], **await working.do(asked)}), flush=True)


async def _topic(client: Client, group: str, queues: int) -> list[MessageQueue]:
    """Makes the topic where it is missing; tries until the cluster is there."""
    while True:
        try:
            await client.create_topic(TOPIC, queues=queues)
            found = [queue for queue in await client.queues(TOPIC) if queue.broker_name == group]
            if len(found) >= queues:
                return found
        except ClientError:
            pass  # the topic's route is not there yet
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
    """Looks up the present roles; None if no server tells them."""
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


def missing(found: Mapping[str, Sequence[str]], controllers: bool, replicas: int) -> list[str]:
    """Sentences about what a group of that many replicas lacks, by its roles; none if all is well."""
    words = ["no controller is active"] if controllers and not found.get("active") else []
    if not found.get("master"):
        words.append("no broker is master")
    here = found.get("in-sync", ()) if controllers else [*found.get("master", ()), *found.get("slave", ())]
    if len(here) < replicas:
        words.append(f"{'in sync' if controllers else 'listed'}: {', '.join(here) or 'nobody'}, "
                     f"{len(here)} of {replicas}")
    return words


async def well(options: argparse.Namespace) -> None:
    """End with 0 if the group has a master and all are in sync, or listed; else with 1, and words."""
    async with open_client() as client:
        found = await _look(client, options) or {}
    wanted = _named(options.brokers or f"{options.master},{options.slaves}", "broker")
    if words := missing(found, bool(options.controllers), len(wanted)):
        print("; ".join(words))
        sys.exit(1)


def _named(addresses: str, kind: str) -> dict[str, str]:
    return {address: f"{kind}-{number}" for number, address in enumerate(addresses.split(","), 1)}


def parser() -> argparse.ArgumentParser:
    """The command line of client, roles and well."""
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
