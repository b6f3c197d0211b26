"""What consumers see of a new master before it knows what is confirmed: no less than they saw, and nothing to lose."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.store.files import MemoryFiles
from broker.store.tables import SubscriptionGroup
from harness.simulation.worlds.brokers import Cluster, Node, cluster, in_sync, new_master, three, until
from remoting.bodies.consumers import MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.pulling import SUBSCRIPTION, SUSPEND, QueueRequest
from remoting.record import Message
from tests.broker.consumers.world import World, pull, running
from tests.broker.offsets.test_requests import serve as serve_offsets
from tests.broker.query.test_query import serve as serve_positions
from tests.broker.test_acknowledged import TWO
from tests.broker.test_server import bodies, send_all

PULL = RequestCode.PULL_MESSAGE
OK = ResponseCode.SUCCESS


async def young(world: World) -> None:
    """Two messages that are seen, and one behind the veil."""
    world.groups.update([SubscriptionGroup("g")])
    await world.heartbeat("g", "t")
    await world.put("a", "a")
    world.journal.append([Message(b"t", b"behind", 0)])
    await trio.testing.wait_all_tasks_blocked()
    world.journal.veil.fall(world.journal.end)


def confirm(world: World) -> None:
    world.journal.confirm(world.journal.end)


@pytest.mark.parametrize(("offset", "queue"), [(2, 0), (3, 0), (9, 0), (5, 1)])
async def test_a_pull_behind_what_a_young_master_shows_is_sent_nowhere_else(
    autojump_clock: MockClock, offset: int, queue: int,
) -> None:
    async with running() as world:
        await young(world)
        answer = await world.ask(PULL, pull(offset, queue_id=queue, sys_flag=SUBSCRIPTION))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(offset))
        began = trio.current_time()
        answer = await world.ask(PULL, pull(
            offset, queue_id=queue, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=1_000))
        assert trio.current_time() - began >= 1, "held, as at the end of a queue"
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(offset))


@pytest.mark.parametrize(("offset", "code", "behind"), [
    (2, OK, "3"), (9, ResponseCode.PULL_OFFSET_MOVED, "3")], ids=["it is there", "nobody can have seen that"])
async def test_a_pull_that_waits_goes_on_as_the_veil_is_lifted(
    autojump_clock: MockClock, offset: int, code: int, behind: str,
) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        await young(world)
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await world.ask(PULL, pull(
                offset, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=15_000)))

        nursery.start_soon(ask)
        await trio.sleep(1)
        assert not answers
        confirm(world)
        await trio.sleep(0.1)
        assert [(answer.code, answer.ext["nextBeginOffset"]) for answer in answers] == [(code, behind)]


async def test_what_is_before_the_first_message_is_corrected_as_ever(autojump_clock: MockClock) -> None:
    async with running() as world:
        await young(world)
        assert (await world.ask(PULL, pull(0, sys_flag=SUBSCRIPTION))).code == OK
        answer = await world.ask(PULL, pull(-5, sys_flag=SUBSCRIPTION))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


@pytest.mark.parametrize(("code", "more"), [
    (RequestCode.GET_MAX_OFFSET, {}), (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(1 << 60)})])
@pytest.mark.parametrize(("confirmed", "told"), [(False, "2"), (True, "3")])
async def test_a_young_master_is_asked_for_the_end_of_a_queue(
    autojump_clock: MockClock, code: int, more: dict[str, str], confirmed: bool, told: str,
) -> None:
    """It answers when it knows, or with what is seen, before any client gives it up."""
    async with running() as world, trio.open_nursery() as nursery:
        serve_positions(world)
        await young(world)
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await world.ask(code, {"topic": "t", "queueId": "0", **more}))

        nursery.start_soon(ask)
        await trio.sleep(1)
        assert not answers
        if confirmed:
            confirm(world)
        await trio.sleep(0.1 if confirmed else 1.1)
        assert [answer.ext["offset"] for answer in answers] == [told]


@pytest.mark.parametrize(("stored", "asked", "expected"), [
    (3, {"timestamp": "-1"}, 3), (1, {"timestamp": "-1"}, 2), (3, {"timestamp": "0"}, 0),
    (3, {"queueId": "0", "offset": "3"}, 3), (3, {"queueId": "0", "offset": "9"}, 3),
    (3, {"queueId": "0", "offset": "1"}, 1)])
async def test_a_reset_on_a_young_master_takes_nobody_back_unasked(
    autojump_clock: MockClock, stored: int, asked: dict[str, str], expected: int,
) -> None:
    """To the end is where the group is, though the end that is seen is before it."""
    async with running() as world:
        serve_offsets(world)
        await young(world)
        world.offsets.commit("g", "t", 0, stored)
        began = trio.current_time()
        answer = await world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {
            "topic": "t", "group": "g", "timestamp": "0", "isForce": "true", **asked})
        assert trio.current_time() - began == pytest.approx(2)
        assert answer.code == OK and world.offsets.query("g", "t", 0) == expected


@pytest.mark.parametrize(("time", "force", "expected"), [
    ("-1", "true", 3), ("-1", "false", 3), ("0", "true", 0), ("0", "false", 0)])
async def test_nor_does_a_reset_that_clients_carry_out(
    autojump_clock: MockClock, time: str, force: str, expected: int,
) -> None:
    async with running() as world:
        subscribers = serve_offsets(world)
        world.offsets.config = attrs.evolve(world.offsets.config, use_server_side_reset_offset=False)
        await young(world)
        for queue_id in range(4):
            world.offsets.commit("g", "t", queue_id, 0 if queue_id else 3)
        answer = await world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {
            "topic": "t", "group": "g", "timestamp": time, "isForce": force})
        ((offsets, _),) = subscribers.pushed
        assert answer.code == OK and offsets[MessageQueue("t", "b", 0)] == expected


async def failed_over(made: Cluster, **more: str) -> tuple[Node, Callable[[], None]]:
    """Two messages were read of the first master; the next one, which is alone, has heard that the first of them is
    confirmed. What is returned lets the third one find it."""
    master, *others = await three(made, **TWO, **more)
    await send_all(made, master.address, b"one")
    await trio.sleep(1)  # who follows has heard that it is confirmed; and format 2 is in use
    await send_all(made, master.address, b"two")
    assert await bodies(made, master.address) == [b"one", b"two"]
    hidden = {f"{node.host}:10912": made.network.listeners.pop(f"{node.host}:10912") for node in others}
    await master.kill()
    return await new_master(*others), lambda: made.network.listeners.update(hidden)


async def test_what_was_read_of_the_lost_master_is_neither_shown_early_nor_moved(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with cluster(controllers=3) as made:
        second, _ = await failed_over(made)
        assert await bodies(made, second.address) == [b"one"], "the other one is held by all, which it cannot know"
        answer = await made.pull(second.address, 2)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "2")
        end = await made.ask(second.address, RequestCode.GET_MAX_OFFSET, QueueRequest("T", 0))
        assert (end.code, end.ext["offset"]) == (OK, "1")


async def test_a_young_master_shows_all_when_as_many_as_demanded_are_in_sync(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        second, show = await failed_over(made)
        assert second.broker.journal.veil.on
        show()
        await in_sync(second, 1)
        await until(lambda: not second.broker.journal.veil.on)
        assert await bodies(made, second.address) == [b"one", b"two"]
        assert (await made.pull(second.address, 3)).code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_key_has_a_new_master_show_all_at_once_as_javas_do(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        second, _ = await failed_over(made, youngMasterShowsAll="true")
        assert await bodies(made, second.address) == [b"one", b"two"]


async def test_a_replica_that_was_killed_shows_what_it_showed(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not only what its last checkpoint knew."""
    monkeypatch.setattr(MemoryFiles, "crash", lambda self: None)  # its machine keeps its power
    async with cluster(controllers=3) as made:
        master, first, _ = await three(made, **TWO)
        await send_all(made, master.address, b"one", b"two")
        await until(lambda: first.broker.journal.confirm_offset == master.broker.journal.end)
        before = first.broker.journal.confirm_offset
        await first.kill()
        await first.start()
        assert first.broker.journal.confirm_offset == before
