"""Keys of timers at whole brokers: what each of them does, and that a change of a live one counts at once."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, three, until, wall_ms
from remoting.codes import RequestCode, ResponseCode
from tests.broker.timer.test_timers import bodies, good, recall, records, send


async def told(made: Cluster, node: Node, line: str) -> None:
    """Change a key, as an operator does."""
    answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def pending(node: Node) -> int:
    return node.broker.parts[TimersPart]._store.pending


async def test_with_a_shorter_slot_a_timer_comes_sooner_behind_its_time(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerPrecisionMs="100")
        due_ms = wall_ms() // 1_000 * 1_000 + 5_330
        await good(made, node, TIMER_DELIVER_MS=due_ms)
        await until(lambda: bodies(node) == [b"x"])
        assert due_ms <= records(node)[0].store_time_ms <= due_ms + 200


async def test_how_far_a_timer_may_be_is_what_the_key_says_now(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerMaxDelaySec="10")
        assert (await send(made, node, TIMER_DELAY_SEC=11)).code == ResponseCode.MESSAGE_ILLEGAL
        await told(made, node, "timerMaxDelaySec=11")
        await good(made, node, TIMER_DELAY_SEC=11)


async def test_a_full_slot_takes_no_more_until_the_key_says_so(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerCongestNumEachSlot="2")
        due_ms, taken = wall_ms() + 600_000, 0
        for number in range(60):
            answer = await send(made, node, uniq=f"U{number}", TIMER_DELIVER_MS=due_ms)
            if answer.code == ResponseCode.SUCCESS:
                taken += 1
                await until(lambda: pending(node) == taken)  # noqa: B023
            else:
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert (answer.remark or "").startswith("timer message is under flow control, max num limit is 4")
        assert taken == 4, "twice as many as the key says at most"
        await good(made, node, uniq="another slot", TIMER_DELIVER_MS=due_ms + 5_000)
        await told(made, node, "timerCongestNumEachSlot=100")
        await good(made, node, uniq="more", TIMER_DELIVER_MS=due_ms)


async def test_timers_in_the_wheel_come_while_others_wait_in_their_queue(autojump_clock: MockClock) -> None:
    """``timerStopEnqueue`` of a broker that runs holds back what comes from then on."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, b"in the wheel", "U1", TIMER_DELAY_SEC=5)
        await until(lambda: pending(node) == 1)
        await told(made, node, "timerStopEnqueue=true")
        await good(made, node, b"in the queue", "U2", TIMER_DELAY_SEC=2)
        await trio.sleep(20)
        assert bodies(node) == [b"in the wheel"]
        await told(made, node, "timerStopEnqueue=false")
        await until(lambda: bodies(node) == [b"in the wheel", b"in the queue"], within_s=2)


async def test_who_starts_without_filling_its_wheel_delivers_nothing(autojump_clock: MockClock) -> None:
    """The queue may hold what takes timers back."""
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true")
        kept = await good(made, node, TIMER_DELAY_SEC=20)
        await until(lambda: pending(node) == 1)
        await told(made, node, "timerStopEnqueue=true")
        assert (await recall(made, node, kept.ext["recallHandle"])).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        await node.stop()
        node.settings["timerStopEnqueue"] = "true"
        await node.start()
        await trio.sleep(30)
        part = node.broker.parts[TimersPart]
        assert (bodies(node), part.runtime_info()["timerWaitsFor"]) == ([], "timerStopEnqueue is true")
        await told(made, node, "timerStopEnqueue=false")
        await trio.sleep(20)
        assert (bodies(node), part.counters.recalled) == ([], 1)


async def test_timers_come_into_the_wheel_and_stay_there_while_none_is_delivered(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerStopDequeue="true")
        await good(made, node, TIMER_DELAY_SEC=2)
        await trio.sleep(20)
        assert (pending(node), bodies(node)) == (1, [])
        await told(made, node, "timerStopDequeue=false")
        await until(lambda: bodies(node) == [b"x"], within_s=2)


async def test_who_may_take_timers_back_is_what_the_key_says_now(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        handle = (await good(made, node, TIMER_DELAY_SEC=100)).ext["recallHandle"]
        for line, code in (("recallMessageEnable=true", ResponseCode.SUCCESS),
                           ("recallMessageEnable=false", ResponseCode.NO_PERMISSION)):
            await told(made, node, line)
            assert (await recall(made, node, handle)).code == code


async def test_only_a_master_that_takes_writes_takes_a_timer_back(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, slave, _ = await three(made, recallMessageEnable="true")
        handle = (await good(made, master, TIMER_DELAY_SEC=100)).ext["recallHandle"]
        refused = await recall(made, slave, handle)
        words = "recall failed, broker service not available"
        assert (refused.code, refused.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, words)
        master.broker.puts.fence("its writes are closed")
        refused = await recall(made, master, handle)
        assert (refused.code, refused.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, words)


async def test_there_is_no_other_engine_to_switch_to(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        refused = await made.ask(node.address, RequestCode.SWITCH_TIMER_ENGINE)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, (
            "this broker has one timer engine, the timer wheel, and cannot switch to another"))
