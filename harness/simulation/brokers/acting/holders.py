"""INV_B61: clients that lock queues, each as it is told, and who of them believes that it holds one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from broker.consumers.locks import HELD_MS
from raft.config import MS
from raft.invariants import require
from raft.sim.tape import Chance, Stream, Value
from raft.sim.world import MILLION
from remoting.bodies.consumers import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.scene import ActingScene

GROUP: Final = "G"
CLIENTS: Final = 3
QUEUES: Final = 2


class LockClients:
    """Clients of one consumer group of the first broker group."""

    def __init__(self, town: ActingScene, acts: Stream, counts: Counter[str]) -> None:
        self._town, self._acts, self._counts = town, acts, counts
        self._until: dict[tuple[int, int], int] = {}
        """(client, queue) -> until when the client is sure that it holds the queue."""
        self._given_back: Counter[tuple[int, int]] = Counter()
        """(client, queue) -> how often the client gave the queue back. Answers to earlier questions count no more."""
        self._lasts_ns = HELD_MS * MS * (MILLION - 2 * town.plan.drift_ppm) // MILLION
        town.after(town.plan.act_ns, self._act)

    def _act(self) -> None:
        if self._town.over:
            return
        self._town.after(2 * self._town.plan.act_ns, self._act)
        act = self._acts.draw(None, self._an_act)
        if act is not None:
            what, client, queues = act
            (self._lock if what == "lock" else self._unlock)(client % CLIENTS, sorted({q % QUEUES for q in queues}))

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.6:
            return None
        what = "lock" if chance() < 0.75 else "unlock"
        return [what, int(chance() * 12), [int(chance() * 12) for _ in range(1 + int(chance() * 2))]]

    def _command(self, code: int, client: int, queues: list[int]) -> Command:
        name = self._town.groups[0].key.name
        return request(code, None, LockBatchRequestBody(GROUP, f"c{client}", [
            MessageQueue("T", name, queue) for queue in queues]).to_json())

    def _lock(self, client: int, queues: list[int]) -> None:
        asked_ns = self._town.world.now
        before = {queue: self._given_back[client, queue] for queue in queues}

        def answered(result: Any) -> None:
            if isinstance(result, Command) and result.code == ResponseCode.SUCCESS:
                for queue in LockBatchResponseBody.from_json(result.body).lock_ok_mq_set:
                    if self._given_back[client, queue.queue_id] == before.get(queue.queue_id):
                        self._holds(client, queue.queue_id, asked_ns)

        self._town.ask(self._town.groups[0], self._command(RequestCode.LOCK_BATCH_MQ, client, queues), answered)

    def _holds(self, client: int, queue: int, asked_ns: int) -> None:
        now, strict = self._town.world.now, self._town.plan.strict
        self._town.counts["queue locked"] += 1
        for other in range(CLIENTS):
            until = self._until.get((other, queue), 0)
            if other != client and until > now:
                self._town.counts["two hold a queue, not strictly"] += not strict
                require(not strict, "INV_B61", "two clients hold one queue", f"c{other}", f"c{client}", queue,
                        f"at {now / MS:.1f} ms", f"the former until {until / MS:.1f} ms")
        self._counts["INV_B61"] += strict
        self._until[client, queue] = max(asked_ns + self._lasts_ns, self._until.get((client, queue), 0))

    def _unlock(self, client: int, queues: list[int]) -> None:
        for queue in queues:
            self._until.pop((client, queue), None)
            self._given_back[client, queue] += 1
        self._town.ask(self._town.groups[0], self._command(RequestCode.UNLOCK_BATCH_MQ, client, queues), _nothing)


def _nothing(result: Any) -> None:
    """Ignore the answer to an unlock: no client depends on it."""
