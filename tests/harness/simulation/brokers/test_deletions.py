"""The judge of deletions knows which messages a group of a topic made again must get."""

from __future__ import annotations

import pytest

from broker.ha.acks import PutStatus
from broker.puts import PutResult
from broker.store.writing import Put
from harness.simulation.brokers.deletions import TOPIC, Deletions, Followed
from harness.simulation.brokers.process import BrokerProcess
from harness.simulation.brokers.scene import make
from raft.config import MS
from raft.invariants import InvariantViolation
from raft.sim.tape import Tape
from remoting.record import Message


def led() -> tuple[BrokerProcess, Deletions]:
    """The master of a calm scene, and the judge of its scene, before any deletion."""
    scene = make(Tape(1), "deletions")
    scene.play(3_000 * MS)
    process = next(host.process for host in scene.hosts if host.process is not None and host.process.puts.serving)
    judge = Deletions(scene.watch)
    assert judge.complete and not judge.was_replaced(process)
    return process, judge


def stored(process: BrokerProcess, judge: Deletions, body: bytes, queue_offset: int) -> None:
    """A message is sent to queue 0, and acknowledged at that place."""
    judge.sent[body] = Followed(body, judge.answered_count, judge.topics_begun)
    message = Message(TOPIC.encode(), body)
    judge.answered(process, [message], PutResult(PutStatus.PUT_OK, (Put(0, 0, queue_offset),)))


def deleted(process: BrokerProcess, judge: Deletions) -> None:
    judge.deleted(process, judge.begins_deletion(of_topic=True), of_topic=True)


def test_a_group_that_begins_behind_a_message_of_the_new_topic_passed_it_over() -> None:
    process, judge = led()
    stored(process, judge, b"old", 7)
    deleted(process, judge)
    stored(process, judge, b"new", 0)
    judge.begins(process, 0, 0)
    with pytest.raises(InvariantViolation, match="INV_B62: an offset that is older than the deletion"):
        judge.begins(process, 0, 8)


def test_what_was_given_since_and_what_went_with_the_topic_is_not_asked_for() -> None:
    process, judge = led()
    stored(process, judge, b"old", 7)
    deleted(process, judge)
    stored(process, judge, b"new", 0)
    assert judge.waits(process)
    judge.given(b"new")
    judge.begins(process, 0, 8)
    judge.settled(process)
    assert not judge.waits(process)


def test_what_was_given_before_the_last_deletion_of_the_group_is_given_again() -> None:
    process, judge = led()
    stored(process, judge, b"kept", 0)
    judge.given(b"kept")
    judge.begun += 1
    judge.deleted(process, judge.begun, of_topic=False)
    stored(process, judge, b"behind", 1)
    judge.given(b"behind")
    with pytest.raises(InvariantViolation, match="INV_B62: acknowledged, and passed over"):
        judge.settled(process)


def test_a_deletion_that_was_answered_binds_later_masters_without_a_message_behind_it() -> None:
    process, judge = led()
    stored(process, judge, b"kept", 0)
    judge.begun += 1
    judge.settled(process)
    judge.deleted(process, judge.begun, of_topic=False)
    with pytest.raises(InvariantViolation, match="INV_B62: acknowledged, and passed over"):
        judge.settled(process)


def test_what_was_sent_before_a_deletion_that_nobody_answered_may_be_gone() -> None:
    """The broker has begun it, and died perhaps."""
    process, judge = led()
    deleted(process, judge)
    stored(process, judge, b"kept", 0)
    on_its_way = Followed(b"late", judge.answered_count, judge.topics_begun)
    judge.begins_deletion(of_topic=True)
    judge.sent[b"late"] = on_its_way
    judge.answered(process, [Message(TOPIC.encode(), b"late")], PutResult(PutStatus.PUT_OK, (Put(0, 0, 1),)))
    judge.begins(process, 0, 2)
    stored(process, judge, b"new", 0)
    with pytest.raises(InvariantViolation, match="INV_B62"):
        judge.begins(process, 0, 2)
