"""Clients that delay messages, decide transactions and commit offsets, at the master that name servers list.

They know what they were told, and judge nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from broker.consumers.members import Member
from broker.consumers.part import ClientsPart
from broker.ha.acks import PutStatus
from broker.properties import DELAY, TRAN_MSG, UNIQ_KEY, write
from broker.puts import PutResult
from broker.rules import Draft
from broker.store.writing import Put
from broker.timer.admission import DELIVER_MS
from broker.transactions import records
from harness.simulation.brokers.acting.wire import Requester, ask_broker
from harness.simulation.brokers.client import E_PUT, PATIENCE_NS
from harness.simulation.brokers.plan import DELAYS_MS
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.headers.pulling import UpdateConsumerOffsetRequest
from remoting.headers.transactions import CheckTransactionStateRequest, EndTransactionRequest
from remoting.record import COMMIT, PREPARED, ROLLBACK, Message

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.machine import MemberProcess
    from harness.simulation.brokers.acting.scene import ActingScene
    from harness.simulation.brokers.acting.watch import Offsets

PRODUCERS: Final = "p"
CONSUMERS: Final = "G"
TIMER_LEVEL: Final = 0
LATEST: Final = 30
"""Transactions that a client may decide again."""
HURRY_NS: Final = 2 * MS
"""Interval of commits of offsets while a master reads its slaves' ledgers."""


@attrs.define
class Delayed:
    """A delayed message, or a timer (level 0), and what is known of it."""

    number: int
    level: int
    body: bytes
    due_ms: int
    status: PutStatus | None = None
    """None: nobody knows what became of it."""
    waits: bool = False
    """It was seen to wait."""
    held_by: set[str] = attrs.field(factory=set)
    """Machines that have seen it wait."""
    copies: int = 0


@attrs.define
class Decided:
    """A transaction, and what is known of it."""

    number: int
    body: bytes
    end: int
    status: PutStatus | None = None
    half: Put | None = None
    """Where its half is; None: nobody was told."""
    said: set[int] = attrs.field(factory=set)
    done: set[int] = attrs.field(factory=set)
    """The decisions that brokers report, as system flags."""
    in_place: bool = False
    """A slave decided it in its master's place."""
    apart: bool = False
    """Two brokers decided it otherwise, as the second one could not know of the first."""
    finals: int = 0
    rolled_back: bool = False


class Client:
    """Acts at moments, by chance."""

    def __init__(self, town: ActingScene, acts: Stream) -> None:
        self._town, self._acts = town, acts
        town.after(town.plan.act_ns, self._act)

    def _act(self) -> None:
        if self._town.over:
            return
        self._town.after(self._town.plan.act_ns, self._act)
        act = self._acts.draw(None, self._an_act)
        if act is not None:
            self._do(act)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        raise NotImplementedError

    def _do(self, act: list[Value]) -> None:
        raise NotImplementedError

    def _put(self, draft: Draft, body: bytes, then: Callable[[PutResult | None], None]) -> None:
        """Put at the first group's master, if it runs; ``then`` gets None if the outcome is unknown."""
        town, host = self._town, self._town.groups[0].members[0]
        done = [False]

        def once(result: PutResult | None) -> None:
            if not done[0]:
                done[0] = True
                then(result)

        def put() -> None:
            process = host.member
            if process is None or not process.opened:
                town.reply(host, lambda: once(PutResult(PutStatus.SERVICE_NOT_AVAILABLE)))
                return
            host.do(process, E_PUT, lambda: self._put_at(
                process, draft, body, lambda result: town.reply(host, lambda: once(result))))

        town.to_broker(host, put)
        town.after(PATIENCE_NS, lambda: once(None))

    def _put_at(self, process: MemberProcess, draft: Draft, body: bytes, done: Callable[[PutResult], None]) -> None:
        stop = process.rules.stops(draft)
        if stop is not None:
            done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE))
            return
        process.puts.put([Message(
            draft.topic.encode(), body, draft.queue_id, write(draft.properties), sys_flag=draft.sys_flag,
            born_time_ms=self._town.wall_ms)], done)


class DelayedSender(Client):
    """Sends messages of all levels, and timers."""

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.5:
            return None
        level = int(chance() * (len(DELAYS_MS) + 1))
        return [level, int(200 + chance() ** 2 * 8_000), int(chance() * 12), int(8 + chance() * 60)]

    def _do(self, act: list[Value]) -> None:
        level, delay_ms, queue, size = act
        town, known = self._town, self._town.delayed
        number = len(known)
        sent = Delayed(number, level, f"{number}.".encode().ljust(size, b"."), town.wall_ms + delay_ms)
        known.append(sent)
        properties = {UNIQ_KEY: str(number)} | (
            {DELIVER_MS: str(sent.due_ms)} if level == TIMER_LEVEL else {DELAY: str(level)})
        self._put(Draft("D", queue % town.plan.queues, properties), sent.body, lambda result: self._sent(sent, result))

    def _sent(self, sent: Delayed, result: PutResult | None) -> None:
        sent.status = None if result is None else result.status
        self._town.counts["delayed acknowledged"] += sent.status is PutStatus.PUT_OK


class Decider(Client):
    """Tells brokers how transactions end."""

    def _say(self, begun: Decided, end: int, half: Put) -> None:
        begun.said.add(end)
        command = request(RequestCode.END_TRANSACTION, EndTransactionRequest(
            PRODUCERS, half.queue_offset, half.offset, end, transaction_id=f"t{begun.number}"))

        def answered(result: Any) -> None:
            if isinstance(result, Command) and result.code == ResponseCode.SUCCESS:
                self._town.judge.decided(begun, end)

        self._town.ask(self._town.groups[0], command, answered)


class TransactionDecider(Decider):
    """Begins transactions, and decides them soon, or when the master may be away."""

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.25:
            return None
        return [(COMMIT, COMMIT, ROLLBACK)[int(chance() * 3)], int(8 + chance() * 60),
                int(chance() ** 2 * 8_000) if chance() < 0.8 else -1, int(chance() * 3_000) if chance() < 0.2 else 0]

    def _do(self, act: list[Value]) -> None:
        end, size, says_ms, contrary_ms = act
        town, known = self._town, self._town.decided
        number = len(known)
        begun = Decided(number, f"{number}.".encode().ljust(size, b"."), end)
        known.append(begun)

        def sent(result: PutResult | None) -> None:
            begun.status = None if result is None else result.status
            if result is None or begun.status is not PutStatus.PUT_OK or not result.puts:
                return
            half = begun.half = result.puts[0]
            if says_ms >= 0:
                town.after(says_ms * MS, lambda: self._say(begun, end, half))
                if contrary_ms:
                    town.after((says_ms + contrary_ms) * MS, lambda: self._say(
                        begun, ROLLBACK if end == COMMIT else COMMIT, half))

        self._put(Draft("X", 0, {TRAN_MSG: "true", records.GROUP: PRODUCERS, UNIQ_KEY: f"t{number}"},
                        sys_flag=PREPARED), begun.body, sent)


class Contradicter(Decider):
    """Says both ends of a transaction within a moment, whether it is decided already or not."""

    def _an_act(self, chance: Chance) -> list[Value] | None:
        if chance() >= 0.1:
            return None
        return [int(chance() * LATEST), (COMMIT, ROLLBACK)[int(chance() * 2)], int(chance() ** 2 * 20_000)]

    def _do(self, act: list[Value]) -> None:
        back, end, apart_us = act
        stored = [(begun, half) for begun in self._town.decided[-LATEST:] if (half := begun.half) is not None]
        if stored:
            begun, half = stored[-1 - back % len(stored)]
            self._say(begun, end, half)
            self._town.after(apart_us * MS // 1_000, lambda: self._say(
                begun, ROLLBACK if end == COMMIT else COMMIT, half))


class CheckedProducer(Requester):
    """The producer's connection to one run of a broker: it says how a transaction ended when it is asked (39)."""

    def __init__(self, process: MemberProcess) -> None:
        super().__init__("10.8.0.1:2", _nothing)
        self._process, self._town = process, process.town
        process.parts[ClientsPart].producers.register(PRODUCERS, Member(
            self.as_connection(), "c", 0, 500, process.now))

    def send(self, command: Command) -> None:
        asked, town, host = CheckTransactionStateRequest.from_ext(command.ext), self._town, self._process.host
        assert asked.transaction_id is not None
        begun = town.decided[int(asked.transaction_id[1:])]
        town.counts["producer asked"] += 1
        town.counts["producer asked in the master's place"] += not self._process.is_master

        def answered(result: Any) -> None:
            if isinstance(result, Command) and result.code == ResponseCode.SUCCESS:
                town.judge.decided(begun, begun.end)

        def heard() -> None:
            begun.said.add(begun.end)
            answer = request(RequestCode.END_TRANSACTION, EndTransactionRequest(
                PRODUCERS, asked.tran_state_table_offset, asked.commit_log_offset, begun.end,
                from_transaction_check=True, transaction_id=asked.transaction_id))
            town.to_broker(host, lambda: ask_broker(host, self.peer, answer, lambda result: town.reply(
                host, lambda: answered(result))))

        town.reply(host, heard)


class OffsetClient(Client):
    """Commits where a group is in a queue, mostly further on, one after the other."""

    def __init__(self, town: ActingScene, acts: Stream, hurried: Stream, offsets: Offsets) -> None:
        super().__init__(town, acts)
        self._hurried, self._offsets = hurried, offsets
        self._under_way: set[int] = set()

    def hurry(self) -> None:
        """Commit while a master reads its slaves' ledgers."""
        for place in range(10):
            self._town.after(place * HURRY_NS, self._hurry)

    def _hurry(self) -> None:
        act = None if self._town.over else self._hurried.draw(None, self._an_act)
        if act is not None:
            self._do(act)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        return [int(chance() * 12), chance()] if chance() < 0.5 else None

    def _do(self, act: list[Value]) -> None:
        queue, share = act[0] % self._town.plan.queues, act[1]
        town = self._town
        host = town.listed(town.groups[0])
        process = None if host is None else host.member
        if host is None or process is None or not process.opened or queue in self._under_way:
            return
        end = process.journal.messages.max_offset(b"T", queue)
        offset = max(0, min(end, self._offsets.last(queue) + 1)) if share < 0.8 else int(share * end)
        self._under_way.add(queue)
        self._offsets.asks(queue, offset)
        alone = town.groups[0].leader is None
        done = [False]

        def over(result: Any) -> None:
            if done[0]:
                return
            done[0] = True
            self._under_way.discard(queue)
            if isinstance(result, Command) and result.code == ResponseCode.SUCCESS:
                self._offsets.committed(queue, offset, process, alone=alone)

        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
            CONSUMERS, "T", queue, offset))
        town.to_broker(host, lambda: ask_broker(host, "10.8.0.1:3", command, lambda result: town.reply(
            host, lambda: over(result))))
        town.after(PATIENCE_NS, lambda: over(None))


def _nothing(command: Command) -> None:
    """Ignore the request: the client learns the outcome elsewhere."""
