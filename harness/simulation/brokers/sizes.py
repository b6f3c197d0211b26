"""Bounds what a broker keeps for others, and about them, while any of them stands still: INV_B54, for ``BrokerWatch``.

Asked at each tick of each process: of the controllers that answer nothing, of slaves that acknowledge nothing and come
again, and of a disk that does not end what it was given.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from harness.simulation.brokers.plan import FLUSH_TIMEOUT_MS
from raft.config import MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch
    from remoting.record import Message

KEPT: Final = ("a set asked for again in vain", "a put waits for who stands still")
"""Situations that every campaign must meet: something has to be kept for a while."""
LATE_NS: Final = 150 * MS
"""A tick comes so late, in a loop that runs."""


class Sizes:
    """Judges what masters of one scene keep."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._waiting: dict[BrokerProcess, dict[int, int]] = {}
        """Run -> when each put came that is not answered."""

    def ended(self, process: BrokerProcess) -> None:
        """Forget a run that is over."""
        self._waiting.pop(process, None)

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Take the moment at which a put came."""
        self._waiting.setdefault(process, {})[id(messages)] = process.now

    def answered(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        self._waiting.get(process, {}).pop(id(messages), None)

    def look(self, process: BrokerProcess) -> None:
        """Judge INV_B54 behind a tick of this process."""
        self._asked(process)
        self._connected(process)
        self._put(process)

    def asks(self, *, again: bool) -> None:
        """Take a request to change the set; ``again``: as one before it asked, which nobody refused."""
        self._scene.counts["a set asked for again in vain"] += again

    def _asked(self, process: BrokerProcess) -> None:
        """Check that a set is kept once, however often it was asked for."""
        in_sync = process.switch.in_sync
        if in_sync is None or not in_sync.asked:
            return
        self._counts["INV_B54"] += 1
        again = Counter(in_sync.asked.values()).most_common(1)[0]
        if again[1] > 1:
            self._broken("INV_B54", "a set is kept for each time that it was asked for", process, again)

    def _connected(self, process: BrokerProcess) -> None:
        """Check that a slave that came back has one connection, whatever became of the former."""
        of = process.switch.slaves()
        self._counts["INV_B54"] += bool(of)
        if len({*of}) < len(of):
            self._broken("INV_B54", "two connections of one slave", process, of)

    def _put(self, process: BrokerProcess) -> None:
        """Check that no put waits longer than it may: for its disk, then for its slaves."""
        plan, waiting = self._scene.plan, self._waiting.get(process)
        if not waiting:
            return
        self._counts["INV_B54"] += 1
        most_ns = (plan.young_hold_ms + FLUSH_TIMEOUT_MS + plan.slave_timeout_ms) * MS + LATE_NS
        oldest = process.now - min(waiting.values())
        self._scene.counts["a put waits for who stands still"] += oldest > plan.slave_timeout_ms * MS // 2
        if oldest > most_ns:
            self._broken("INV_B54", "a put waits for longer than it may", process, oldest / MS, most_ns / MS)
