"""A master says resets and deletions in the log; what is refused is said again, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.ha.acks import PutStatus
from broker.pop.changes import Changes
from broker.pop.part import PopPart
from broker.puts import Done, PutResult
from broker.store.writing import Put
from harness.simulation.worlds.brokers import Node, cluster, until
from remoting.command import Command
from remoting.record import Message, decode

REFUSED = PutResult(PutStatus.OS_PAGE_CACHE_BUSY)
STORED = PutResult(PutStatus.PUT_OK, (Put(0, 0, 0),))


@attrs.define
class Later:
    """Puts that end when the test says how."""

    under_way: list[tuple[list[str], Done]] = attrs.field(factory=list)
    first: Callable[[bool], PutResult | None] | None = None

    def put(self, messages: Sequence[Message], done: Done, *, wait_store_ok: bool = True) -> None:
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


async def test_a_reset_that_was_said_in_haste_is_not_sure_to_be_known(autojump_clock: MockClock) -> None:
    """Replicas were not waited for, so that other messages could be stored."""
    async with cluster() as made:
        changes, put = saying(await made.node())
        changes.say_reset("T", "G", 0, 5)
        put.end(REFUSED)
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await changes.when_told(Command(0)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            assert changes._puts.first is not None and changes._puts.first(False) is None
            put.end(STORED)
        assert "perhaps not on the next master" in (answers[0].remark or "")


async def test_who_leads_no_more_says_nothing_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        changes, put = saying(await made.node())
        changes.say_gone("", "G")
        changes.closed()
        put.end(REFUSED)
        changes.opened()
        assert not changes.is_due
        changes.say_all()
        assert not put.under_way
