"""The interface of a feature's judge. ``BrokerWatch`` tells each judge of the records in its topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from broker.puts import PutResult
from remoting.record import Message, Outline

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch


class Judge:
    """A judge without checks; each feature overrides the methods that it needs."""

    topics: ClassVar[frozenset[bytes]] = frozenset()
    """Topics of its records: waiting ones, and those that clients are to see."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._known: set[tuple[bytes, int, int, int, int]] = set()
        self._partial = False

    @property
    def complete(self) -> bool:
        """True if nothing was lost that may be. A master whose log begins late lacks messages that waited before."""
        return self._watch.lossless and not self._partial

    def leads(self, process: BrokerProcess) -> None:
        """Note that a run became master and its parts know it."""
        if process.journal.begin > 0:
            self._partial = True

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Messages are about to be put, the first of them in one of these topics."""

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """The master knows the outcome of a put."""

    def arrived(self, process: BrokerProcess, queue_offset: int, outline: Outline) -> None:
        """A record became visible on a broker."""

    def waits(self, process: BrokerProcess) -> bool:
        """Return whether this master has work left, once no fault is active."""
        return False

    def settled(self, process: BrokerProcess) -> None:
        """No fault is active, and all work has had its time."""

    def _is_new(self, queue_offset: int, outline: Outline) -> bool:
        """Return whether this record is seen for the first time."""
        offset, _, queue_id, _, _, time_ms, topic, _ = outline
        key = topic, queue_id, queue_offset, offset, time_ms
        if key in self._known:
            return False
        self._known.add(key)
        return True
