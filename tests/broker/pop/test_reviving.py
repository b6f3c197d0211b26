"""What was popped and not acknowledged in time comes back, whatever happens to brokers meanwhile: in virtual time."""

from __future__ import annotations

from random import Random

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.metrics import BrokerMetrics
from broker.offsets.part import OffsetsPart
from broker.pop import returning
from broker.pop.retained import Retained
from broker.pop.returning import Revived
from broker.pop.reviving import EARLY_MS, RevivePart
from broker.topics.names import REVIVE_GROUP
from harness.simulation.worlds.brokers import Node, cluster, new_master, three, until, wall_ms
from remoting.bodies.popping import CheckPoint
from remoting.record import NOTED, PROPERTIES_BYTES_MAX, Message, encode_properties, outline
from remoting.record import encode as encoded
from tests.broker.pop.poppers import (
    RETRY,
    Popped,
    back,
    bodies,
    pop,
    processed,
    records_of,
    reviving,
    sent,
    stored,
    values,
)
from tests.broker.pop.world import Popper

DURABLE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}


async def all_done(node: Node, within_s: float = 60) -> None:
    """Until nothing of the revive queues is needed any more."""
    with trio.fail_after(within_s):
        while any(one != last for one, last in (processed(node, number) for number in range(8))):
            await trio.sleep(0.1)


async def test_what_was_not_acknowledged_comes_back_and_nothing_else(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        began_ms = wall_ms()
        popped = await pop(node, [0, 1, 2, 3, 4])
        await popped.ack(node, 1)
        await popped.ack(node, 3, 4)
        await trio.sleep(12)
        assert bodies(node) == []
        await until(lambda: bodies(node))
        assert 12_000 <= wall_ms() - began_ms <= 15_000
        await trio.sleep(30)
        assert bodies(node) == [b"0", b"2"]
        assert processed(node) == (2, 2), "a checkpoint and two acknowledgements"
        for record in back(node):
            found = values(record)
            assert record.message.reconsume_times == 1 and record.message.sys_flag & NOTED
            assert found["ORIGIN_GROUP"] == "G" and found["1ST_POP_TIME"] == str(began_ms) and found["TAGS"] == "a"
            assert found["UNIQ_KEY"] in ("U0", "U2") and "POP_CK" not in found
        topic = node.topics.get(RETRY)
        assert topic is not None and (topic.read_queue_nums, topic.perm) == (1, 6)
        assert node.offsets.query("G", RETRY, 0) == 0


async def test_what_came_back_and_is_popped_again_stays_where_it_is(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 1)
        first_ms = wall_ms()
        await pop(node, [0], 1_000)
        await until(lambda: bodies(node))
        again = await pop(node, [0], 1_000, topic=RETRY)
        await until(lambda: len(bodies(node)) == 2)
        last = back(node)[1]
        assert last.message.reconsume_times == 2 and values(last)["1ST_POP_TIME"] == str(first_ms)
        await pop(node, [1], 1_000, topic=RETRY, suspend=True)
        await until(lambda: len(bodies(node)) == 3)
        assert back(node)[2].message.reconsume_times == 2, "it did not fail once more"
        assert again.found.topic == RETRY


async def test_full_properties_go_to_the_dead_letters_as_they_are(
        autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """What a retry adds has no room: its put was refused for ever, and so was its checkpoint's next copy."""
    full = b"a\x01" + b"x" * (PROPERTIES_BYTES_MAX - 3) + b"\x02"
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 2)
        await stored(node, Message(b"T", b"full", 0, full, sys_flag=NOTED))
        await pop(node, [0, 1, 2], 1_000)
        await until(lambda: bodies(node) and bodies(node, "%DLQ%G"))
        await all_done(node)
        [letter] = back(node, "%DLQ%G")
        message = letter.message
        assert (bodies(node), message.body, message.properties) == ([b"0", b"1"], b"full", full)
        assert (message.reconsume_times, message.sys_flag & NOTED) == (1, 0), "no replica is to take note of it"
        assert node.offsets.query("G", "%DLQ%G", 0) is None, "nobody has read it"
        assert reviving(node).counters.full == 1
        assert "message 2 of T, queue 0, is now a dead letter of group G" in caplog.text


async def test_names_of_version_2(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(reviveInterval="100")
        config = reviving(node).config
        assert config.revive_interval == 100
        reviving(node).config = attrs.evolve(config, enable_retry_topic_v2=True)
        await sent(made, node, 1)
        await pop(node, [0], 1_000)
        await until(lambda: bodies(node, "%RETRY%G+T"))


async def test_all_queues_are_read_and_those_of_before(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        for number in range(5):
            await pop(node, [number], 1_000, revive_qid=number * 2)
        await node.stop()
        node.settings["reviveQueueNum"] = "1"
        await node.start()
        await until(lambda: len(bodies(node)) == 5)


@pytest.mark.parametrize(("interval_ms", "least_s", "most_s"), [(100, 1, 6), (30_000, 25, 65)])
async def test_the_interval_says_how_soon_it_is_looked_at(
        autojump_clock: MockClock, interval_ms: int, least_s: int, most_s: int) -> None:
    async with cluster() as made:
        node = await made.node(reviveInterval=str(interval_ms))
        await sent(made, node, 1)
        await trio.sleep(65)
        began = trio.current_time()
        await pop(node, [0], 1_000)
        await until(lambda: bodies(node), within_s=120)
        assert least_s <= trio.current_time() - began <= most_s


async def test_a_late_acknowledgement_changes_nothing(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 2)
        popped = await pop(node, [0, 1], 2_000)
        await until(lambda: bodies(node))
        await popped.ack(node, 0)
        await popped.ack(node, 1)
        await trio.sleep(20)
        assert bodies(node) == [b"0", b"1"]
        await all_done(node)


async def test_refused_puts_lose_nothing(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes nothing for a while, and checkpoints expire: Java passes over them (P16)."""
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        popped = await pop(node, [0, 1, 2, 3, 4], 2_000)
        await popped.ack(node, 2)
        await trio.sleep(2.5)
        monkeypatch.setattr(node.broker.journal, "_look_for_room", lambda: None)
        node.broker.journal.refusing = "full"
        await trio.sleep(20)
        assert bodies(node) == []
        assert processed(node)[0] < processed(node)[1] or processed(node) == (-1, -1)
        node.broker.journal.refusing = ""
        await until(lambda: len(bodies(node)) == 4)
        await trio.sleep(20)
        assert sorted(bodies(node)) == [b"0", b"1", b"3", b"4"]
        await all_done(node)


async def test_it_says_why_nothing_comes_back(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 1)
        await pop(node, [0], 2_000)
        await until(lambda: processed(node)[1] == 0)
        monkeypatch.setattr(node.broker.journal, "_look_for_room", lambda: None)
        node.broker.journal.refusing = "full"
        await trio.sleep(4)
        info = node.broker.parts.runtime_info()
        assert "tried again" in info["popReviveWaitsFor"] and "full" in info["popReviveWaitsFor"]
        assert "cannot be put into their retry topic" in caplog.text and int(info["popReviveBehind"]) == 1
        node.broker.journal.refusing = ""
        await until(lambda: bodies(node))
        page = BrokerMetrics(node.broker).exposition().decode()
        for name in ("rocketmq_pop_revive_lag_milliseconds{", "rocketmq_pop_revive_latency_milliseconds{",
                     "rocketmq_pop_revive_out_message_total{", "rocketmq_pop_revive_retry_messages_total{"):
            assert name in page, name
        assert 'put_status="PUT_OK",topic="T"} 1.0' in page
        node.broker.parts.writes_closed()
        assert "follows a master" in reviving(node).waits_for


async def test_a_topic_that_is_deleted_holds_nothing_up(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        await pop(node, [0, 1], 2_000)
        await sent(made, node, topic="Other")
        await pop(node, [0], 2_000, topic="Other")
        node.topics.delete("T")
        await trio.sleep(10)
        await all_done(node)
        assert bodies(node) == [] and bodies(node, "%RETRY%G_Other") == [b"0"]
        assert reviving(node).counters.gone == 2


@pytest.mark.parametrize("count", [1, 9])
async def test_of_a_topic_that_was_made_anew_nothing_comes_back(count: int, autojump_clock: MockClock) -> None:
    """Neither an offset beyond its end nor another message that has the offset now."""
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        await pop(node, [0, 4], 2_000)
        node.topics.delete("T")
        await trio.sleep(0.5)
        await sent(made, node, count)
        await trio.sleep(10)
        await all_done(node)
        assert bodies(node) == [] and reviving(node).counters.gone == 2


async def test_an_offset_beyond_the_end_is_tried_again(autojump_clock: MockClock) -> None:
    """The queue is as old as the checkpoint: nobody knows why it ends before."""
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 3)
        await pop(node, [1, 5], 2_000)
        await trio.sleep(8)
        await all_done(node)
        assert bodies(node) == [b"1"] and reviving(node).counters.again == 1
        await sent(made, node, 4)
        await trio.sleep(20)
        assert bodies(node) == [b"1"], "what stands there now is younger than what was given"


@pytest.mark.parametrize("topic", ["T", "Other"])
async def test_where_another_message_stands_it_is_tried_again(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        topic: str) -> None:
    """Java brings back whatever it reads there (apache/rocketmq#7724)."""
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 2)
        await sent(made, node, 2, topic="Other")
        await pop(node, [0, 1], 2_000)
        queue, another = (node.broker.journal.messages.queue(name.encode(), 0) for name in ("T", topic))
        assert queue is not None and another is not None
        right, wrong = queue.entry, another.entry(1)
        monkeypatch.setattr(queue, "entry", lambda offset: wrong if offset == 0 else right(offset))
        await trio.sleep(8)
        assert bodies(node) == [b"1"] and reviving(node).counters.again == 1
        assert f"entry 0 of T, queue 0, points to message 1 of {topic}" in caplog.text
        monkeypatch.undo()
        await until(lambda: bodies(node) == [b"1", b"0"])
        await all_done(node)


async def test_what_was_deleted_as_old_does_not_come_back(autojump_clock: MockClock) -> None:
    """Here the log is kept for it. In a store of Java's, or one whose files somebody removed, it was not."""
    async with cluster() as made:
        node = await made.node(mappedFileSizeCommitLog=str(1 << 16))
        journal = node.broker.journal
        await sent(made, node, 2)
        await made.fill_files(node)
        await sent(made, node, 4)
        await trio.sleep(1)
        node.shed()
        await until(lambda: journal.messages.min_offset(b"T", 0) == 2)
        await pop(node, [0, 1, 3], 2_000)
        await until(lambda: bodies(node))
        await all_done(node)
        assert bodies(node) == [b"1"] and reviving(node).counters.gone == 2


async def test_a_group_that_nobody_knows_is_given_some_time(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(autoCreateSubscriptionGroup="false")
        await sent(made, node, 1)
        await pop(node, [0], 2_000, group="late")
        await trio.sleep(8)
        assert bodies(node, "%RETRY%late_T") == [] and reviving(node).counters.again == 1
        node.groups.config = attrs.evolve(node.groups.config, auto_create_subscription_group=True)
        node.groups.find("late")
        await until(lambda: bodies(node, "%RETRY%late_T"))
        node.groups.config = attrs.evolve(node.groups.config, auto_create_subscription_group=False)
        await pop(node, [0], 2_000, group="never")
        await trio.sleep(200)
        assert bodies(node, "%RETRY%never_T") == [] and reviving(node).counters.gone == 1
        await all_done(node)


async def test_records_that_nobody_understands_are_passed_over(
        autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        topic = records_of(node).topic.encode()
        for tag, body in (("ck", b"{"), ("ck", b"{}"), ("ack", b"[]"), ("bAck", b'{"aol":7}'), ("nothing", b""),
                          ("ck", b'{"so":-1,"pt":1,"it":1,"n":1,"q":0,"t":"T","c":"G"}'),
                          ("ck", b'{"so":0,"pt":1,"it":1,"n":1,"q":0,"t":"T","c":"%s"}' % (b"x" * 40_000)),
                          ("ck", b'{"so":0,"pt":1,"it":1,"n":1,"q":0,"t":"T","c":"G\\u0002a\\u0001b"}')):
            await stored(node, Message(topic, body or b" ", 0, encode_properties({"TAGS": tag})))
        await pop(node, [3], 1_000)
        await until(lambda: bodies(node))
        assert reviving(node).counters.strange == 8 and "is skipped" in caplog.text
        await all_done(node)


async def test_a_checkpoint_that_no_timer_could_hold_back_is_passed_over(autojump_clock: MockClock) -> None:
    """Anybody may send it. The log would be kept from there on."""
    async with cluster() as made:
        node = await made.node(timerMaxDelaySec="100")
        await sent(made, node, 2)
        its = reviving(node)
        for beyond_ms, offset in ((1, 0), (0, 1)):
            found = CheckPoint(offset, wall_ms(), 100_000 + EARLY_MS + beyond_ms, 1, 0, "T", "G", diffs=[0])
            await stored(node, Message(its.topic.encode(), found.to_json(), 0, encode_properties({"TAGS": "ck"})))
        await until(lambda: its.counters.strange == 1)
        assert its.processed(0) == 0, "the other one is held until it is due"
        await trio.sleep(170)
        assert bodies(node) == [b"1"]
        await all_done(node)
        assert its.keeps_from() is None and its.counters.strange == 1


async def test_nothing_that_is_answered_in_time_comes_back_from_the_next_master(autojump_clock: MockClock) -> None:
    """Masters die, at any moment; each time the next one brings back what is left."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE)
        await sent(made, master, 20)
        chance = Random(7)
        acked, popped = set[int](), list[Popped]()
        for number in range(0, 20, 2):
            popped.append(await pop(master, [number, number + 1], chance.choice([2_000, 4_000, 9_000])))
            if chance.random() < 0.6:
                await popped[-1].ack(master, number)
                acked.add(number)
            await trio.sleep(chance.random() / 2)
        for _ in range(3):
            await trio.sleep(chance.random() * 4)
            await master.kill()
            former, master = master, await new_master(*others)
            await former.start()
            others = [node for node in (former, *others) if node is not master]
            await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums >= 1)  # noqa: B023
        await trio.sleep(30)
        await all_done(master)
        found = [int(body) for body in bodies(master)]
        assert set(found) == set(range(20)) - acked
        assert len(found) == len(set(found)), "none twice: each replica knows what came back"


async def test_what_came_back_does_not_again_though_the_offset_was_not_copied(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        await sent(made, node, 3)
        await pop(node, [0, 1, 2], 2_000)
        await until(lambda: len(bodies(node)) == 3)
        await all_done(node)
        await node.stop()
        await node.start()
        table = node.broker.parts[OffsetsPart].table
        its = reviving(node)
        assert its.counters.passed_over == 0
        await node.stop()
        for name in [name for name in node.store.content if "consumerOffset" in name]:
            node.store.remove(name)
        await node.start()
        await trio.sleep(10)
        await all_done(node)
        assert len(bodies(node)) == 3 and reviving(node).counters.passed_over == 3
        assert table.query(REVIVE_GROUP, its.topic, 0) == 0


async def test_an_old_copy_of_the_offset_brings_nothing_back_again(autojump_clock: MockClock) -> None:
    """What came back is not remembered of records that the offset has passed, so it must not go back before a cut."""
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 1)
        await pop(node, [0], 1_000)
        await until(lambda: bodies(node))
        await all_done(node)
        part = reviving(node)
        (number,) = (each for each in range(8) if part.processed(each) >= 0)
        node.offsets._offsets[f"{part.topic}@{REVIVE_GROUP}"].pop(number)  # as a copy of a master that knew nothing
        part.start()
        await trio.sleep(20)
        assert len(bodies(node)) == 1
        part._journal.was_cut(part._journal.log.max_offset)
        assert part.processed(number) == -1


async def test_the_log_is_kept_from_the_first_record_that_is_needed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node, 2)
        its = reviving(node)
        assert its.keeps_from() is None
        await pop(node, [0], 2_000)
        await trio.sleep(3)
        kept = its.keeps_from()
        assert kept is not None and node.broker.journal.log.record(kept).message.topic.decode() == its.topic
        await until(lambda: bodies(node))
        await all_done(node)
        assert its.keeps_from() is None


async def test_old_files_stay_until_what_was_popped_there_came_back(autojump_clock: MockClock) -> None:
    """On every replica. What came back is as it was sent."""
    async with cluster(controllers=3) as made:
        nodes = await three(made, **DURABLE, mappedFileSizeCommitLog=str(1 << 16))
        master, popper = nodes[0], Popper(made)
        await sent(made, master, 3)
        await made.fill_files(master)  # the checkpoint, which waits as a timer, stands in another file
        given = await popper.pop(master, queue=0, invisible_ms=20_000)
        assert len(given) == 3 and (await popper.ack(master, given[1])).code == 0
        await trio.sleep(5)

        def clean() -> list[int]:
            for node in nodes:
                node.shed()
            return [node.broker.journal.begin for node in nodes]

        assert min(node.broker.journal.end for node in nodes) > 2 << 16 and clean() == [0, 0, 0]
        await until(lambda: len(bodies(master)) == 2)
        assert clean() == [0, 0, 0] and bodies(master) == [b"0", b"2"]
        await trio.sleep(90)
        clean()
        await until(lambda: min(clean()) >= 1 << 16)


async def test_messages_that_may_come_back_stay(autojump_clock: MockClock) -> None:
    """On every replica, until what is left of their checkpoint came back."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE)
        await sent(made, master, 3)
        first = master.broker.journal.messages.queue(b"T", 0)
        assert first is not None
        await pop(master, [2], 20_000)
        await pop(master, [1], 40_000)
        await trio.sleep(2)
        parts = [node.broker.parts[RevivePart] for node in (master, *others)]
        assert [part.keeps_from() for part in parts] == 3 * [first.entry(1)[0]]
        slave = others[0]
        await slave.stop()
        await slave.start()
        await trio.sleep(5)
        assert slave.broker.parts[RevivePart].keeps_from() == first.entry(1)[0], "a file says so, or the log"
        await trio.sleep(25)
        assert parts[0].keeps_from() == first.entry(1)[0]
        await until(lambda: len(bodies(master)) == 2)
        await trio.sleep(90)
        for node in (master, *others):
            assert node.broker.parts[RevivePart].keeps_from() is None


def test_the_first_message_of_each_queue_is_retained_until_its_time() -> None:
    retained = Retained({}, "b")

    def told(unique: str, due_ms: int, tag: str = "ck", **more: str) -> None:
        values = {"TAGS": tag, "UNIQ_KEY": unique, "TIMER_OUT_MS": str(due_ms), **more}
        retained.hear(outline(encoded(Message(b"W", b"x", properties=encode_properties(values)), 0, 0, 5)))

    told("T@0@7@G@5@b@ck", 25_000)
    told("T@0@9@G@5@b@ck", 5_000)
    told("T@0@8@G@5@b@ck", 26_000)
    told("U@3@1@G@5@b@ck", 5_000)
    for unique, tag in (("T@0@1@G@5@b@ack", "ack"), ("T@0@1", "ck"), ("T@x@1@G@5@b@ck", "ck"),
                        ("T@-1@1@G@5@b@ck", "ck")):
        told(unique, 5_000, tag)
    told("T@0@1@G@5@b@ck", 1 << 60)
    told("T@0@1@G@5@other@ck", 5_000)
    told("T@0@1@G@5@b@ck", 5_000, __QUORATE_TIMER="77")
    assert retained.firsts() == {("T", 0): 7, ("U", 3): 1}
    assert Retained(retained.steps, "b").firsts() == retained.firsts()
    retained.pass_to(29_999)
    assert retained.firsts() == {("T", 0): 7}
    retained.pass_to(30_000)
    assert retained.firsts() == {}


@pytest.mark.parametrize("keys", [{"timerMaxDelaySec": str(30 * 86_400)}, {"brokerName": "eu@a"}])
async def test_whatever_the_longest_delay_and_the_brokers_name_messages_are_retained(
        autojump_clock: MockClock, keys: dict[str, str]) -> None:
    async with cluster() as made:
        node = await made.node(**keys)
        await sent(made, node, 3)
        popper, part = Popper(made), node.broker.parts[RevivePart]
        day_ms = 86_400_000
        asked = await popper.ask(node, queue=0, invisible_ms=29 * day_ms if "timerMaxDelaySec" in keys else day_ms)
        assert asked.code == 0
        await until(lambda: part._retained.firsts() == {("T", 0): 0})
        assert part.keeps_from() == 0


def test_who_claims_to_have_come_back_must_be_the_same_message() -> None:
    done = {0: -1}
    revived = Revived(lambda number: done[number])

    def told(at: int, place: str, *, topic: bytes = b"R", unique: str = "U") -> Message:
        message = Message(topic, b"x", properties=encode_properties({"__QUORATE_REVIVED": place, "UNIQ_KEY": unique}))
        revived.hear(outline(encoded(message, 0, at, 5)))
        return message

    first = told(1_000, "0 5 7")
    assert revived.has(0, 5, 7, first) and not revived.has(0, 5, 8, first)
    assert not revived.has(0, 5, 7, Message(b"other", b"x", properties=first.properties))
    for text in ("", "0 5", "0 5 7 9", "a b c", "0 5 x"):
        told(1_100, text)
    assert len(revived) == 1 and revived.begins(9_000) == 1_000
    told(1_200, "0 9 1", unique="V")
    revived.cut(1_200)
    assert len(revived) == 1
    told(1_200, "0 9 1", unique="V")
    done[0] = 5
    revived.forget()
    assert len(revived) == 1 and revived.begins(9_000) == 1_200
    told(1_300, "0 5 7")
    assert len(revived) == 1, "the offset has passed it"
    done[0] = 9
    revived.forget()
    assert len(revived) == 0 and revived.begins(9_000) == 9_000
    assert revived.has(0, 5, 7, first), "a later master's copy of the offset may be older"
    revived.cut(1_300)
    assert not revived.has(0, 5, 7, first), "what was heard last is gone"


def test_another_message_with_the_same_mark_does_not_take_its_place() -> None:
    revived = Revived(lambda number: -1)
    properties = encode_properties({"__QUORATE_REVIVED": "0 5 7", "UNIQ_KEY": "U"})
    message, other = (Message(topic, b"x", properties=properties) for topic in (b"R", b"other"))
    for at, each in ((1_000, message), (1_100, other)):
        revived.hear(outline(encoded(each, 0, at, 5)))
    assert revived.has(0, 5, 7, message)
    revived.cut(1_100)
    assert revived.has(0, 5, 7, message) and not revived.has(0, 5, 7, other)


def test_of_those_that_the_offset_has_passed_the_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returning, "PASSED_MAX", 2)
    revived, messages = Revived(lambda number: 9), list[Message]()
    for place in range(4):
        messages.append(Message(b"R", b"x", properties=encode_properties({"__QUORATE_REVIVED": f"0 {place} 0"})))
        revived.hear(outline(encoded(messages[-1], 0, 1_000 + 100 * place, 5)))
    assert [revived.has(0, place, 0, message) for place, message in enumerate(messages)] == [False, False, True, True]
    revived.cut(1_300)
    assert [revived.has(0, place, 0, message) for place, message in enumerate(messages)] == [False, False, True, False]


def test_a_checkpoint_of_java_is_read() -> None:
    found = CheckPoint.from_json(
        b'{"bm":0,"bn":"brk","c":"G1","d":[0,1,5],"it":60000,"n":3,"pt":1700000000000,"q":2,"reviveTime":1700000060000,'
        b'"ro":0,"rp":"2","so":100,"sp":true,"t":"T1"}')
    assert found.offsets == [100, 101, 105] and found.re_puts == "2" and found.suspend
