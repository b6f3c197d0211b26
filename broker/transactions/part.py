"""The parts of transactions: one turns messages into halves, the other asks, decides and keeps the table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import trio

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.noted import shows_all
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.rules import Draft, Refusal, Rule
from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import Files
from broker.store.tables import load
from broker.topics.names import CHECK_MAX_TIME
from broker.topics.part import TopicsPart
from broker.transactions import records
from broker.transactions.asking import PROGRESS_GROUP, Asking, AskingConfig
from broker.transactions.checking import CheckLimits
from broker.transactions.conversion import Conversion, ConversionConfig
from broker.transactions.ending import Author, DecisionLedger, Ending
from broker.transactions.feeding import PATH, Feed, KeptTransactions
from broker.transactions.halves import Halves
from broker.transactions.resuming import Resuming
from remoting.bodies.namesrv import DataVersion
from remoting.body import Body, body
from remoting.codes import RequestCode
from remoting.daemon.keys import key
from remoting.endpoint import Handler
from remoting.errors import DamagedRecord
from remoting.fields import Int64

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")

METRICS_PATH: Final = "config/transactionMetrics"
SAVED_EVERY_MS: Final = 10_000
RETRY_NS: Final = 1_000_000_000
HOLD_NS: Final = 10_000_000_000
"""From when a master says that it comes back, pause in the sending of halves to other groups."""


@attrs.frozen(kw_only=True)
class TransactionsKeys:
    """The broker's configuration keys that belong to transactions."""

    transaction_time_out: int = key(6_000, "no producer is asked for a younger half", least=0, most=2**31 - 1,
                                    live=True)
    transaction_check_max: int = key(15, "times that producers are asked for a half before it goes to "
                                     "TRANS_CHECK_MAX_TIME_TOPIC", least=0, most=2**31 - 1, live=True)
    transaction_check_interval: int = key(30_000, "between two rounds of the check loop", least=1, most=2**31 - 1,
                                          live=True)
    transaction_op_msg_max_size: int = key(4_096, "characters of a mark for halves that were decided without one",
                                           least=1, most=1 << 20, live=True)
    transaction_op_batch_interval: int = key(3_000, "between two such marks", least=1, most=2**31 - 1, live=True)
    transaction_metric_flush_interval: int = key(10_000, "between two writes of transactionMetrics", least=1,
                                                 most=2**31 - 1)


@attrs.frozen
class MetricsConfig:
    """A key of ``BrokerConfig`` and its default."""

    transaction_metric_flush_interval: int = 10_000


@body
class TransactionCount(Body):
    """Number of open transactions of a topic, and since when."""

    count: Int64 = 0
    time_stamp: Int64 = 0


@body
class TransactionMetrics(Body):
    """The file ``config/transactionMetrics``: open transactions by topic."""

    transaction_count: dict[str, TransactionCount] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()


class HalvesPart(Part):
    """Turns messages into halves. Its rule runs before those that delay messages: a half waits for its decision first.
    """

    def __init__(self, shared: Shared, before: Parts) -> None:
        self._conversion = Conversion()

    def rules(self) -> Sequence[Rule]:
        return (self._conversion.rule,)

    def refuse(self, why: Callable[[Draft], Refusal | None]) -> None:
        """Refuse halves for which ``why`` returns a refusal."""
        self._conversion.delays = why

    def configure(self, config: BrokerConfig) -> None:
        self._conversion.config = pick(config, ConversionConfig)


class TransactionsPart(Part):
    """Keeps the table on every replica; decides and asks on a master or an acting slave."""

    keys = TransactionsKeys
    follows: ClassVar[bool] = True

    def __init__(self, shared: Shared, before: Parts) -> None:
        config, journal = shared.config, shared.journal
        self._standing, self._journal, self._veil, self._log, self._visible = (
            shared.standing, journal, journal.veil, journal.log, journal.visible)
        self._topics, self._offsets, self._wall_ms = before[TopicsPart], before[OffsetsPart].table, shared.wall_ms
        self.feed = Feed(journal, journal.messages, _kept(shared.files), lambda topic: self._offsets.query(
            PROGRESS_GROUP, topic, records.QUEUE))
        author = Author(config.store_host, shared.standing, shared.wall_ms, _ids(shared.rng))
        delays = [rule for part in before if not isinstance(part, HalvesPart) for rule in part.rules()]
        self._ending = Ending(
            self.feed, journal.log, journal.messages, shared.puts, shared.outlet, author, delays,
            self._why_not, journal.before_write)
        self._asking = Asking(
            self.feed, journal.log, shared.outlet, author, self._ending, before[ClientsPart].producers, self._offsets,
            self._make_topic)
        self._resuming = Resuming(self.feed, journal.log, shared.puts, author, self._ending.how_it_ended)
        before[HalvesPart].refuse(self._ending.refusal)
        self._file = shared.table_file(self.feed.checkpoint, path=PATH, pause_ms=SAVED_EVERY_MS)
        self.feed.on_change = self._file.changed
        self._counted: dict[str, TransactionCount] = {}
        self._metrics_version = DataVersion()
        self._metrics_file = shared.table_file(self._transaction_metrics, path=METRICS_PATH,
                                               pause_ms=pick(config, MetricsConfig).transaction_metric_flush_interval)
        self._right, self._now_ns = shared.right, shared.now_ns
        self._offers: bool | None = None
        """Whether the master offers codes of ours, as RocketMQ's does not; None: it has not said."""
        self._ending.sends_on = self._sends_on
        self._writes_open = self._open = False
        self._feed_after_ns = self._end = 0
        """``feed`` is not tried again before this time; end of the log when this broker became master."""
        journal.was_cut.join("parts", self._cut)
        journal.listen((records.HALF_TOPIC, records.QUEUE), self.feed.hear_half)
        journal.listen((records.OP_TOPIC, records.QUEUE), self.feed.hear_mark)

    def use(self, ledger: DecisionLedger) -> None:
        """Use this ledger for decisions of acting slaves."""
        self._ending.ledger = ledger

    def offered(self, codes: Collection[int]) -> None:
        self._offers = bool(codes)

    def master_returns(self) -> None:
        """The master is about to read how far this slave is."""
        self._asking.hold(self._now_ns() + HOLD_NS)

    def _sends_on(self) -> bool:
        """Return whether this slave, if it acts, sends halves to other groups' masters. RocketMQ's master reads no
        ledger, and would ask again for what was decided here."""
        ledger = self._ending.ledger
        return ledger is not None and (ledger.sends_on() if self._offers is None else not self._offers)

    @property
    def halves(self) -> Halves:
        """The table of open transactions."""
        return self.feed.halves

    def settle(self, offset: int, *, committed: bool, done: Callable[[], None]) -> None:
        """Put an acting slave's decision into this master's log (``Ending.settle``)."""
        self._ending.settle(offset, committed=committed, done=done)

    def when_all_decided(self, call: Callable[[], None]) -> None:
        """Run ``call`` on a slave when no decision is in flight, perhaps at once."""
        self._ending.when_all_decided(call)

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.END_TRANSACTION: self._ending.end,
                RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resuming.resume}

    def metrics(self, page: Page) -> Iterator[Metric]:
        ends, asks, feed = self._ending.counters, self._asking.counters, self.feed
        yield page.gauge("rocketmq_half_messages", "Open transactions.", [
            ((topic,), count) for topic, count in sorted(feed.halves.counts.items())], "topic")
        yield page.counter("rocketmq_commit_messages", "Transactions that were committed.", [
            ((topic,), count) for topic, count in sorted(ends.committed.items())], "topic")
        yield page.counter("rocketmq_rollback_messages", "Transactions that were rolled back.", [
            ((topic,), count) for topic, count in sorted(ends.rolled_back.items())], "topic")
        yield page.histogram("rocketmq_finish_message_latency_milliseconds",
                             "Seconds, as Java counts under that name, from a half's birth to its commit.",
                             ends.committed_after, "topic")
        yield page.counter("broker_transaction_ends", "Decisions that wrote nothing. Ours.", [
            (("again",), ends.again), (("contradicted",), ends.contradicted), (("unknown",), ends.unknown),
            (("refused",), ends.refused), (("failed",), ends.failed)], "why")
        yield page.counter("broker_transaction_checks", "Looks at halves that were due. Ours.", [
            (("asked",), asks.checks), (("nobody",), asks.nobody), (("given_up",), asks.given_up)], "what")
        yield page.counter("broker_transaction_marks_missing", "Halves that were decided without a mark. Ours.",
                           [((), asks.marked)])
        yield page.counter("broker_transactions_lost", "Open transactions whose half was deleted. Ours.",
                           [((), feed.lost)])

    def keeps_from(self) -> int | None:
        return self.feed.halves.least_offset()

    def make_way(self, below: int) -> None:
        self._asking.make_way(below)

    def configure(self, config: BrokerConfig) -> None:
        self._asking.config = pick(config, AskingConfig)
        self._asking.limits = self._ending.limits = pick(config, CheckLimits)

    # --- moments ---------------------------------------------------------------------------------------------

    def writes_opened(self) -> None:
        self._writes_open, self._end = True, self._log.max_offset

    def writes_closed(self) -> None:
        self._writes_open = self._open = False
        self._ending.closed()
        self._resuming.open = False
        self._asking.stop()

    def right_changed(self) -> None:
        self._ending.right_changed()

    def _cut(self, end: int) -> None:
        self._ending.cut(end)
        self._asking.cut(end)

    def _why_not(self) -> str:
        """Return why this broker may not decide transactions or ask for them; "": it may."""
        ledger = self._ending.ledger
        return self._right.why_not(self._now_ns()) or ("" if ledger is None else ledger.unread())

    def _knows_all(self) -> bool:
        """Return whether the table has all that the log held as this reign began: all decisions of former masters."""
        return not self._veil.on and not self.feed.behind and shows_all(self._journal, self._end)

    def due_ns(self) -> int:
        may = not self._why_not()
        asks = (self._open or self._acts) and may
        if asks != self._asking.started or (self._is_opening and may):
            return 0
        return self._feed_after_ns if self.feed.behind else self._asking.due_ns()

    @property
    def _acts(self) -> bool:
        return self._standing.role.acts and not self.feed.behind

    @property
    def _is_opening(self) -> bool:
        return self._writes_open and not self._open and self._standing.role.delivers

    def tick(self, now_ns: int) -> None:
        if now_ns >= self._feed_after_ns:
            try:
                self.feed.feed()
            except (OSError, OffsetGone, DamagedRecord) as error:
                self._feed_after_ns = now_ns + RETRY_NS
                logger.error("transactions cannot be read in the log, tried again in a second: %s", error)
        if not self.feed.behind:
            self._ending.shown(self._visible.offset)
            self._asking.shown(self._visible.offset)
        may = not self._why_not()
        if self._is_opening and may and self._knows_all():
            self._open = self._resuming.open = True
            for each in self.feed.halves:
                self._topics.expects(each.half.topic, each.half.queue_id, each.half.stored_ms)
            self._ending.opened()
        acts = self._acts
        asks = (self._open or acts) and may
        if asks and not self._asking.started:
            self._asking.start(now_ns, in_place=acts, sends_on=acts and self._sends_on())
        elif not asks and self._asking.started:
            self._asking.stop()
        self._asking.tick(now_ns, self._visible.offset)
        self._count()

    def _make_topic(self) -> None:
        self._topics.table.create_if_absent(CHECK_MAX_TIME, 1)

    # --- files -----------------------------------------------------------------------------------------------

    def _count(self) -> None:
        counts = self.feed.halves.counts
        if {topic: each.count for topic, each in self._counted.items()} == counts:
            return
        now_ms = self._wall_ms()
        self._counted = {
            topic: known if (known := self._counted.get(topic)) is not None and known.count == count
            else TransactionCount(count, now_ms) for topic, count in counts.items()}
        self._metrics_version = DataVersion(self._standing.role.epoch, now_ms, self._metrics_version.counter + 1)
        self._metrics_file.changed()

    def _transaction_metrics(self) -> TransactionMetrics:
        return TransactionMetrics(dict(self._counted), self._metrics_version)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._file.run)
            await nursery.start(self._metrics_file.run)
            task_status.started()
            await trio.sleep_forever()


def _ids(rng: Random) -> Callable[[], str]:
    """Unique ids that differ in their ends alone, as those of a producer: so the key index hashes them quickly."""
    numbers = count()

    @cache
    def front() -> str:
        return f"{rng.getrandbits(96):024X}"

    return lambda: f"{front()}{next(numbers):08X}"


def _kept(files: Files) -> KeptTransactions | None:
    try:
        return load(files, KeptTransactions, PATH)
    except WrongStore as error:
        logger.warning("open transactions are read from the queues: %s", error)
        return None
