"""Locks on queues beside a model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from trio.testing import MockClock

from broker.consumers.locks import HELD_MS, Locks
from remoting.bodies.consumers import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode
from tests.broker.consumers.world import running

QUEUES = [MessageQueue("t", "b", number) for number in range(3)]
GROUP = st.sampled_from(["g", "h"])
CLIENT = st.sampled_from(["c1", "c2"])
SOME = st.lists(st.sampled_from(QUEUES), unique=True)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.locks = Locks(lambda: self.now_ms * 1_000_000)
        self.held: dict[tuple[str, MessageQueue], tuple[str, int]] = {}

    @rule(group=GROUP, client=CLIENT, queues=SOME)
    def lock(self, group: str, client: str, queues: list[MessageQueue]) -> None:
        expected = []
        for queue in queues:
            holder, until = self.held.get((group, queue), ("", -1))
            if holder == client or until < self.now_ms:
                self.held[group, queue] = client, self.now_ms + HELD_MS
                expected.append(queue)
        assert self.locks.lock(group, queues, client) == expected

    @rule(group=GROUP, client=CLIENT, queues=SOME)
    def unlock(self, group: str, client: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            if self.held.get((group, queue), ("", 0))[0] == client:
                del self.held[group, queue]
        self.locks.unlock(group, queues, client)

    @rule(passed=st.sampled_from([1, HELD_MS // 2, HELD_MS + 1]))
    def wait(self, passed: int) -> None:
        self.now_ms += passed

    @rule()
    def expire(self) -> None:
        self.held = {key: each for key, each in self.held.items() if each[1] >= self.now_ms}
        self.locks.expire()

    @invariant()
    def knows_who_consumes_in_order(self) -> None:
        for group in ("g", "h"):
            assert self.locks.held_by_group(group) == any(
                key[0] == group and until >= self.now_ms for key, (_, until) in self.held.items())


TestMachine = Machine.TestCase


async def test_over_the_wire(autojump_clock: MockClock) -> None:
    async with running() as world:
        mine = LockBatchRequestBody("g", "c1", QUEUES[:2])
        answer = await world.ask(RequestCode.LOCK_BATCH_MQ, body=mine.to_json())
        assert LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set == QUEUES[:2]
        theirs = LockBatchRequestBody("g", "c2", QUEUES, only_this_broker=True)
        answer = await world.ask(RequestCode.LOCK_BATCH_MQ, body=theirs.to_json())
        assert answer.body == b'{"lockOKMQSet":[{"brokerName":"b","queueId":2,"topic":"t"}]}'
        await world.ask(RequestCode.UNLOCK_BATCH_MQ, body=mine.to_json())
        answer = await world.ask(RequestCode.LOCK_BATCH_MQ, body=theirs.to_json())
        assert LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set == QUEUES
