"""Where the messages of checkpoints that wait for their time begin: the log is kept from there on.

Of each queue the first offset is remembered, by the time when its checkpoints come due, in steps of ten seconds. Every
replica hears the checkpoints (``broker.noted``); one that came out of its timer is none. Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.properties import TIMER_DONE, TIMER_OUT_MS, UNIQ_KEY
from broker.timer.admission import DELIVER_MS
from remoting.fields import decimal
from remoting.record import TAGS, Outline, decode_properties, value_behind

STEP_MS: Final = 10_000
FAR_MS: Final = 8 * 86_400_000
"""No timer waits for longer."""
_FIELDS: Final = 7
"""Of a checkpoint's unique id: topic, queue, first offset, group, pop time, broker, and what it is."""


class Retained:
    """``hear`` takes what is shown, in the order of the log; ``pass_to`` forgets what is done with."""

    def __init__(self, kept: Mapping[int, Mapping[str, int]], broker_name: str) -> None:
        """``kept``: what ``steps`` was in the process before. Checkpoints of another group's messages need nothing of
        this log."""
        self._broker_name = broker_name
        self.steps: dict[int, dict[str, int]] = {due: dict(queues) for due, queues in kept.items()}
        """By the end of its step, first offsets by ``topic@queue``."""

    def hear(self, found: Outline) -> None:
        """A marked message; whose else it may be, it is passed over."""
        if value_behind(found[7], TAGS) != b"ck":
            return
        values = decode_properties(found[7])
        names = values.get(UNIQ_KEY, "").split("@")
        due_ms = decimal(values.get(TIMER_OUT_MS) or values.get(DELIVER_MS, ""))
        if len(names) != _FIELDS or names[-1] != "ck" or due_ms is None or TIMER_DONE in values:
            return
        if names[5] not in ("", self._broker_name):
            return
        queue_id, offset = decimal(names[1]), decimal(names[2])
        if queue_id is None or offset is None or min(queue_id, offset) < 0 or due_ms > found[5] + FAR_MS:
            return
        step = self.steps.setdefault(due_ms - due_ms % STEP_MS + STEP_MS, {})
        queue = f"{names[0]}@{queue_id}"
        step[queue] = min(offset, step.get(queue, offset))

    def pass_to(self, time_ms: int) -> None:
        """All that came due before is done with."""
        for due_ms in [due_ms for due_ms in self.steps if due_ms <= time_ms]:
            del self.steps[due_ms]

    def firsts(self) -> dict[tuple[str, int], int]:
        """The first offset of each queue that is needed."""
        found: dict[str, int] = {}
        for queues in self.steps.values():
            for queue, offset in queues.items():
                found[queue] = min(offset, found.get(queue, offset))
        return {(queue.rpartition("@")[0], int(queue.rpartition("@")[2])): offset for queue, offset in found.items()}
