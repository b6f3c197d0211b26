"""Real processes: masters are killed with -9 under messages, timers and transactions that are all under way.

With ``allAckInSyncStateSet`` and ``minInSyncReplicas=2`` nothing acknowledged is lost, no transaction has two final
messages, and a timer waits for one failover at most. Real time passes here, so that is asserted by the order of things:
what was due before a kill came before the next one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import attrs
import pytest
import trio

from broker.client import Client, Decision, Message, Received, SendFailed, SendUnknown, Transactions, connect
from broker.properties import TIMER_DONE
from tests.broker.test_processes import cluster
from tests.broker.waiting import GROUP, PATIENCE_S, TOPIC, Reader, create, early, now_ms, timer

pytestmark = pytest.mark.slow
KILLS = 3
BETWEEN = 40
"""Of each kind, acknowledged between two kills."""
SOON = {"transactionTimeOut": "500", "transactionCheckInterval": "1000"}
ENDS = ("commit", "rollback", "left, commit", "left, rollback")


@attrs.define
class Account:
    """What was acknowledged."""

    plain: set[bytes] = attrs.field(factory=set)
    due_ms: dict[bytes, int] = attrs.field(factory=dict)
    halves: set[bytes] = attrs.field(factory=set)
    checked: set[bytes] = attrs.field(factory=set)
    """Halves that a broker asked for."""

    @property
    def least(self) -> int:
        return min(len(self.plain), len(self.due_ms), len(self.halves))

    @property
    def committed(self) -> set[bytes]:
        return {body for body in self.halves if body.endswith(b"commit")}

    @property
    def left(self) -> set[bytes]:
        return {body for body in self.halves if b"left" in body}

    async def check(self, message: Received) -> Decision:
        self.checked.add(message.body)
        return Decision.COMMIT if message.body.endswith(b"commit") else Decision.ROLLBACK


class Load:
    """Sends of three kinds, each one after the other, until ``stop``."""

    def __init__(self, client: Client, transactions: Transactions, account: Account) -> None:
        self._client, self._transactions, self._account = client, transactions, account
        self._rng = Random(16)
        self.stop = trio.Event()

    async def send_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for send in (self._plain, self._timer, self._half):
                nursery.start_soon(self._repeat, send)

    async def _repeat(self, send: Callable[[int], Awaitable[None]]) -> None:
        for number in itertools.count():
            if self.stop.is_set():
                return
            try:
                await send(number)
            except (SendFailed, SendUnknown):
                await trio.sleep(0.05)
            await trio.sleep(0.01)

    async def _plain(self, number: int) -> None:
        body = b"plain %d" % number
        await self._client.send(Message(TOPIC, body))
        self._account.plain.add(body)

    async def _timer(self, number: int) -> None:
        body, due_ms = b"timer %d" % number, now_ms() + self._rng.randrange(300, 4_000)
        await timer(self._client, body, due_ms)
        self._account.due_ms[body] = due_ms

    async def _half(self, number: int) -> None:
        end = ENDS[number % len(ENDS)]
        body = f"half {number}: {end}".encode()
        async with self._transactions.begin(Message(TOPIC, body)) as transaction:
            self._account.halves.add(body)
            if end.startswith("left"):
                transaction.leave()
            elif end == "rollback":
                transaction.rollback()


async def test_masters_are_killed_under_timers_and_transactions_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    account = Account()
    async with (
        cluster(tmp_path, **SOON) as made, connect([made.namesrv], producer_group=GROUP) as client,
        trio.open_nursery() as nursery,
    ):
        await made.master(in_sync=3)
        await create(client)
        reader = Reader(client)
        nursery.start_soon(reader.run)
        async with client.transactions(account.check, topics=[TOPIC]) as transactions:
            load = Load(client, transactions, account)
            nursery.start_soon(load.send_all)
            due_before: set[bytes] = set()
            for _ in range(KILLS):
                master = await made.master(in_sync=3)
                enough = account.least + BETWEEN
                with trio.move_on_after(PATIENCE_S):
                    while account.least < enough or not due_before <= reader.bodies:
                        await trio.sleep(0.02)
                assert due_before - reader.bodies == set(), "due before the last kill, and not there at the next one"
                await master.kill()
                due_before = {body for body, due_ms in account.due_ms.items() if due_ms < now_ms()}
                await made.master(in_sync=2)
                await master.start()
            enough = account.least + BETWEEN
            with trio.fail_after(PATIENCE_S):
                while account.least < enough:
                    await trio.sleep(0.02)
            load.stop.set()
            with trio.move_on_after(PATIENCE_S):
                while not (account.left <= account.checked and account.plain | account.due_ms.keys()
                           | account.committed <= reader.bodies):
                    await trio.sleep(0.05)
            async with transactions.begin(Message(TOPIC, b"the last one")):
                pass
            await made.master(in_sync=3)
            last = Reader(client)
            await last.until(lambda: {b"the last one"} | account.plain | account.due_ms.keys() | account.committed
                             <= last.bodies)
        nursery.cancel_scope.cancel()
    assert account.plain - last.bodies == set()
    assert account.due_ms.keys() - last.bodies == set()
    assert account.committed - last.bodies == set()
    assert account.left - account.checked == set()
    halves = Counter(message.body for message in last.came if message.body.startswith(b"half"))
    assert [body for body in halves if body.endswith(b"rollback")] == []
    assert max(halves.values()) == 1
    again = Counter((message.body, message.properties[TIMER_DONE]) for message in last.came
                    if TIMER_DONE in message.properties)
    assert max(again.values()) <= 2
    assert early(last.came, account.due_ms) == []
