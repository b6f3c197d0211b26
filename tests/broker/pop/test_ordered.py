"""POP in order: one batch out at a time, across masters, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.pop.orderlog import OrderPart
from broker.pop.part import PopPart
from broker.puts import Done, Outlet
from broker.topics.names import POP_ORDER
from harness.simulation.worlds.brokers import CLUSTER, Cluster, Node, cluster, new_master, three, until
from remoting.bodies.popping import BatchAck, BatchAckRequest, bits_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.popping import ChangeInvisibleTimeResponse
from remoting.receipts import ORDERED
from remoting.record import Message
from tests.broker.pop.world import ALL_ACK, Popped, Popper, offset, pop_records, popped

OK = ResponseCode.SUCCESS


def bodies(found: list[Popped]) -> list[bytes]:
    return [each.body for each in found]


async def filled(made: Cluster, node: Node, count: int = 5) -> Popper:
    for number in range(count):
        assert (await made.send(node.address, b"%d" % number)).code == OK
    return Popper(made)


async def take(popper: Popper, node: Node, attempt: str = "A1", **asked: int) -> list[Popped]:
    return await popper.pop(node, queue=0, order=True, attempt_id=attempt, **asked)


async def test_a_second_batch_comes_when_the_first_is_done_with(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        answer = await popper.ask(node, queue=0, count=3, order=True, attempt_id="A1")
        assert answer.ext["orderCountInfo"] == "0 0 0"
        assert answer.ext["reviveQid"] == str(ORDERED)
        assert not pop_records(node), "there is no checkpoint"
        assert await take(popper, node, "A2") == []
        again = await take(popper, node, "A1", count=3)
        assert bodies(again) == [b"0", b"1", b"2"], "the same attempt gets the same again"
        assert offset(node) == 0
        first, second, third = again
        assert (await popper.ack(node, second)).code == OK
        assert offset(node) == 0
        assert (await popper.ack(node, first)).code == OK
        assert offset(node) == 2
        assert await take(popper, node, "A2") == []
        assert (await popper.ack(node, third)).code == OK
        assert offset(node) == 3
        assert bodies(await take(popper, node, "A2")) == [b"3", b"4"]
        assert len(pop_records(node, POP_ORDER)) > 5
        revive = [record for queue in range(8) for record in pop_records(node, f"rmq_sys_REVIVE_LOG_{CLUSTER}", queue)]
        assert not revive and not pop_records(node), "where a Java master would bring them back"


async def test_the_longest_time_is_kept_as_any_other(autojump_clock: MockClock) -> None:
    """The sum with the present does not fit into the state: no replica could read it, nor could the next process."""
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        (first,) = await take(popper, node, count=1)
        changed = await popper.changed(node, first, 2**63 - 1)
        assert changed.receipt.pop_time_ms + changed.receipt.invisible_ms == 2**63 - 1
        await node.stop()
        await node.start()
        await trio.sleep(120)
        assert await take(popper, node, "A2") == [], "it still blocks"
        assert (await popper.ack(node, first)).code == OK
        assert bodies(await take(popper, node, "A2", count=1)) == [b"1"]


async def test_an_acknowledgement_wakes_who_waits(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        popper = await filled(made, node)
        (first,) = await take(popper, node, count=1)
        found: list[bytes] = []

        async def wait() -> None:
            found.extend(bodies(await take(popper, node, "A2", poll_ms=15_000, count=1)))

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert not found
        await popper.ack(node, first)
        await trio.sleep(0.05)
        assert found == [b"1"]


async def test_what_is_not_done_with_in_time_comes_again_and_is_counted(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        found = await take(popper, node, count=3, invisible_ms=5_000)
        assert (await popper.ack(node, found[1])).code == OK
        await trio.sleep(5.1)
        answer = await popper.ask(node, queue=0, order=True, attempt_id="A2")
        assert answer.ext["msgOffsetInfo"] == "0 0 0,2,3,4", "what is done with stays so"
        assert answer.ext["orderCountInfo"] == "0 qo0%0 1;0 qo0%2 1;0 0 0"
        late = await popper.ack(node, found[0])
        assert late.code == OK, "of a batch that was given again: it changes nothing"
        assert offset(node) == 0


@pytest.mark.parametrize("given", [0, 2])
async def test_of_what_another_master_gave_only_who_leads_answers(autojump_clock: MockClock, given: int) -> None:
    """Who was replaced, and has not heard of it, can store nothing."""
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        _, second = await take(Popper(made, "another"), node, count=2)
        if given:
            await take(popper, node, count=given)
        theirs = attrs.evolve(second, receipt=attrs.evolve(second.receipt, pop_time_ms=second.receipt.pop_time_ms + 7))
        node.broker.journal.refusing = "it is alone"
        assert (await popper.ack(node, theirs)).code == ResponseCode.SYSTEM_ERROR
        assert (await popper.change(node, theirs, 5_000)).code == ResponseCode.SYSTEM_ERROR
        node.broker.journal.refusing = ""
        assert (await popper.ack(node, theirs)).code == OK
        changed = await popper.change(node, theirs, 5_000)
        assert (changed.code, ChangeInvisibleTimeResponse.from_ext(changed.ext)) == (OK, ChangeInvisibleTimeResponse())
        if given:
            assert await take(popper, node, "A2", count=1) == [], "it blocks as before"
        assert bodies(await take(popper, node, count=2)) == [b"0", b"1"], "nothing was done with"


async def test_another_time_blocks_for_that_time(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        (message,) = await take(popper, node, count=1, invisible_ms=5_000)
        answer = await popper.change(node, message, 20_000)
        told = ChangeInvisibleTimeResponse.from_ext(answer.ext)
        assert told.pop_time == message.receipt.pop_time_ms
        assert (told.revive_qid, told.invisible_time >= 20_000) == (ORDERED, True)
        await trio.sleep(15)
        assert await take(popper, node, "A2") == []
        await trio.sleep(6)
        assert bodies(await take(popper, node, "A2", count=1)) == [b"0"]
        stale = await popper.change(node, message, 20_000)
        assert ChangeInvisibleTimeResponse.from_ext(stale.ext) == ChangeInvisibleTimeResponse()


async def test_who_acknowledges_what_was_not_given_is_told(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        (message,) = await take(popper, node, count=1)
        answer = await popper.ack(node, message, offset=3)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "not given in this batch" in (answer.remark or "")


async def test_many_of_a_batch_are_acknowledged_at_once(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        found = await take(popper, node, count=3)
        receipt = found[0].receipt
        entry = BatchAck("G", "T", 0, 0, ORDERED, receipt.pop_time_ms, receipt.invisible_ms, bits_of([0, 1, 2, 4]))
        body = BatchAckRequest("a", [entry]).to_json()
        assert (await made.ask(node.address, RequestCode.BATCH_ACK_MESSAGE, body=body)).code == OK
        assert offset(node) == 3
        assert bodies(await take(popper, node, "A2")) == [b"3", b"4"]


async def test_what_cannot_be_stored_is_neither_given_nor_done_with(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        node.broker.journal.refusing = "the disk is full"
        answer = await popper.ask(node, queue=0, order=True, attempt_id="A1")
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert "its order is not stored" in (answer.remark or "")
        node.broker.journal.refusing = ""
        found = await take(popper, node, "A2", count=1)
        assert bodies(found) == [b"0"]
        node.broker.journal.refusing = "the disk is full"
        assert (await popper.ack(node, found[0])).code == ResponseCode.SYSTEM_ERROR
        assert (await popper.change(node, found[0], 5_000)).code == ResponseCode.SYSTEM_ERROR
        node.broker.journal.refusing = ""
        assert (await popper.ack(node, found[0])).code == OK
        assert offset(node) == 1


@attrs.define(eq=False)
class LatePuts:
    """Puts whose answers somebody may keep."""

    puts: Outlet
    keeps: bool = False
    kept: list[Callable[[], None]] = attrs.field(factory=list)

    def put(self, messages: Sequence[Message], done: Done) -> None:
        if self.keeps:
            self.puts.put(messages, lambda result: self.kept.append(lambda: done(result)))
        else:
            self.puts.put(messages, done)


async def test_an_answer_that_comes_late_takes_nobody_back(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that demanded more replicas than one behind it is answered later."""
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        popper = await filled(made, node)
        log = node.broker.parts[OrderPart].log
        late = LatePuts(log._puts)
        monkeypatch.setattr(log, "_puts", late)
        (first,) = await take(popper, node, "A1", count=1)
        late.keeps = True
        nursery.start_soon(popper.ack, node, first)
        await until(lambda: bool(late.kept))
        late.keeps = False
        (second,) = await take(popper, node, "A2", count=1)
        assert second.body == b"1"
        assert await take(popper, node, "A3", count=1) == [], "it is out with another one"
        assert (await popper.ack(node, second)).code == OK
        assert offset(node) == 2
        for answer in late.kept:
            answer()
        assert offset(node) == 2
        assert bodies(await take(popper, node, "A3", count=1)) == [b"2"]


async def test_of_what_was_given_to_another_one_before_its_answer_nothing_is_given(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas acknowledge both batches after their time: other requests have all of the first, half of the second."""
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        popper = await filled(made, node, 2)
        for _ in range(2):
            assert (await made.send(node.address, b"other", queue=1)).code == OK
        log, answers = node.broker.parts[OrderPart].log, list[Command]()
        late = LatePuts(log._puts, keeps=True)
        monkeypatch.setattr(log, "_puts", late)

        async def ask(attempt: str) -> None:
            answers.append(await popper.ask(node, order=True, attempt_id=attempt, invisible_ms=1_000))

        nursery.start_soon(ask, "A1")
        await until(lambda: len(late.kept) == 1)
        await trio.sleep(1.1)
        nursery.start_soon(ask, "A2")
        await until(lambda: len(late.kept) == 2)
        await trio.sleep(1.1)
        late.keeps = False
        assert bodies(await take(popper, node, "A3", count=1)) == [b"0"]
        for answer in late.kept:
            answer()
        await until(lambda: len(answers) == 2)
        overtaken, other = sorted(answers, key=lambda each: each.code, reverse=True)
        assert (overtaken.code, overtaken.body) == (ResponseCode.POLLING_TIMEOUT, b"")
        assert "given to another request" in (overtaken.remark or "")
        assert bodies(popped(other, "T", "G")) == [b"other", b"other"]
        assert other.ext["orderCountInfo"] == "0 qo1%0 1;0 qo1%1 1;0 1 1"


async def test_a_batch_begins_behind_what_is_on_its_way(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's offset moves with answers, and the state with what was asked."""
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        popper = await filled(made, node)
        log = node.broker.parts[OrderPart].log
        late = LatePuts(log._puts)
        monkeypatch.setattr(log, "_puts", late)
        (first,) = await take(popper, node, "A1", count=1)
        late.keeps = True
        nursery.start_soon(popper.ack, node, first)
        await until(lambda: len(late.kept) == 1)
        nursery.start_soon(partial(take, popper, node, "A2", count=1, invisible_ms=2_000))
        await until(lambda: len(late.kept) == 2)
        late.keeps = False
        await trio.sleep(3)
        assert bodies(await take(popper, node, "A3", count=1)) == [b"1"], "the first is done with, untold"
        for answer in late.kept:
            answer()


async def test_a_filter_passes_what_nobody_wants(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        for number in range(6):
            await made.send(node.address, b"%d" % number, properties=f"TAGS\x01{'ab'[number % 2]}\x02")
        found = await popper.pop(node, queue=0, count=2, order=True, attempt_id="A1", exp="b")
        assert bodies(found) == [b"1", b"3"]
        for each in found:
            assert (await popper.ack(node, each)).code == OK
        assert bodies(await popper.pop(node, queue=0, order=True, attempt_id="A2", exp="b")) == [b"5"]


@pytest.mark.parametrize(("wanted", "given"), [("b", [b"2"]), ("c", [])])
async def test_who_finds_nothing_but_what_is_done_with_reads_on(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, wanted: str, given: list[bytes]) -> None:
    """The filter leaves out the one in front that is open; the next one was done with out of turn."""
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        for number, tag in enumerate(("a", wanted, "b", "a")):
            await made.send(node.address, b"%d" % number, properties=f"TAGS\x01{tag}\x02")
        found = await take(popper, node, count=3, invisible_ms=1_000)
        assert (await popper.ack(node, found[1])).code == OK
        await trio.sleep(1.1)
        popping, tries = node.broker.parts[PopPart].popping, list[int]()
        carry_out = popping._take

        def take_once_more(*asked: Any) -> object:
            tries.append(1)
            assert len(tries) <= 3, "who waits is not carried out again and again"
            return carry_out(*asked)

        monkeypatch.setattr(popping, "_take", take_once_more)
        assert bodies(await popper.pop(
            node, queue=0, count=1, order=True, attempt_id="A2", exp=wanted, poll_ms=3_000)) == given


async def test_a_reset_ends_the_batch(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await filled(made, node)
        await take(popper, node, count=2)
        node.offsets.reset("G", "T", 0, 4)
        await trio.sleep(0.2)
        assert bodies(await take(popper, node, "A2")) == [b"4"]


async def test_order_holds_on_the_next_master(autojump_clock: MockClock) -> None:
    """It knows the batch that is out, whose attempt it was, and what of it is done with."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK)
        popper = await filled(made, master)
        found = await take(popper, master, "A1", count=3)
        assert (await popper.ack(master, found[1])).code == OK
        await master.kill()
        leader = await new_master(*slaves)
        pops, orders = leader.broker.parts[PopPart], leader.broker.parts[OrderPart].log
        await until(lambda: pops._is_ready() and orders.ready)
        assert await take(popper, leader, "A2") == []
        again = await take(popper, leader, "A1", count=3)
        assert bodies(again)[0] == b"0"
        assert b"1" not in bodies(again)
        assert (await popper.ack(leader, attrs.evolve(again[0]))).code == OK
        assert offset(leader) == 2
