"""Finds the oldest message that a waiting checkpoint may bring back: the log must be kept from there on.

For each step of ten seconds it remembers, per queue, the first offset of the checkpoints that come due in that step.
Every replica takes the checkpoints as they are confirmed (``broker.noted``); copies by timers are ignored. Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.pop.records import named
from broker.properties import TIMER_DONE, TIMER_OUT_MS, UNIQ_KEY
from broker.timer.admission import DELIVER_MS
from remoting.fields import decimal
from remoting.record import TAGS, Outline, decode_properties, value_behind

STEP_MS: Final = 10_000
FAR_MS: Final = 8 * 86_400_000
"""Least value of ``Retained.far_ms``: the longest delay of timers may have been another before."""


class Retained:
    """First needed offsets of queues. ``hear`` takes messages in the order of the log; ``pass_to`` drops old steps."""

    def __init__(self, kept: Mapping[int, Mapping[str, int]], broker_name: str) -> None:
        """``kept``: the ``steps`` of the process before. Guests (checkpoints of another ``broker_name``) are ignored:
        their messages are not in this log."""
        self._broker_name = broker_name
        self.far_ms = FAR_MS
        """The longest delay of a timer, or more; a later time is no broker's."""
        self.steps: dict[int, dict[str, int]] = {due: dict(queues) for due, queues in kept.items()}
        """By the end of each step in ms, first offsets by ``topic@queue``."""

    def hear(self, found: Outline) -> None:
        """Take a noted message; those of other parts are ignored."""
        if value_behind(found[7], TAGS) != b"ck":
            return
        values = decode_properties(found[7])
        of = named(values.get(UNIQ_KEY, ""))
        due_ms = decimal(values.get(TIMER_OUT_MS) or values.get(DELIVER_MS, ""))
        if of is None or due_ms is None or TIMER_DONE in values or of.broker_name not in ("", self._broker_name):
            return
        queue_id, offset = decimal(of.queue_id), decimal(of.start_offset)
        if queue_id is None or offset is None or min(queue_id, offset) < 0 or due_ms > found[5] + self.far_ms:
            return
        step = self.steps.setdefault(due_ms - due_ms % STEP_MS + STEP_MS, {})
        queue = f"{of.topic}@{queue_id}"
        step[queue] = min(offset, step.get(queue, offset))

    def pass_to(self, time_ms: int) -> None:
        """Drop the steps that end by ``time_ms``: their checkpoints are done with."""
        for due_ms in [due_ms for due_ms in self.steps if due_ms <= time_ms]:
            del self.steps[due_ms]

    def firsts(self) -> dict[tuple[str, int], int]:
        """The first needed offset by topic and queue id."""
        found: dict[str, int] = {}
        for queues in self.steps.values():
            for queue, offset in queues.items():
                found[queue] = min(offset, found.get(queue, offset))
        return {(queue.rpartition("@")[0], int(queue.rpartition("@")[2])): offset for queue, offset in found.items()}
