"""A master says resets and deletions in the log; what is refused is said again, in order."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.pop.changes import Changes
from broker.pop.part import PopPart
from broker.puts import Done, PutResult
from broker.store.writing import Put
from harness.simulation.worlds.brokers import Node, cluster
from remoting.record import Message

REFUSED = PutResult(PutStatus.OS_PAGE_CACHE_BUSY)
STORED = PutResult(PutStatus.PUT_OK, (Put(0, 0, 0),))


@attrs.define
class Later:
    """Puts that end when the test says how."""

    under_way: list[tuple[list[str], Done]] = attrs.field(factory=list)

    def put(self, messages: Sequence[Message], done: Done) -> None:
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
