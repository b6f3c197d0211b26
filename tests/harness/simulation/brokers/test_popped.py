"""The judge of POP knows which delivery a message may come back of, and which master may not know."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.ha.acks import PutStatus
from broker.pop.records import Records
from broker.puts import PutResult
from broker.rules import Chain
from harness.simulation.brokers.plan import CLUSTER
from harness.simulation.brokers.popped import BACK_MS, TOPIC, Given, PoppedMessage, Pops
from harness.simulation.brokers.process import BrokerProcess
from harness.simulation.brokers.watch import BrokerWatch
from raft.invariants import InvariantViolation
from remoting.bodies.popping import CheckPoint
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.receipts import NORMAL, Receipt
from remoting.record import Message

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def master(epoch: int) -> BrokerProcess:
    """All that the judge looks at."""
    return cast(BrokerProcess, SimpleNamespace(features=SimpleNamespace(
        opened=1, standing=SimpleNamespace(role=SimpleNamespace(epoch=epoch)))))


class Judged:
    """One message, which group "one" pops at moments that a test says."""

    def __init__(self) -> None:
        self.scene = SimpleNamespace(wall_ms=0, counts=Counter[str](), healed=True, plan=SimpleNamespace(harms=()))
        self.watch = SimpleNamespace(
            scene=self.scene, counts=Counter[str](), lossless=True, latest=1, broken=self._broken)
        self.pops = Pops(cast(BrokerWatch, cast(Any, self.watch)))
        self.pops.sent.append(PoppedMessage(0, 0, b"0.", PutStatus.PUT_OK, 0))
        self.pops._at[TOPIC, 0, 0] = self.pops.sent[0]
        self.master = master(1)
        self._records = Records(CLUSTER, HOST, lambda: self.scene.wall_ms, Chain())

    def _broken(self, name: str, words: str, process: BrokerProcess, *facts: object) -> None:
        raise InvariantViolation(name, words)

    def popped(self, invisible_ms: int, status: PutStatus = PutStatus.PUT_OK, revive_queue: int = 0) -> None:
        """Now; the checkpoint's put ends like that."""
        made = self._records.checkpoint(CheckPoint(
            start_offset=0, pop_time_ms=self.scene.wall_ms, invisible_ms=invisible_ms, count=1, queue_id=0,
            topic=TOPIC, group="one", diffs=[0]), revive_queue)
        assert isinstance(made, Message)
        self._put(self.master, made, status)

    def back(self, at_ms: int, by: BrokerProcess | None = None) -> None:
        """It comes back at that moment, and its master knows."""
        self.scene.wall_ms = at_ms
        self._put(by or self.master, Message(f"%RETRY%one_{TOPIC}".encode(), b"0."), PutStatus.PUT_OK)

    def acknowledged(self, at_ms: int) -> None:
        """What was popped at 0, at that moment."""
        self.scene.wall_ms = at_ms
        self.pops.acknowledged(self.master, [Given("one", TOPIC, 0, 0, Receipt(0, 0, 100, 0, NORMAL, "g", 0, 0))])

    def _put(self, process: BrokerProcess, message: Message, status: PutStatus) -> None:
        self.pops.puts(process, [message])
        self.pops.answered(process, [message], PutResult(status))

    def calm(self) -> None:
        """Nothing fails from now on."""
        list(self.pops.gave(self.master, "one", "", Command(ResponseCode.POLLING_TIMEOUT)))


@pytest.fixture
def judged() -> Judged:
    return Judged()


def test_what_was_put_back_is_not_put_back_again(judged: Judged) -> None:
    judged.popped(100)
    judged.back(2_200)
    with pytest.raises(InvariantViolation, match="INV_B52"):
        judged.back(2_300)


def test_two_checkpoints_of_one_millisecond_come_back_once_each(judged: Judged) -> None:
    judged.popped(100)
    judged.popped(700, revive_queue=1)
    judged.back(2_200)
    judged.back(2_800)
    with pytest.raises(InvariantViolation, match="INV_B52"):
        judged.back(2_900)


def test_who_was_replaced_does_not_know_that_it_was_put_back(judged: Judged) -> None:
    """Its process stood still: nobody sees what it puts, and it is none of those that count."""
    judged.popped(100)
    judged.watch.latest = 2
    judged.back(2_200, master(2))
    judged.back(3_900)
    with pytest.raises(InvariantViolation, match="INV_B52"):
        judged.back(4_000, master(2))


def test_a_checkpoint_that_was_refused_brings_nothing_back(judged: Judged) -> None:
    judged.popped(100, PutStatus.SERVICE_NOT_AVAILABLE)
    with pytest.raises(InvariantViolation, match="INV_B51"):
        judged.back(2_200)


def test_what_is_acknowledged_is_not_put_back_though_another_time_was_refused(judged: Judged) -> None:
    judged.popped(100)
    judged.acknowledged(50)
    judged.popped(200, PutStatus.SERVICE_NOT_AVAILABLE)
    with pytest.raises(InvariantViolation, match="INV_B46"):
        judged.back(2_300)


def test_a_checkpoint_that_was_refused_is_not_late(judged: Judged) -> None:
    judged.calm()
    judged.popped(100, PutStatus.SERVICE_NOT_AVAILABLE)
    judged.scene.wall_ms = 10_000
    judged.popped(100)
    judged.back(12_200)
    judged.scene.wall_ms = 20_000
    judged.popped(100)
    judged.back(22_200)
    assert judged.watch.counts["INV_B48"] == 2


def test_one_that_may_be_acknowledged_is_not_late_while_another_one_is_back_in_time(judged: Judged) -> None:
    """Its acknowledgement is stored with the checkpoint of another time, and the answer to both was lost."""
    judged.calm()
    judged.popped(100)
    judged.scene.wall_ms = 50
    judged.popped(200)
    judged.back(2_300)
    judged.scene.wall_ms = 10_000
    judged.popped(100)
    judged.back(12_200)
    assert judged.watch.counts["INV_B48"] == 2


def test_what_is_back_behind_everybodys_time_is_late(judged: Judged) -> None:
    judged.calm()
    judged.popped(100)
    judged.scene.wall_ms = 50
    judged.popped(200)
    with pytest.raises(InvariantViolation, match="INV_B48"):
        judged.back(251 + BACK_MS)
