"""A master says resets and deletions in the log; what is refused is said again, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.ha.acks import Holders, Mode, PutStatus, QuorumConfig, Replicas
from broker.pop.changes import Changes
from broker.pop.part import PopPart
from broker.puts import Done, PutResult
from broker.standing import Role
from broker.store.writing import Put
from harness.simulation.worlds.brokers import Node, cluster, until
from remoting.record import Message, decode

REFUSED = PutResult(PutStatus.OS_PAGE_CACHE_BUSY)
STORED = PutResult(PutStatus.PUT_OK, (Put(0, 0, 0),))


@attrs.define
class Later:
    """Puts that end when the test says how."""

    under_way: list[tuple[list[str], Done]] = attrs.field(factory=list)
    first: Callable[[bool], PutResult | None] | None = None

    def put(self, messages: Sequence[Message], done: Done, *, wait_store_ok: bool = True, hold: bool = True) -> None:
        self.under_way.append(([message.body.decode() for message in messages], done))

    def end(self, *results: PutResult) -> list[list[str]]:
        """Ends the first puts so; returns what each of them put."""
        ended, self.under_way = self.under_way[:len(results)], self.under_way[len(results):]
        for (_, done), result in zip(ended, results, strict=True):
            done(result)
        return [bodies for bodies, _ in ended]


def saying(node: Node) -> tuple[Changes, Later]:
    changes, put = node.broker.parts[PopPart].changes, Later()
    changes._puts = put  # type: ignore[assignment]
    return changes, put


async def waiting(changes: Changes, nursery: trio.Nursery) -> list[str]:
    """Return where it will be said why a reset may not be known. Who asked for it waits."""
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await changes.told())

    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    return answers


async def test_what_is_refused_is_said_again_before_what_came_later(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        (changes, put), said = saying(await made.node()), list[str]()
        changes.say_reset("T", "G", 0, 5)
        changes.when_said(lambda: said.append("all"))
        put.end(REFUSED)
        assert changes.is_due and not said
        changes.say_gone("T", "")
        assert put.end(STORED) == [["to 5 0 G T", "gone  T"]] and said == ["all"]
        changes.when_said(lambda: said.append("at once"))
        assert said == ["all", "at once"] and not changes.is_due


async def test_two_that_are_refused_are_said_again_in_their_order(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        changes, put = saying(await made.node())
        changes.say_reset("T", "G", 0, 5)
        changes.say_gone("T", "")
        put.end(REFUSED, REFUSED)
        changes.say_all()
        assert put.end(STORED) == [["to 5 0 G T", "gone  T"]]


async def test_a_refused_record_stands_before_the_next_message(autojump_clock: MockClock) -> None:
    """Else a replica could show messages of a topic that was made again, and keep positions in the former one."""
    async with cluster() as made:
        node = await made.node()
        puts, journal, results = node.broker.puts, node.broker.journal, list[PutResult]()
        journal.refusing = "no room"
        node.topics.delete("T")
        puts.put([Message(b"T", b"refused", 0)], results.append)
        journal.refusing = ""
        puts.put([Message(b"T", b"new", 0)], results.append)
        await until(lambda: len(results) == 2)
        assert [result.status for result in results] == [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.PUT_OK]
        assert [decode(journal.read(at, size)).message.body for at, size, *_ in journal.log.scan(0)][-2:] == [
            b"gone  T", b"new"]
        assert puts.first is None


@attrs.define
class Young:
    """A new master's group, of which ``accepted`` replicas are in sync. Each of them holds the whole log."""

    accepted: int = 1
    mode: Mode = Mode(controller=True)

    @property
    def holders(self) -> Holders:
        return Whole(self)

    def replicas(self) -> Replicas:
        return Replicas(self.accepted)


@attrs.frozen
class Whole:
    group: Young

    def holds_all(self, end: int) -> bool:
        return True

    def holders(self, end: int) -> int:
        return self.group.accepted

    def enough(self, least: int) -> bool:
        return self.group.accepted >= least


async def test_a_young_master_says_what_is_gone_before_a_message_that_does_not_wait(autojump_clock: MockClock) -> None:
    """The record was held with messages that wait for replicas. A master that was made meanwhile never heard of it,
    kept positions in the former topic, and passed that message over."""
    async with cluster() as made:
        node = await made.node()
        puts, journal, results, young = node.broker.puts, node.broker.journal, list[PutResult](), Young()

        def bodies() -> list[bytes]:
            return [decode(journal.read(at, size)).message.body for at, size, *_ in journal.log.scan(0)]

        puts.configure(QuorumConfig(total_replicas=3, min_in_sync_replicas=2, young_master_hold_ms=2_000),
                       sync_flush_timeout_ms=5_000)
        puts.serve(young)
        before = len(bodies())
        puts.put([Message(b"T", b"refused", 0)], results.append)
        puts.put([Message(b"U", b"held", 0)], results.append)
        node.topics.delete("T")
        assert [result.status for result in results] == [PutStatus.TOPIC_GONE]
        node.topics.create_if_absent("T", 1)
        puts.put([Message(b"T", b"does not wait", 0)], results.append, wait_store_ok=False)
        await until(lambda: len(results) == 2)
        assert bodies()[before:] == [b"gone  T", b"does not wait"]
        node.topics.delete("T")
        puts.put([Message(b"T", b"held too", 0)], results.append)
        young.accepted = 2
        puts.advanced()
        await until(lambda: len(results) == 4 and puts.first is None)
        assert bodies()[before + 2:] == [b"gone  T", b"held", b"held too"]
        assert {result.status for result in results[1:]} == {PutStatus.PUT_OK}


async def test_a_reset_that_was_said_in_haste_is_not_sure_to_be_known(autojump_clock: MockClock) -> None:
    """Replicas were not waited for, so that other messages could be stored."""
    async with cluster() as made:
        changes, put = saying(await made.node())
        changes.say_reset("T", "G", 0, 5)
        put.end(REFUSED)
        async with trio.open_nursery() as nursery:
            answers = await waiting(changes, nursery)
            assert changes._puts.first is not None and changes._puts.first(False) is None
            put.end(STORED)
        assert "not all replicas" in answers[0]


async def test_what_was_refused_is_said_when_the_master_may_write_again(autojump_clock: MockClock) -> None:
    """Its lease was over, or it was elected once more: the topic is gone here in any case, and made again at 0.

    The next master never heard of it, kept positions in the former topic, and passed messages over."""
    async with cluster() as made:
        node = await made.node()
        broker, journal, results = node.broker, node.broker.journal, list[PutResult]()
        journal.refusing = "no room"
        node.topics.delete("T")
        broker.puts.fence("the lease is over")
        broker.parts.writes_closed()
        journal.refusing = ""
        assert broker.puts.first is None
        broker.parts.role_changed(Role.master(2))
        broker.parts.writes_opened()
        broker.puts.serve(Young())
        broker.puts.put([Message(b"T", b"new", 0)], results.append)
        await until(lambda: len(results) == 1)
        assert [decode(journal.read(at, size)).message.body for at, size, *_ in journal.log.scan(0)][-2:] == [
            b"gone  T", b"new"]
        assert broker.puts.first is None


async def test_who_follows_another_master_says_nothing_again(autojump_clock: MockClock) -> None:
    """Positions are that master's now. Who waits for the answer to a reset is told so."""
    async with cluster() as made:
        changes, put = saying(await made.node())
        changes.say_reset("T", "G", 0, 5)
        put.end(REFUSED)
        async with trio.open_nursery() as nursery:
            answers = await waiting(changes, nursery)
            changes.closed()
            made.nodes[0].broker.parts.role_changed(Role.slave(1, 2, "another:10911"))
        assert "not all replicas" in answers[0]
        changes.opened()
        assert not changes.is_due
        changes.say_all()
        assert not put.under_way
