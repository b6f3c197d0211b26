"""POP at a slave in its master's place: what it gives out is known to another group's master. In virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.abroad.others import Found, Stored, Told
from broker.abroad.tickets import Acked, Ticket
from broker.errands.part import ErrandsPart
from broker.ledger import part as ledger_part
from broker.ledger.entries import Subject
from broker.offsets import OffsetTable
from broker.offsets.table import OffsetsConfig
from broker.pop.chain import Checkpoints
from broker.pop.lending import Lending
from broker.pop.part import PopPart
from broker.pop.progress import Key
from broker.pop.records import Records
from broker.pop.records import read as read_record
from broker.rules import Chain
from broker.standing import Role, Standing
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.popping import AckMessage, BatchAck, BatchAckRequest, CheckPoint, bits_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectionClosed
from remoting.record import Message
from tests.broker.escape.test_part import two_groups
from tests.broker.ledger.test_part import ledger
from tests.broker.pop.poppers import back, bodies, pop, records_of, reviving, stored, values
from tests.broker.pop.test_acting import copied, popped, sent, taken_up
from tests.broker.pop.world import Popped, Popper, offset, pop_records
from tests.broker.standin.test_part import ACTING, info, may_deliver

if TYPE_CHECKING:
    from broker.puts import Puts

REFUSED = "[REJECTREQUEST]system busy, start flow control for a while"


@asynccontextmanager
async def acting(
        count: int = 6, slaves: int = 1, **settings: str) -> AsyncGenerator[tuple[Cluster, Node, Node, Node], None]:
    """The master is gone, with so many messages behind what its group was given; its slave may give them."""
    async with two_groups(slaves, **settings) as (made, master, slave, other):
        await sent(made, master, count)
        for message in await Popper(made).pop(master, count=1):
            assert message.body == b"before"
            await Popper(made).ack(master, message)
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        await until(lambda: info(slave)["popWaitsFor"] == "")
        yield made, master, slave, other


async def back_up(master: Node) -> None:
    await master.start()
    await until(lambda: may_deliver(master) and info(master)["popWaitsFor"] == "")


def held_at(message: Popped) -> Ticket:
    found = Ticket.read(message.receipt.revive_qid)
    assert found is not None
    return found


async def given(popper: Popper, node: Node, count: int, **asked: Any) -> list[Popped]:
    """So many, of as many POPs as it takes."""
    found: list[Popped] = []
    while len(found) < count:
        found += await popper.pop(node, count=count - len(found), **asked)
    return found


def texts(found: list[Popped]) -> list[bytes]:
    return sorted(message.body for message in found)


async def test_what_is_given_and_not_acknowledged_comes_back_at_the_other_master(autojump_clock: MockClock) -> None:
    async with acting() as (made, master, slave, other):
        popper, end = Popper(made), slave.broker.journal.end
        found = await given(popper, slave, 6, invisible_ms=20_000)
        assert texts(found) == [b"m%d" % number for number in range(6)]
        assert all(held_at(message).is_of("b") and message.receipt.broker_name == "a" for message in found)
        for message in found[::2]:
            assert (await popper.ack(slave, message)).code == ResponseCode.SUCCESS
        assert offset(slave) == 7
        assert await popper.pop(slave) == []
        rest = [message.body for message in found[1::2]]
        await until(lambda: len(bodies(other)) == 3)
        await trio.sleep(60)
        assert sorted(bodies(other)) == sorted(rest), "each once, and none that is acknowledged"
        told = values(back(other)[0])
        assert (told["ORIGIN_GROUP"], told["UNIQ_KEY"][0]) == ("G", "U")
        assert told["1ST_POP_TIME"] == str(found[1].receipt.pop_time_ms)
        assert [name for name in told if name.startswith("__QUORATE_")] == ["__QUORATE_REVIVED"]
        assert slave.broker.journal.end == end, "nothing is written here"
        again = {message.body for _ in range(20) for message in await popper.pop(other, invisible_ms=600_000)}
        assert again >= set(rest), "its consumers find them there"
        await back_up(master)
        assert await popper.pop(master) == [], "the group's offset came back with it"
        await trio.sleep(60)
        assert bodies(master) == [] and sorted(bodies(other)) == sorted(rest)


async def test_a_receipt_holds_at_the_master_that_came_back(autojump_clock: MockClock) -> None:
    async with acting() as (made, master, slave, other):
        popper = Popper(made)
        found = await given(popper, slave, 6, invisible_ms=90_000)
        await back_up(master)
        for message in found[:2]:
            assert (await popper.ack(master, message)).code == ResponseCode.SUCCESS
        later = await popper.changed(master, found[2], 110_000)
        assert held_at(later) == held_at(found[2])
        await popper.ack(master, await popper.changed(master, found[3], 5_000))
        await until(lambda: len(bodies(other)) == 2, within_s=200)
        assert sorted(bodies(other)) == texts(found[4:])
        assert wall_ms() < later.receipt.pop_time_ms + 110_000
        await trio.sleep(60)
        assert sorted(bodies(other)) == sorted([found[2].body, *texts(found[4:])])
        assert bodies(master) == []


async def test_a_receipt_is_acknowledged_where_its_checkpoint_is_when_the_route_is_another(
        autojump_clock: MockClock) -> None:
    async with acting() as (made, _master, slave, other):
        popper = Popper(made)
        early = await given(popper, slave, 3, invisible_ms=150_000)
        third = await made.node(brokerName="c")
        await made.send(third.address, b"before")
        await trio.sleep(35)  # routes are asked for again
        late = [(await given(popper, slave, 1, invisible_ms=100_000))[0] for _ in range(3)]
        assert {held_at(message).is_of("c") for message in late} == {False, True}, "the new one is used"
        for message in (*early[:2], *late[:2]):
            assert (await popper.ack(slave, message)).code == ResponseCode.SUCCESS
        await trio.sleep(200)
        assert sorted([*bodies(other), *bodies(third)]) == texts([early[2], late[2]])


async def test_another_time(autojump_clock: MockClock) -> None:
    async with acting() as (made, _master, slave, other):
        popper = Popper(made)
        found = await given(popper, slave, 3, invisible_ms=30_000)
        soon = await popper.changed(slave, found[0], 2_000)
        late = await popper.changed(slave, found[1], 120_000)
        assert held_at(soon) == held_at(found[0])
        await until(lambda: len(bodies(other)) == 1)
        assert wall_ms() < found[0].receipt.pop_time_ms + 25_000
        assert (await popper.ack(slave, late)).code == ResponseCode.SUCCESS
        await trio.sleep(180)
        assert sorted(bodies(other)) == texts([found[0], found[2]])


async def test_receipts_of_the_master_hold_at_the_slave_and_at_the_master_again(autojump_clock: MockClock) -> None:
    async with two_groups(flushDiskType="SYNC_FLUSH") as (made, master, slave, other):
        popper = Popper(made)
        await sent(made, master, 8)
        early = await popped(popper, master, 4, invisible_ms=30_000)
        late = await popped(popper, master, 4, invisible_ms=150_000)
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        for message in (early[0], late[0]):
            assert (await popper.ack(slave, message)).code == ResponseCode.SUCCESS
        moved = await popper.changed(slave, early[1], 60_000)
        assert held_at(moved).is_of("b")
        assert (await popper.ack(slave, late[1])).code == ResponseCode.SUCCESS
        assert len(list(ledger(slave).ledger.of(Subject.ACKED))) == 4
        await slave.kill()
        await slave.start()
        await taken_up(slave)
        await until(lambda: len(bodies(other)) == 2)
        assert sorted(bodies(other)) == texts(early[2:])
        await back_up(master)
        await until(lambda: not list(ledger(master).ledger.of(Subject.ACKED)), within_s=10)
        assert (await popper.ack(master, late[2])).code == ResponseCode.SUCCESS
        await trio.sleep(240)
        assert bodies(master) == [late[3].body]
        assert sorted(bodies(other)) == texts(early[1:])
        assert not list(ledger(slave).ledger.of(Subject.ACKED))


async def test_what_is_acknowledged_together(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, other):
        popper = Popper(made)
        await sent(made, master, 3)
        before = await popped(popper, master, 3, invisible_ms=40_000)
        await made.send(master.address, b"m3")
        await made.send(master.address, b"m4")
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        found = await given(popper, slave, 2, invisible_ms=40_000)
        acks = [BatchAck("G", "T", message.receipt.start_offset, 0, message.receipt.revive_qid,
                         message.receipt.pop_time_ms, message.receipt.invisible_ms,
                         bits_of([message.offset - message.receipt.start_offset]))
                for message in (before[0], before[1], found[0])]
        body = BatchAckRequest("a", acks).to_json()
        answer = await made.ask(slave.address, RequestCode.BATCH_ACK_MESSAGE, None, body)
        assert answer.code == ResponseCode.SUCCESS, answer
        await trio.sleep(90)
        assert sorted(bodies(other)) == texts([before[2], found[1]])


async def test_the_next_slave_takes_receipts_and_goes_on_behind_them(autojump_clock: MockClock) -> None:
    async with two_groups(2, totalReplicas="3") as (made, master, slave, other):
        popper = Popper(made)
        second = next(node for node in made.nodes if node not in (master, slave, other))
        await sent(made, master, 6)
        own = await popped(popper, master, 2, invisible_ms=100_000)
        await copied(master, slave)
        await copied(master, second)
        await master.kill()
        await taken_up(slave)
        found = await given(popper, slave, 2, invisible_ms=100_000)
        assert (await popper.ack(slave, own[0])).code == ResponseCode.SUCCESS
        await trio.sleep(5)  # the next slave has heard of it
        await slave.kill()
        await taken_up(second)
        await until(lambda: info(second)["popWaitsFor"] == "")
        assert (await popper.ack(second, found[0])).code == ResponseCode.SUCCESS
        more = await given(popper, second, 2)
        assert texts([*own, *found, *more]) == [b"m%d" % number for number in range(6)]
        for message in more:
            await popper.ack(second, message)
        await trio.sleep(150)
        assert sorted(bodies(other)) == texts([own[1], found[1]])


@pytest.mark.parametrize("order", [False, True])
async def test_what_is_refused_in_words(order: bool, autojump_clock: MockClock) -> None:
    async with two_groups(enableRemoteEscape=str(order).lower()) as (made, master, slave, _):
        await sent(made, master, 1)
        (message, *_) = await popped(Popper(made), master, 1)
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        answers = [await Popper(made).ask(slave, order=order)]
        if not order:
            answers += [await Popper(made).ack(slave, message), await Popper(made).change(slave, message, 1_000)]
        assert {(answer.code, answer.remark) for answer in answers} == {(ResponseCode.SYSTEM_BUSY, (
            "nothing is given in order while the master of this group is away" if order else REFUSED))}


async def test_no_other_master_is_there(autojump_clock: MockClock) -> None:
    async with acting() as (made, _master, slave, other):
        popper = Popper(made)
        found = await given(popper, slave, 2, invisible_ms=600_000)
        await other.kill()
        await trio.sleep(35)  # name servers do not know it any more
        answer = await popper.ask(slave)
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert answer.remark == ("no checkpoint: T: no other group of the cluster has a master where it can be popped")
        refused = await popper.ack(slave, found[0])
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, (
            "not stored: no master of the cluster is known to hold the checkpoint of this receipt"))
        assert offset(slave) == 3, "progress does not move"
        await other.start()
        await trio.sleep(5)
        assert (await popper.ack(slave, found[0])).code == ResponseCode.SUCCESS
        assert len(await given(popper, slave, 4)) == 4


async def test_who_lacks_the_group_is_passed_over(autojump_clock: MockClock) -> None:
    async with acting() as (made, _master, slave, other):
        third = await made.node(brokerName="c", autoCreateSubscriptionGroup="false")
        await made.send(third.address, b"before")
        await made.wait_route("T", {0: slave.address})
        part = slave.broker.parts[ErrandsPart]
        await until(lambda: may_deliver(slave))
        part._routes.clear()
        found = [message for _ in range(6) for message in await given(Popper(made), slave, 1)]
        assert all(held_at(message).is_of("b") for message in found)
        assert part.counters.again == 0
        await other.kill()
        await made.send(third.address, b"more")
        answer = await Popper(made).ask(slave)
        assert answer.code == ResponseCode.POLLING_TIMEOUT


async def test_an_unknown_outcome_is_asked_again_there(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with acting() as (made, _master, slave, other):
        part = slave.broker.parts[ErrandsPart]
        call, lost = part._client.call, [2]

        async def forgetful(address: str, command: Command, timeout_ms: float | None = None) -> Command:
            answer = await call(address, command, timeout_ms)
            if command.code == RequestCode.SEND_MESSAGE_V2 and lost[0]:
                lost[0] -= 1
                raise ConnectionClosed(address, "lost")
            return answer

        monkeypatch.setattr(part._client, "call", forgetful)
        found = await given(Popper(made), slave, 2, invisible_ms=15_000)
        assert part.counters.again == 1
        assert lost == [0]
        monkeypatch.undo()
        await trio.sleep(60)
        assert sorted(bodies(other)) == texts(found)


async def test_what_was_read_from_a_slave_that_is_gone_too_waits_for_it(autojump_clock: MockClock) -> None:
    async with acting(flushDiskType="SYNC_FLUSH") as (made, master, slave, other):
        found = await given(Popper(made), slave, 2, invisible_ms=15_000)
        await slave.kill()
        await trio.sleep(60)
        assert bodies(other) == []
        await back_up(master)
        await until(lambda: len(bodies(other)) == 2, within_s=300)
        assert sorted(bodies(other)) == texts(found)
        assert len(await given(Popper(made), master, 6)) == 6, "without its slave it does not know what that gave"


async def test_what_is_under_way_when_the_master_comes_back_is_given_once(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with acting() as (made, master, slave, other):
        popper, part = Popper(made), slave.broker.parts[ErrandsPart]
        send, hold = part._send, trio.Event()

        async def slow(*args: Any) -> tuple[str, bool]:
            result = await send(*args)
            await hold.wait()
            return result

        monkeypatch.setattr(part, "_send", slow)
        answers = list[Command]()
        async with trio.open_nursery() as nursery:
            async def ask() -> None:
                answers.append(await popper.ask(slave, count=2, invisible_ms=15_000))

            nursery.start_soon(ask)
            await trio.sleep(1)
            await master.start()
            await until(lambda: slave.offsets.frozen, within_s=60)
            monkeypatch.setattr(part, "_send", send)
            hold.set()
        assert answers[0].remark == "no checkpoint: the master of this group comes back: ask it"
        await until(lambda: may_deliver(master))
        assert len(await given(popper, master, 6)) == 6
        await trio.sleep(60)
        assert bodies(other) == [], "what was not given does not come back"
        assert bodies(master) == []


async def test_who_waits_and_what_is_told(autojump_clock: MockClock) -> None:
    async with acting(1) as (made, _master, slave, other):
        popper = Popper(made)
        assert info(slave)["popWaitsFor"] == ""
        (found,) = await given(popper, slave, 1)
        waited = trio.current_time()
        answer = await popper.ask(slave, poll_ms=5_000)
        assert answer.code == ResponseCode.POLLING_TIMEOUT and 4 < trio.current_time() - waited < 6
        assert len(slave.broker.parts[PopPart].checkpoints) == 0
        held = held_at(found)
        checkpoint = next(record for record in pop_records(other) if values(record).get("TAGS") == "ck")
        told = values(checkpoint)
        assert (told["REAL_TOPIC"], told["REAL_QID"]) == (reviving(other).topic, str(held.queue))
        assert told["UNIQ_KEY"] == f"T@0@1@G@{found.receipt.pop_time_ms}@a@ck"
        other.topics.update([TopicConfig("U", 1, 1)])
        assert reviving(other).counters.gone == 0


async def test_only_the_master_says_that_a_message_is_gone(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with acting(2) as (made, master, slave, other):
        await given(Popper(made), slave, 2, invisible_ms=10_000)

        async def nothing(*_: object) -> tuple[int, dict[int, object]]:
            await trio.lowlevel.checkpoint()
            return 1_000, {}

        monkeypatch.setattr(other.broker.parts[ErrandsPart], "_pull", nothing)
        await until(lambda: other.broker.parts[ErrandsPart].counters.unread >= 2)
        assert reviving(other).counters.gone == 0
        await back_up(master)
        await until(lambda: reviving(other).counters.gone == 2, within_s=90)
        assert bodies(other) == []


async def test_who_brings_back_is_lost_and_its_slave_goes_on(autojump_clock: MockClock) -> None:
    both = {**ACTING, "enableRemoteEscape": "true", "totalReplicas": "2", "brokerName": "d"}
    async with acting(3) as (made, _, slave, other):
        first = await made.node(**both)
        second = await made.node(**{**both, "brokerRole": "SLAVE", "brokerId": "1"})
        await until(lambda: may_deliver(first), within_s=60)
        await made.send(first.address, b"before")
        await other.kill()
        found = await given(Popper(made), slave, 3, invisible_ms=40_000)
        assert all(held_at(message).is_of("d") for message in found)
        await Popper(made).ack(slave, found[1])
        await copied(first, second)
        await other.start()
        await first.kill()
        await until(lambda: len(bodies(other)) == 2, within_s=120)
        await trio.sleep(30)
        assert sorted(bodies(other)) == texts([found[0], found[2]])


async def test_what_the_ledger_does_not_take(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_groups() as (made, master, slave, _):
        popper = Popper(made)
        await sent(made, master, 2)
        first, second = await popped(popper, master, 2)
        await copied(master, slave)
        await master.kill()
        await taken_up(slave)
        answer = await popper.ack(slave, first, consumer_group="G T")
        assert answer.code == ResponseCode.INVALID_PARAMETER and "^[%|a-zA-Z0-9_-]+$" in (answer.remark or "")
        monkeypatch.setattr(ledger_part, "ENTRIES_MAX", len(ledger(slave).ledger) + 1)
        assert (await popper.ack(slave, first)).code == ResponseCode.SUCCESS
        answer = await popper.ack(slave, second)
        assert answer.remark == "not stored: the ledger is full: acknowledge again when the master is back"
        await made.kill_namesrv()
        await trio.sleep(10)
        answer = await popper.ack(slave, second)
        assert (answer.remark or "").startswith("not stored: 0 of 1 name servers"), "who may not deliver learns nothing"


async def test_messages_of_a_broker_that_nobody_knows_hold_nothing_up(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"before")
        own = await pop(node, [0], 3_000)
        strange = [attrs.evolve(own.found, start_offset=number, broker_name="gone", pop_time_ms=wall_ms())
                   for number in range(400)]
        for each in strange:
            await stored(node, records_of(node).checkpoint(each, 0))
        await until(lambda: bodies(node) == [b"before"])
        await until(lambda: reviving(node).counters.again >= 400, within_s=60)
        assert bodies(node) == [b"before"] and reviving(node).counters.gone == 0


# --- alone, with masters that answer by hand ------------------------------------------------------------------------


@attrs.define(eq=False)
class Others:
    """Masters of other groups, which answer by hand."""

    stores: list[Stored] = attrs.field(factory=list)
    sent: list[tuple[list[tuple[int, int, int]], Told]] = attrs.field(factory=list)
    """Acknowledgements: of which checkpoints, by queue, first offset and time."""

    def store(self, topic: str, records: Sequence[Message], stored: Stored, left_over: Callable[[Ticket], None],
              first: Ticket | None = None) -> None:
        self.stores.append(stored)

    def store_at(self, ticket: Ticket, records: Sequence[Message], told: Told) -> None:
        acks = [read_record(record) for record in records]
        assert not any(isinstance(each, CheckPoint) for each in acks)
        self.sent.append(([(each.queue_id, each.start_offset, each.pop_time_ms) for each in acks], told))

    def read(self, broker_name: str, topic: str, queue_id: int, offsets: Sequence[int], found: Found) -> None:
        raise AssertionError("nothing is read")


class Paper:
    """A ledger that keeps all at once, or has no room."""

    def __init__(self, *, room: bool = True) -> None:
        self.room = room

    def acked(self, each: Acked) -> bool:
        return self.room

    def when_kept(self, call: Callable[[], None]) -> None:
        call()


@attrs.define(eq=False, slots=False)
class Lender:
    """A slave that acts: what it lends, and where its group is."""

    others: Others = attrs.field(factory=Others)
    offsets: dict[Key, int] = attrs.field(factory=dict)
    said: list[int | str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.chain = Checkpoints(self.offsets.__setitem__)
        self.lending = Lending(
            self.others, Records("c", bytes(8), lambda: 1_000, Chain()), self.chain,
            OffsetTable(OffsetsConfig(), lambda: 1_000), Standing("c", "a", "a:1", Role.acting(1)),
            cast("Puts", None), lambda: "")
        self.lending.enabled, self.lending.ledger = True, Paper()

    def give(self, *places: tuple[int, int]) -> None:
        """A POP that takes the message at that offset of each queue."""
        self.lending.give([made_for(queue, at) for queue, at in places], [
            self.chain.add(("T", "G", queue), at, at + 1, at + 1) for queue, at in places], self.said.append)


def made_for(queue: int, at: int) -> CheckPoint:
    return CheckPoint(at, 1_000, 5_000, 1, queue, "T", "G", diffs=[0], broker_name="a")


HELD = Ticket.of("b", 0)


@pytest.mark.parametrize("refused", [True, False])
def test_a_queue_whose_offset_has_moved_is_not_taken_back_with_another(refused: bool) -> None:
    lender = Lender()
    lender.give((1, 0))
    lender.give((0, 0), (1, 1))
    early, late = lender.others.stores
    late(HELD)
    assert lender.offsets == {("T", "G", 0): 1} and lender.said == [], "queue 1 waits for the first POP"
    if refused:
        early("nobody takes it")
    else:
        lender.chain.clear()  # the master is back
        lender.lending.look()
    assert [each for each in lender.said if isinstance(each, int)] == []
    assert [acks for acks, _ in lender.others.sent] == [[(1, 1, 1_000)]], (
        "the message of queue 0 is behind its group's offset: it must come back")


@pytest.mark.parametrize(("why_not", "stored", "back"), [
    ("nobody knows", True, False), ("there is no such master", False, True), ("", True, False)])
def test_a_new_time_is_taken_back_only_if_the_old_one_surely_stays(why_not: str, stored: bool, back: bool) -> None:
    lender = Lender()
    old = AckMessage(5, 5, "G", "T", 0, 900, "a")
    lender.lending.change(made_for(0, 5), old, HELD.number, 5_000, lender.said.append)
    lender.others.stores[0](HELD)
    ((acks, told),) = lender.others.sent
    assert acks == [(0, 5, 900)]
    told(why_not, stored)
    assert lender.said == [why_not or HELD.number]
    assert [acks for acks, _ in lender.others.sent[1:]] == ([[(0, 5, 1_000)]] if back else [])


def test_a_new_time_is_taken_back_when_the_ledger_has_no_room_for_the_old() -> None:
    lender = Lender()
    lender.lending.ledger = Paper(room=False)
    lender.lending.change(made_for(0, 5), AckMessage(5, 5, "G", "T", 0, 900, "a"), 0, 5_000, lender.said.append)
    lender.others.stores[0](HELD)
    assert lender.said == ["the ledger is full: acknowledge again when the master is back"]
    assert [acks for acks, _ in lender.others.sent] == [[(0, 5, 1_000)]]
