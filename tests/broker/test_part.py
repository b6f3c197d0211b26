"""The list of parts: who has what, and in which order they hear of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.config import BrokerConfig
from broker.filters.table import GET_ALL_FILTERS
from broker.journal import NEVER
from broker.part import DeliveringPart, Part, Parts, Shared, Table
from broker.parts import PARTS
from broker.rules import Draft, Refusal, Rule, rule
from broker.standing import Role, Standing
from broker.store.files import MemoryFiles
from broker.store.tables import DelayOffsets, load
from broker.tablefile import TableFile
from broker.veil import Veil
from harness.simulation.worlds.brokers import cluster, inline
from remoting.codes import RequestCode
from remoting.connection import Connection
from remoting.endpoint import Handler

TOLD = ("configure", "role_changed", "writes_opened", "writes_closed", "all_seen", "connection_closed", "stopping")


@attrs.define(eq=False)
class Noting(Part):
    """Notes what it is told."""

    name: str
    heard: list[str]
    code: int = 0
    next_ns: int = NEVER

    def handlers(self) -> Mapping[int, Handler]:
        return {self.code: lambda connection, request: None} if self.code else {}

    def runtime_info(self) -> Mapping[str, str]:
        return {f"{self.name}Info": "1"}

    def configure(self, config: BrokerConfig) -> None:
        self.heard.append(f"{self.name} configure")

    def role_changed(self, role: Role) -> None:
        self.heard.append(f"{self.name} role_changed")

    def writes_opened(self) -> None:
        self.heard.append(f"{self.name} writes_opened")

    def writes_closed(self) -> None:
        self.heard.append(f"{self.name} writes_closed")

    def all_seen(self) -> None:
        self.heard.append(f"{self.name} all_seen")

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self.heard.append(f"{self.name} connection_closed")

    def stopping(self) -> None:
        self.heard.append(f"{self.name} stopping")

    def due_ns(self) -> int:
        return self.next_ns

    def tick(self, now_ns: int) -> None:
        self.heard.append(f"{self.name} tick {now_ns}")
        self.next_ns = now_ns + 10


def listed(*parts: Part) -> Parts:
    made = Parts(lambda: 0)
    for part in parts:
        made.add(part)
    return made


def test_what_all_are_told_they_are_told_in_the_order_of_the_list() -> None:
    heard: list[str] = []
    parts = listed(Noting("a", heard), Part(), Noting("b", heard))
    arguments: dict[str, Sequence[Any]] = {
        "configure": (BrokerConfig(),), "role_changed": (Role.master(),), "connection_closed": (None, "")}
    for what in TOLD:
        getattr(parts, what)(*arguments.get(what, ()))
    assert heard == [f"{name} {what}" for what in TOLD for name in ("a", "b")]
    assert parts.runtime_info() == {"aInfo": "1", "bInfo": "1"}


def test_the_log_stays_for_the_part_that_needs_the_oldest_of_it() -> None:
    class Needing(Part):
        def __init__(self, offset: int | None) -> None:
            self.offset = offset
            self.told: list[int] = []

        def keeps_from(self) -> int | None:
            return self.offset

        def make_way(self, below: int) -> None:
            self.told.append(below)

    parts = listed(Part(), Needing(70), Needing(None), Needing(30))
    assert parts.keeps_from() == 30
    assert listed(Part(), Needing(None)).keeps_from() is None
    parts.make_way(90)
    assert [part.told for part in parts if isinstance(part, Needing)] == [[90]] * 3


def test_a_code_has_one_part() -> None:
    parts = listed(Noting("a", [], 7))
    with pytest.raises(ValueError, match="code 7 belongs to Noting and to Noting"):
        parts.add(Noting("b", [], 7))
    assert set(parts.handlers()) == {7}


def test_a_part_finds_those_before_it_by_their_class() -> None:
    class Other(Part):
        pass

    first = Noting("a", [])
    parts = listed(first)
    assert parts[Noting] is first
    with pytest.raises(KeyError, match="no Other here: in PARTS a part must stand after those that it uses"):
        parts[Other]


def test_a_tick_comes_when_it_is_due_and_to_nobody_else() -> None:
    heard: list[str] = []
    parts = listed(Noting("a", heard, next_ns=0), Noting("b", heard), Part())
    for now in (5, 6, 14, 15, 40):
        parts.tick(now)
    assert heard == ["a tick 5", "a tick 15", "a tick 40"]


def test_who_is_due_by_a_later_reading_of_the_clock_ticks_now() -> None:
    clock = itertools.count(5)
    heard: list[str] = []

    class DueNow(Noting):
        def due_ns(self) -> int:
            return next(clock)

    parts = Parts(lambda: next(clock))
    parts.add(DueNow("a", heard))
    parts.tick(next(clock))
    assert heard == ["a tick 7"]


def test_who_follows_ticks_when_something_happened_and_the_earliest_time_is_told() -> None:
    class Following(Noting):
        follows = True

        def due_ns(self) -> int:
            return NEVER

    heard: list[str] = []
    asked: list[int] = []
    stirs = [0]

    def stir() -> None:
        stirs[0] += 1

    parts = Parts(lambda: 0, asked.append, stir, lambda: stirs[0])
    for part in (Noting("a", heard, next_ns=20), Following("b", heard), Part()):
        parts.add(part)
    parts.tick(1)
    parts.tick(2)
    parts.role_changed(Role.master())
    parts.tick(3)
    parts.tick(20)
    assert [each for each in heard if "tick" in each] == ["b tick 1", "b tick 3", "a tick 20"]
    assert asked == [20, 20, 20, 30]


def test_nobody_is_asked_before_the_time_that_was_told_unless_something_happened() -> None:
    asked: list[int] = []
    stirs = [0]

    class Asked(Noting):
        def due_ns(self) -> int:
            asked.append(self.next_ns)
            return super().due_ns()

    parts = Parts(lambda: 0, stirs=lambda: stirs[0])
    parts.add(Asked("a", [], next_ns=20))
    parts.tick(1)
    asked.clear()
    parts.tick(2)
    assert not asked
    stirs[0] += 1
    parts.tick(3)
    assert len(asked) == 2
    parts.tick(20)
    assert len(asked) == 4


async def test_a_part_ticks_first_when_the_broker_begins_and_its_table_is_written_at_the_end(
    autojump_clock: MockClock,
) -> None:
    @attrs.define(eq=False)
    class Kept(Part):
        files: MemoryFiles
        file: TableFile = attrs.field(init=False)
        ticks: int = 0

        def __attrs_post_init__(self) -> None:
            self.file = TableFile(self.files, lambda: DelayOffsets({1: self.ticks}), inline, pause_ms=5_000)

        def tables(self) -> Sequence[Table]:
            return (Table(self.file, RequestCode.GET_ALL_DELAY_OFFSET, lambda answer: None),)

        def due_ns(self) -> int:
            return 0

        def tick(self, now_ns: int) -> None:
            self.ticks += 1
            self.file.changed()

    files = MemoryFiles()
    kept = Kept(files)
    async with trio.open_nursery() as nursery:
        await nursery.start(listed(kept).run)
        assert kept.ticks == 1
        await trio.sleep(1)
        assert load(files, DelayOffsets).offset_table == {1: 1}
        kept.tick(0)
        nursery.cancel_scope.cancel()
    assert load(files, DelayOffsets).offset_table == {1: 2}


async def test_a_message_passes_the_rules_of_parts_behind_those_of_every_broker(autojump_clock: MockClock) -> None:
    class Judge(Part):
        def __init__(self, shared: Shared, before: Parts) -> None:
            pass

        def rules(self) -> Sequence[Rule]:
            return (rule(self.judged, "JUDGED"),)

        def judged(self, draft: Draft) -> Refusal | None:
            """A message that was judged is refused."""
            return Refusal(77, "it was judged") if "JUDGED" in draft.properties else None

    async with cluster() as made:
        node = await made.node(None, (Judge, *PARTS))
        assert (await made.send(node.address, b"m")).code == 0
        assert (await made.send(node.address, b"m", properties="JUDGED\x01yes\x02")).code == 77
        both = await made.send(node.address, b"m", properties="JUDGED\x01yes\x02__LITE_TOPIC\x01x\x02")
        assert both.code not in (0, 77), "what every broker refuses comes first"


async def test_a_broker_has_the_parts_of_the_list_in_its_order(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        kinds: list[object] = [type(part) for part in node.broker.parts]
        assert kinds[:len(PARTS)] == list(PARTS)
        codes = [table.code for table in node.broker.parts.tables()]
        assert sorted(codes) == sorted([
            RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, GET_ALL_FILTERS])
        assert set(codes) <= set(node.broker.parts.handlers()), "who copies them asks a broker like this one"


class Putting(DeliveringPart):
    """Notes when it is to put something forth."""

    def __init__(self, standing: Standing, veil: Veil) -> None:
        self._standing, self._veil, self._writes_open = standing, veil, False
        self.heard: list[str] = []

    def begin(self) -> None:
        self.heard.append("begin")

    def end(self) -> None:
        self.heard.append("end")


@pytest.mark.parametrize("veiled", [False, True])
@pytest.mark.parametrize(("role", "begins"), [(Role.master(), ["begin"]), (Role.slave(2), [])])
def test_what_puts_forth_by_itself_does_so_as_master_and_behind_no_veil(
        role: Role, begins: list[str], veiled: bool) -> None:
    veil = Veil()
    part = Putting(Standing("c", "b", "h:1", role), veil)
    veil.fall(10 * veiled)
    part.writes_opened()
    assert part.heard == ([] if veiled else begins)
    if veiled:
        veil.lift()
        part.all_seen()
    assert part.heard == begins
    part.writes_closed()
    part.all_seen()
    assert part.heard == [*begins, "end"], "nobody may write any more"
