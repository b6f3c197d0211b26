"""What a feature's judge is asked and told, by ``BrokerWatch``: one for each feature, by the topics of its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from broker.puts import PutResult
from remoting.record import Message, Outline

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch


class Judge:
    """Override what the feature has."""

    topics: ClassVar[frozenset[bytes]] = frozenset()
    """Of its records: those that wait, and those that clients are to see."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._known: set[tuple[bytes, int, int, int, int]] = set()
        self._partial = False

    @property
    def complete(self) -> bool:
        """Nothing was lost that may be. A master whose log begins late never had what waits in front of that."""
        return self._watch.lossless and not self._partial

    def leads(self, process: BrokerProcess) -> None:
        """It became master, and its parts know."""
        if process.journal.begin > 0:
            self._partial = True

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Right before somebody puts them, of whose topics the first is one of these."""

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """What became of that, as its master knows."""

    def arrived(self, process: BrokerProcess, queue_offset: int, outline: Outline) -> None:
        """A record became visible somewhere."""

    def waits(self, process: BrokerProcess) -> bool:
        """Whether this master, when nothing fails any more, has something left to do."""
        return False

    def settled(self, process: BrokerProcess) -> None:
        """Nothing fails any more, and all had its time."""

    def _is_new(self, queue_offset: int, outline: Outline) -> bool:
        """Whether nobody has seen this record yet."""
        offset, _, queue_id, _, _, time_ms, topic, _ = outline
        key = topic, queue_id, queue_offset, offset, time_ms
        if key in self._known:
            return False
        self._known.add(key)
        return True
