"""The shipped parts of one run of a broker, on virtual time, with the simulated disk and network.

Turns here replace the tasks and requests of ``broker.server``, ``broker.roles`` and ``broker.tablecopies``, in the same
order. ``KINDS`` maps features of the plan to parts; this module knows nothing else of a part's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from broker.consumers.part import ClientsPart
from broker.filters.part import FiltersPart
from broker.groups.part import GroupsPart
from broker.ha.taking import Become, BecomeMaster
from broker.offsets.part import OffsetsPart
from broker.part import PartClass, Parts, QueuesOf, Shared
from broker.parts import PARTS, configuration, parts_of
from broker.pop.changes import CallsBack
from broker.pop.part import PopPart
from broker.properties import DELAY
from broker.pulling.part import PullingPart
from broker.rules import Chain, rule
from broker.schedule.part import DelaysPart
from broker.sending.chains import delay_level_is_read
from broker.standing import MASTER_ID, Role, Standing
from broker.tablecopies import TableCopies
from broker.tablefile import PAUSE_AFTER_FAILURE_S, RunSync, TableFile
from broker.timer.flush import TimerFlush
from broker.timer.part import TimersPart
from broker.topics.part import TopicsPart
from broker.transactions.feeding import PATH as OPEN_TRANSACTIONS
from broker.transactions.part import HalvesPart, TransactionsPart
from harness.simulation.brokers.plan import DELAYS_MS, TIMER_MS
from harness.simulation.brokers.tasks import Tasks, TurnBell
from harness.simulation.brokers.transactions import ProducerConnection
from raft.config import MS
from remoting.body import Body
from remoting.client import Client
from remoting.codes import ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.errors import BodyError

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess

(E_TABLE, E_COPY) = range(60, 62)
BEAT_NS: Final = 150 * MS
"""Time until a producer has found a new master."""
COPY_TIMEOUT_NS: Final = 1_500 * MS


class SmallWheel(TimersPart):
    """A timer wheel of two minutes: writing one of two weeks takes longer than a seed."""

    slots = 1_200


POPS: Final[tuple[PartClass, ...]] = (
    TopicsPart, GroupsPart, FiltersPart, ClientsPart, OffsetsPart, SmallWheel, PullingPart, *(
        kind for kind in PARTS if getattr(kind, "__module__", "").startswith("broker.pop.")))
KINDS: Final[Mapping[str, tuple[PartClass, ...]]] = {
    "delays": (TopicsPart, DelaysPart), "timers": (TopicsPart, SmallWheel),
    "transactions": (
        TopicsPart, GroupsPart, FiltersPart, ClientsPart, OffsetsPart, HalvesPart, TransactionsPart),
    "pops": POPS, "deletions": POPS}
"""Feature -> its parts, with those that they use."""
ORDER: Final[Sequence[PartClass]] = [SmallWheel if kind is TimersPart else kind for kind in PARTS]
KEYS: Final[Mapping[PartClass, Mapping[str, Any]]] = {
    SmallWheel: {"timer_precision_ms": TIMER_MS, "timer_roll_window_slot": 20, "recall_message_enable": True,
                 "mapped_file_size_timer_log": 1 << 12},
    TransactionsPart: {"transaction_time_out": 400, "transaction_check_interval": 700,
                       "transaction_op_batch_interval": 500},
    PopPart: {"pop_from_retry_probability": 50}}
NOBODY: Final = cast(Connection, None)
"""Stands for a slave's connection: no part uses the connection of a table request."""
NO_TASK: Final = cast(RunSync, None)
"""Stands for the task that writes tables: here turns write them."""
NO_ROUTE: Final = cast(QueuesOf, None)
"""Stands for routes: no part asks for one here."""
POP_TOPIC: Final = "P"
TIMER_TOPIC: Final = "W"
"""Destination of timers. It exists as a topic, since a recall asks for it."""


class TurnedTable(TableFile):
    """A table's file, written in turns: one reads the table, a later one writes it to the disk."""

    _under_way = False
    _error: OSError | None = None
    """Of the last attempt."""

    def begin(self, process: BrokerProcess) -> None:
        self.process, self._tasks, self._hurry = process, Tasks(process), TurnBell(process)

    def changed(self) -> None:
        super().changed()
        if not self._under_way:
            self._under_way = True
            self.process.later(0, E_TABLE, self._begin)

    def _begin(self) -> None:
        version, table = self._version, self._table()
        late = self.process.host.disk.late_ns
        self.process.later(MS + late, E_TABLE, lambda: self._end(version, table))

    def _end(self, version: int, table: Body) -> None:
        self._error = None
        try:
            self._save(table)
        except OSError as error:
            self._error = error
        else:
            self._written = version
        for call in self._due(version):
            call()
        self._under_way = self._written < self._version
        if self._under_way:
            self._tasks.start_soon(self._pause)

    async def _pause(self) -> None:
        if self._error is not None:
            await self._tasks.sleep(PAUSE_AFTER_FAILURE_S)
        else:
            assert isinstance(self._hurry, TurnBell)
            await self._hurry.wait_for(self._pause_ms * MS)
        self._begin()

    async def saved(self) -> None:
        wanted = self._version
        if self._written < wanted:
            self._hurry.ring()
            await self._tasks.later(self.when_saved)
            if self._written < wanted and self._error is not None:
                raise self._error


class TurnedFlush:
    """Writes wheel and timer log a step at a time, as ``TimersPart.run`` does in a thread."""

    def __init__(self, process: BrokerProcess, part: TimersPart) -> None:
        self._process, self._part, self._store = process, part, part._store
        self._later(process.scene.plan.save_ms * MS, self._begin)

    def _later(self, delay_ns: int, call: Callable[[], None]) -> None:
        self._process.later(delay_ns, E_TABLE, call)

    def _begin(self) -> None:
        try:
            flush = self._store.begin_flush() if self._store.is_unflushed else None
        except OSError:
            flush = None
        if flush is None:
            self._later(self._process.scene.plan.save_ms * MS, self._begin)
        else:
            self._step(flush, flush.steps())

    def _step(self, flush: TimerFlush, steps: Iterator[None]) -> None:
        try:
            more = next(steps, steps) is not steps
        except OSError:
            more = False
        if more:
            self._later(MS + self._process.host.disk.late_ns, lambda: self._step(flush, steps))
        else:
            self._store.end_flush(flush)
            self._later(self._process.scene.plan.save_ms * MS, self._begin)


@attrs.frozen(kw_only=True)
class _Shared(Shared):
    process: BrokerProcess

    def table_file(self, table: Callable[[], Body], *, path: str = "", pause_ms: int = 0) -> TableFile:
        if path == OPEN_TRANSACTIONS:  # longer pauses hide lost decisions in short seeds
            pause_ms = min(pause_ms, self.process.scene.plan.save_ms)
        made = TurnedTable(self.files, table, self.run_sync, path=path, pause_ms=pause_ms)
        made.begin(self.process)
        return made


class Features:
    """The parts of one run. Needs its puts and journal; the role calls ``taken`` and ``left``."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process, self.scene = process, process.scene
        plan, host, key = self.scene.plan, process.host, self.scene.key
        wanted = {kind for name in plan.features for kind in KINDS[name]}
        kinds = [kind for kind in ORDER if kind in wanted]
        keys = {name: value for kind in kinds for name, value in KEYS.get(kind, {}).items()}
        if TransactionsPart in wanted:
            keys["transaction_check_max"] = plan.checks_max
        self.standing = Standing(key.cluster, key.name, host.address, Role.vacant(MASTER_ID))
        self.parts: Parts = parts_of(_Shared(
            config=configuration(kinds)(
                broker_cluster_name=key.cluster, broker_name=key.name,
                message_delay_level=" ".join(f"{delay // 1_000}s" for delay in DELAYS_MS),
                flush_delay_offset_interval=plan.save_ms, broker_ip1=f"10.0.0.{host.number + 1}", **keys),
            files=host.files, journal=process.journal, puts=process.puts, standing=self.standing,
            rng=Random(f"{host.name}.{host.life}"), now_ns=lambda: host.now,
            wall_ms=lambda: self.scene.wall_ms, run_sync=NO_TASK, queues_of=NO_ROUTE, process=process), kinds)
        self.rules = Chain(rule(delay_level_is_read, DELAY), *(each for part in self.parts for each in part.rules()))
        """The rules that a client's message passes."""
        self.handlers = self.parts.handlers()
        if PopPart in kinds:
            self.parts[PopPart].changes.in_time = self._in_time
        self._codes = [*(table.code for table in self.parts.tables()), *self.parts.copies()]
        self._copies = TableCopies.of(self.parts, process.journal, cast(Client, None))
        self.parts.add(self._copies)
        self.producer = ProducerConnection(process)
        self.opened = 0
        """Number of times that writes opened."""
        self._round = 0
        """Number of the role: table copies of an earlier one are ignored."""
        self._wheel = SmallWheel in wanted

    def begin(self) -> None:
        """Begin, as the last step of a start."""
        self.parts.tick(self.process.now)
        if self._wheel:
            TurnedFlush(self.process, self.parts[SmallWheel])

    async def _in_time(self, calls_back: CallsBack) -> bool:
        """Twin of POP's wait before a reset or a deletion is answered, without its limit of time."""
        await Tasks(self.process).later(calls_back)
        return True

    def writes_opened(self) -> None:
        self.opened += 1
        self.parts.writes_opened()
        if "timers" in self.scene.plan.features:
            self.parts[TopicsPart].table.create_if_absent(TIMER_TOPIC, self.scene.plan.queues)
        if "pops" in self.scene.plan.features:
            self.parts[TopicsPart].table.create_if_absent(POP_TOPIC, self.scene.plan.queues)
        if "transactions" in self.scene.plan.features:
            self.process.later(BEAT_NS, E_COPY, lambda: self.producer.connect(self.parts[ClientsPart]))

    # --- the role, as ``broker.roles`` -----------------------------------------------------------------------

    def taken(self, role: Become) -> None:
        broker_id = self.process.member.manager.broker_id
        assert broker_id is not None, "registered"
        if isinstance(role, BecomeMaster):
            self._be(Role.master(role.epoch))
            for judge in self.scene.watch.judges:
                judge.leads(self.process)
        else:
            self._be(Role.slave(broker_id, role.epoch, role.master_address))

    def left(self) -> None:
        former = self.standing.role
        self._be(Role.vacant(former.broker_id, former.epoch))

    def _be(self, role: Role) -> None:
        before, self.standing.role = self.standing.role.master_address, role
        self.parts.role_changed(role)
        if role.master_address != before:
            self._round += 1
            if role.master_address and self._codes:
                self._copy(self._round, role.master_address)

    # --- tables, as ``broker.tablecopies`` -------------------------------------------------------------------

    def _copy(self, round_: int, master: str) -> None:
        """Copy each table of the master, at each ``copy_ms``."""
        if round_ != self._round:
            return
        self.process.later(self.scene.plan.copy_ms * MS, E_COPY, lambda: self._copy(round_, master))
        for code in self._codes:
            self._ask(round_, master, code)

    def _ask(self, round_: int, master: str, code: int) -> None:
        host, other = self.process.host, self.scene.host_at(master)
        asked_ns = self.process.now

        def asked() -> None:
            there = other.process
            if there is not None and there.features is not None:
                answer = there.features.handlers[code](NOBODY, request(code))
                if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
                    end = there.journal.end
                    self.scene.send(other, host, "copy", lambda: host.do(
                        self.process, E_COPY, lambda: answered(answer.body, end)))

        def answered(body: bytes, end: int) -> None:
            if round_ == self._round and self.process.now - asked_ns < COPY_TIMEOUT_NS:
                self.scene.counts["table copied"] += 1
                try:
                    self._copies.take(code, body, end)
                except BodyError as error:
                    self.scene.found(error)

        self.scene.send(host, other, "copy", lambda: other.do(other.process, E_COPY, asked))
