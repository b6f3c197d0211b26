"""The part of POP: wires giving, acknowledging, waiting and progress, and decides when this broker may give."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import trio

from broker.config import BrokerConfig, pick
from broker.groups.part import GroupsPart
from broker.journal import NEVER
from broker.noted import Noted, shows_all
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.pop import progress
from broker.pop.acking import Acking
from broker.pop.chain import Checkpoints
from broker.pop.changes import Changes
from broker.pop.checks import Checks, PopConfig
from broker.pop.keys import PopKeys
from broker.pop.lending import Lending
from broker.pop.notify import Notifying, NotifyingConfig
from broker.pop.ordered import InOrder
from broker.pop.orderlog import OrderPart
from broker.pop.progress import KeptProgress, Key, PopProgress
from broker.pop.records import Records
from broker.pop.requests import Popping, TakingConfig
from broker.pop.waiting import WaitingConfig, WaitingRoom
from broker.pulling.checks import no_group
from broker.pulling.part import PullingPart
from broker.pulling.reading import ReadConfig
from broker.rules import Chain
from broker.standing import Role
from broker.store.errors import WrongStore
from broker.store.files import Files
from broker.store.tables import load
from broker.timer.part import TimersPart
from broker.topics.names import group_fault, popped_from, topic_fault
from broker.topics.part import TopicsPart
from remoting.codes import RequestCode as Code
from remoting.endpoint import Handler
from remoting.record import NOTED

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")

HEARD_STEP: Final = 16 << 20
"""Bytes of the log that the next process may read again."""
SAVED_EVERY_MS: Final = 10_000
READS: Final = "it reads each group's progress in the log"


class PopPart(Part):
    """Serves POP on a master and on an acting slave; every replica follows the groups' progress."""

    keys = PopKeys
    follows: ClassVar[bool] = True
    passed_on: ClassVar[frozenset[int]] = frozenset(map(int, (
        Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION, Code.POLLING_INFO)))

    def __init__(self, shared: Shared, before: Parts) -> None:
        config, journal, topics = shared.config, shared.journal, before[TopicsPart].table
        self._journal, self._log, self._visible, self._veil = journal, journal.log, journal.visible, journal.veil
        self._standing, self._puts, self._messages = shared.standing, shared.puts, journal.messages
        self._topics, self._offsets = topics, before[OffsetsPart].table
        pulling = before[PullingPart].pulling
        self._records = Records(config.broker_cluster_name, config.store_host, shared.wall_ms,
                                Chain(*before[TimersPart].rules()))
        kept = _kept(shared.files, journal.end)
        is_first = kept.log_offset < 0
        if is_first:
            kept = KeptProgress(journal.end)
        self.progress = PopProgress(self._records.topic, kept)
        self.progress.heard = self._is_confirmed
        self.changes = Changes(shared, self.progress, before[OffsetsPart])
        before[OffsetsPart].requests.told = self.changes.told
        self._heard = kept.log_offset
        self.checkpoints = Checkpoints(self._commit)
        self._noted = Noted(journal, self._heard, self.progress.hear, self._cut, flags=NOTED)
        self._file = shared.table_file(self._kept, path=progress.PATH, pause_ms=SAVED_EVERY_MS)
        if is_first:
            self._file.changed()  # the next process must know from which offset on there may be checkpoints
        self.room = WaitingRoom(pick(config, WaitingConfig), journal.arrived, shared.wall_ms)
        self._in_order = InOrder(before[OrderPart].log, self._offsets, self.room, shared.wall_ms)
        self.lending = Lending(
            shared.abroad, self._records, self.checkpoints, self._offsets, shared.standing, shared.puts,
            lambda: shared.right.why_not(shared.now_ns()))
        checks = Checks(pick(config, PopConfig), before[GroupsPart].table, topics)
        self.popping = Popping(
            pick(config, TakingConfig), pick(config, ReadConfig), checks, journal=journal, puts=shared.puts,
            offsets=self._offsets, records=self._records, chain=self.checkpoints, in_order=self._in_order,
            room=self.room, lending=self.lending, standing=shared.standing, rng=shared.rng, ready=self._is_ready,
            gave=pulling.gave, looked=pulling.looked, memory=shared.memory_bytes)
        self.acking = Acking(
            checks, self._records, self._in_order, self.lending, shared.puts, journal, shared.standing)
        self.notifying = Notifying(
            pick(config, NotifyingConfig), checks, self.popping.config.retry_names, messages=journal.messages,
            offsets=self._offsets, chain=self.checkpoints, room=self.room, standing=shared.standing,
            ready=self._is_ready, held=self._in_order.blocked, lends=lambda: self.lending.is_open)
        self.popping.counters.out = self.acking.counters.out = before[OffsetsPart].inflight
        self._checks = checks
        self._writes_open = self._open = self._acts = False
        self._end = 0
        """End of the log when this broker became master or began to act for it."""
        before[TopicsPart].admin.told = before[GroupsPart].admin.told = self.changes.told
        topics.on_delete.join("parts", self._topic_is_gone)
        table = before[GroupsPart].table
        topics.narrowed.join("waiting", self.room.wake_topics)
        table.gone.join("waiting", lambda name: self.room.refuse(name, no_group(name)))
        table.barred.join("waiting", self.room.wake_groups)
        groups = before[GroupsPart].admin
        self._clean, groups.on_clean = groups.on_clean, self._group_is_gone
        self._others, self._offsets.on_reset = self._offsets.on_reset, self._is_reset

    # --- requests and figures --------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        return {**self.popping.handlers(), **self.acking.handlers(self._veil), **self.notifying.handlers()}

    def runtime_info(self) -> Mapping[str, str]:
        return {"popWaitsFor": self.waiting_for, "popWaiting": str(len(self.room)),
                "popCheckpointsUnderWay": str(len(self.checkpoints))}

    @property
    def waiting_for(self) -> str:
        """Reason why this broker gives no messages by POP; "" if it does."""
        if not self.popping.config.timer_wheel_enable:
            return "timerWheelEnable is false"
        if self.lending.is_open:
            return self.lending.why_not or ("" if self._is_ready() else READS)
        if not self._standing.role.takes_puts:
            return "this broker follows a master"
        if self._puts.closed:
            return self._puts.closed
        if not self._is_ready():
            return f"this master is young: {READS}, or may not show yet what it holds"
        return ""

    @property
    def stored_checkpoints(self) -> int:
        """Checkpoints stored since this process began, those of changed times included."""
        return self.popping.counters.checkpoints + self.acking.counters.changed

    @property
    def stored_acks(self) -> int:
        """Acknowledgements stored since this process began, those of changed times included."""
        return self.acking.counters.acked + self.acking.counters.changed

    def metrics(self, page: Page) -> Iterator[Metric]:
        pops, acks = self.popping.counters, self.acking.counters
        yield page.counter("rocketmq_pop_revive_in_message", "Puts of records of POP.", sorted(
            self._records.counts.puts.items()), "consumer_group", "topic", "revive_message_type", "put_status")
        yield page.gauge("rocketmq_pop_offset_buffer_size", "Checkpoints that are not confirmed yet.",
                         [((), len(self.checkpoints))])
        yield page.gauge("rocketmq_pop_checkpoint_buffer_size", "Checkpoints in memory alone: none ever.", [((), 0)])
        yield page.gauge("broker_pop_waiting", "POPs and notifications that wait. Ours.", [((), len(self.room))])
        for name, about, value in (
                ("pops", "POPs that gave something", pops.pops), ("messages", "messages given by POP", pops.messages),
                ("refused", "POPs whose checkpoints were not stored, so that nothing was given", pops.refused),
                ("acked", "messages acknowledged", acks.acked),
                ("changed", "messages whose time was changed", acks.changed),
                ("acks_failed", "acknowledgements and changes that were not stored", acks.failed)):
            yield page.counter(f"broker_pop_{name}", f"{about[0].upper()}{about[1:]}. Ours.", [((), value)])

    # --- moments ---------------------------------------------------------------------------------------------

    def configure(self, config: BrokerConfig) -> None:
        self._checks = Checks(pick(config, PopConfig), self._checks.groups, self._topics)
        self.popping.checks = self.acking.checks = self.notifying.checks = self._checks
        self.popping.config, self.popping.reads = pick(config, TakingConfig), pick(config, ReadConfig)
        self.notifying.config = pick(config, NotifyingConfig)
        self.notifying.retry_names = self.popping.config.retry_names
        self.room.config = pick(config, WaitingConfig)
        self.lending.enabled = config.enable_remote_escape
        self.room.wake_all()

    def role_changed(self, role: Role) -> None:
        if role.acts != self._acts:
            self._acts, self._open, self._end = role.acts, False, self._log.max_offset
            self.checkpoints.clear()
            self.lending.look()
        if not role.leads:
            self.changes.follows()
        self.room.wake_all()

    def writes_opened(self) -> None:
        self._writes_open, self._end = True, self._log.max_offset
        self.changes.opened()

    def writes_closed(self) -> None:
        self._writes_open = self._open = False
        self.checkpoints.clear()
        self.changes.closed()

    def all_seen(self) -> None:
        self.room.wake_all()

    def stopping(self) -> None:
        self.room.finish()

    # --- progress of the groups ------------------------------------------------------------------------------

    def _commit(self, key: Key, offset: int) -> None:
        topic, group, queue_id = key
        self._offsets.commit(group, topic, queue_id, offset)

    def _is_confirmed(self, log_end: int) -> None:
        """A checkpoint is confirmed that ends at ``log_end``."""
        self.checkpoints.settle(log_end)
        self._file.changed()

    def _is_ready(self) -> bool:
        """Return whether this broker may give messages. It is master or acts for it; all that it held is confirmed and
        read; each group's offset is raised to its progress in the log."""
        lends = self.lending.is_open
        if lends and self.lending.why_not:
            return False
        if self._open or not (self._writes_open or lends) or self._veil.on or not self._noted.told_all or (
                not shows_all(self._journal, self._end)):
            return self._open
        for (topic, group, queue_id), end in self.progress.ends.items():
            known = self._offsets.query(group, topic, queue_id)
            if known != end:
                self._offsets.take_reset(group, topic, queue_id)  # POPs have gone on since
            if (known is None or known < end) and self._topics.get(topic) is not None and (
                    end <= self._messages.max_offset(topic.encode(), queue_id)):
                self._offsets.commit(group, topic, queue_id, end)
        self._open = True
        return True

    def _is_reset(self, group: str, topic: str, queue_id: int) -> None:
        self._others(group, topic, queue_id)
        if not self._standing.role.leads:
            return
        key = topic, group, queue_id
        self.checkpoints.forget(key)
        self._in_order.clear(key)
        offset = self._offsets.query(group, topic, queue_id)
        if offset is not None:
            self.changes.say_reset(topic, group, queue_id, offset)
        self.room.unlocked(popped_from(topic, group), group, queue_id)

    def _topic_is_gone(self, topic: str) -> None:
        if self._standing.role.leads and topic_fault(topic) is None:
            self.changes.say_gone(topic, "")
            self.checkpoints.forget_topic(topic)

    def _group_is_gone(self, group: str) -> None:
        self._clean(group)
        if self._standing.role.leads and group_fault(group) is None:
            self.changes.say_gone("", group)

    def _cut(self, end: int) -> None:
        self.changes.cut(end)
        if not self.progress.cut(end):
            logger.warning("the log was cut at %d, before the end that %s was written for: the progress of groups that "
                           "pop is read again in the log", end, progress.PATH)
            self._noted.go_back(0)

    def _kept(self) -> KeptProgress:
        """The progress below the end of the log that no start cuts: for a shorter log the file would say too much."""
        return self.progress.kept(self.changes.needs_from(min(self._noted.offset, self._journal.sure_end)))

    def _hear(self) -> None:
        unread = self._noted.listen()
        if unread is not None:
            logger.error("the progress of groups that pop cannot be read in the log: %s", unread)
        if abs(self._noted.offset - self._heard) >= HEARD_STEP:
            self._heard = self._noted.offset
            self._file.changed()

    # --- periodic work ---------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        opens = not self._open and (self._writes_open or self.lending.is_open)
        return 0 if opens or self.changes.is_due or not self._noted.told_all else NEVER

    def tick(self, now_ns: int) -> None:
        self._hear()
        self.checkpoints.settle(self._visible.offset)
        self.changes.say_all()
        if not self._open and (self._writes_open or self.lending.is_open) and self._is_ready():
            self.room.wake_all()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._file.run)
            await nursery.start(self.changes.file.run)
            await nursery.start(self.room.run)
            task_status.started()
            await trio.sleep_forever()


def _kept(files: Files, log_end: int) -> KeptProgress:
    try:
        kept = load(files, KeptProgress, progress.PATH)
    except WrongStore as error:
        logger.warning("the progress of groups that pop is read from the log: %s", error)
        return KeptProgress(0)
    if kept.log_offset > log_end:
        logger.warning("the progress of groups that pop is read from the log: it ends at %d, but %s was written for %d",
                       log_end, progress.PATH, kept.log_offset)
        return KeptProgress(0)
    return kept
