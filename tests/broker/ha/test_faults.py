"""Three replicas and a controller that is one compare-and-set, under faults drawn from a seed, then healed.

Connections are cut, hang and delay, processes are killed and come back, power fails, masters are elected while the old
one lives on, answers of the controller are lost. Nothing acknowledged may be lost, nothing seen may change, and in the
end all logs are the same, byte for byte.
"""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.journal import FlushDiskType
from broker.puts import PutResult
from remoting.record import decode
from tests.broker.ha.group import Broker, Net, group


@attrs.define(eq=False)
class World:
    net: Net
    brokers: list[Broker]
    rng: random.Random
    power_fails: bool
    master: Broker = attrs.field(init=False)
    epoch: int = 0
    accepted: frozenset[int] = frozenset()
    set_epoch: int = 0
    requests: int = 0
    sent: list[tuple[bytes, list[PutResult]]] = attrs.field(factory=list)
    seen: dict[tuple[int, int], bytes] = attrs.field(factory=dict)
    happened: set[str] = attrs.field(factory=set)

    # --- the controller --------------------------------------------------------------------------------------

    async def elect(self, new: Broker) -> None:
        old = None if self.epoch == 0 else self.master
        self.epoch, self.set_epoch, self.accepted, self.master = (
            self.epoch + 1, self.set_epoch + 1, frozenset({new.id}), new)
        await new.lead(self.epoch, {new.id}, self.set_epoch)
        self.check()
        if old is not None and old is not new and old.running and self.rng.random() < 0.5:
            self.happened.add("two masters")
            self.put(old)
            await trio.sleep(self.rng.random() * 2)
        for broker in self.rng.sample(self.brokers, 3):
            if broker is not new and broker.running:
                await broker.follow(new, self.epoch)
                await trio.sleep(self.rng.random() * 0.1)

    def alter(self, broker: Broker) -> None:
        held = broker.switch.in_sync
        if held is None:
            return
        now_ns = broker.journal.now_ns()
        members = held.wanted(now_ns)
        if members is None:
            return
        self.requests += 1
        held.ask(self.requests, members, now_ns)
        if self.rng.random() < 0.15:
            self.happened.add("request lost")
            return
        epoch = held.accepted_epoch
        good = broker is self.master and epoch == self.set_epoch and all(
            each.running for each in self.brokers if each.id in members)
        if good:
            self.accepted, self.set_epoch = members, self.set_epoch + 1
        if self.rng.random() < 0.15:
            self.happened.add("answer lost")
        elif good:
            held.accept(members, self.set_epoch)
        else:
            held.refused(self.requests, now_ns, epoch_stands=broker is self.master and epoch == self.set_epoch)
        broker.switch.advance()

    def poll(self) -> None:
        held = self.master.switch.in_sync
        if held is not None:
            held.accept(self.accepted, self.set_epoch)
            self.master.switch.advance()

    # --- faults ----------------------------------------------------------------------------------------------

    def put(self, broker: Broker) -> None:
        for _ in range(self.rng.randrange(1, 9)):
            body = b"%d of %d " % (len(self.sent), broker.id) * self.rng.randrange(1, 60)
            self.sent.append((body, broker.put(body, self.rng.randrange(2))))

    async def kill(self, broker: Broker) -> None:
        await broker.stop()
        power = self.power_fails and self.rng.random() < 0.5
        if power:
            self.happened.add("power cut")
            broker.files.crash(lambda size: self.rng.randrange(size + 1))
        if broker is not self.master:
            await trio.sleep(self.rng.random() * 2)
            await broker.start()
            await broker.follow(self.master, self.epoch)
        elif len(self.accepted) == 1 or (not power and self.rng.random() < 0.3):
            self.happened.add("master back")
            await broker.start()
            if power:
                await self.elect(broker)
            else:
                await broker.lead(self.epoch, set(self.accepted), self.set_epoch)
        else:
            others = [each for each in self.brokers if each is not broker and each.id in self.accepted]
            await self.elect(self.rng.choice(others))
            await broker.start()
            await broker.follow(self.master, self.epoch)

    async def step(self) -> None:
        rng = self.rng
        match rng.choices(("put", "sleep", "alter", "poll", "cut", "hang", "kill", "elect"),
                          (30, 25, 25, 5, 3, 3, 4, 3))[0]:
            case "put":
                self.put(self.master)
            case "alter":
                for broker in self.brokers:
                    if broker.running:
                        self.alter(broker)
            case "poll":
                self.poll()
            case "cut":
                self.net.cut()
            case "hang":
                if self.net.links:
                    rng.choice(self.net.links).hangs = True
            case "kill":
                await self.kill(rng.choice(self.brokers))
            case "elect":
                able = [each for each in self.brokers if each.id in self.accepted]
                await self.elect(rng.choice(able))
        await trio.sleep(rng.choice((0, 0.001, 0.01, 0.1, 0.5)))
        self.check()

    async def heal(self) -> None:
        self.net.rng = None
        self.net.cut()
        for _ in range(40):
            await trio.sleep(1)
            self.poll()
            self.alter(self.master)
        self.check()

    # --- what holds ------------------------------------------------------------------------------------------

    def check(self) -> None:
        log = self.master.log
        for body, results in self.sent:
            if results and results[0].status is PutStatus.PUT_OK:
                (put,) = results[0].puts
                assert decode(log[put.offset:put.offset + put.size]).message.body == body, "B1: acknowledged and lost"
        messages = self.master.journal.messages
        for queue in (0, 1):
            for at in range(messages.min_offset(b"T", queue), messages.max_offset(b"T", queue)):
                (raw,) = messages.get(b"T", queue, at, count=1)
                assert self.seen.setdefault((queue, at), raw) == raw, "B5: seen, and another one later"
        for broker in self.brokers:
            if broker.running:
                both = min(broker.journal.confirm_offset, self.master.journal.confirm_offset)
                assert broker.log[:both] == log[:both], "B2"


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("seed", range(12))
async def test_nothing_acknowledged_is_lost(seed: int, flush: FlushDiskType, autojump_clock: MockClock) -> None:
    rng = random.Random(f"{seed} {flush}")
    async with group(3, rng=rng, flush=flush) as (net, brokers):
        world = World(net, brokers, rng, power_fails=flush is FlushDiskType.SYNC_FLUSH)
        await world.elect(brokers[0])
        for _ in range(60):
            await world.step()
        await world.heal()
        a, b, c = brokers
        assert a.log == b.log == c.log
        assert a.switch.epochs == b.switch.epochs == c.switch.epochs
        assert world.accepted == {1, 2, 3}
        assert [a.visible(queue) for queue in (0, 1)] == [b.visible(queue) for queue in (0, 1)]
        assert sum(a.visible(queue) for queue in (0, 1)) > 0
        assert a.journal.confirm_offset == b.journal.confirm_offset == c.journal.confirm_offset == a.journal.end
        assert max(len(results) for _, results in world.sent) == 1, "a put ends once, or dies with its process"
