"""Messages of timers: what a broker reads of one in the timers' topic, and what it makes of it when its time comes.

Pure values. Source: ``TimerMessageStore.convert`` and ``needDelete`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker import properties as props
from broker.properties import REAL_QID, REAL_TOPIC, TIMER_DONE, TIMER_MOVED, TIMER_OUT_MS
from broker.timer.admission import DELETES
from broker.timer.units import Unit
from broker.topics.names import HALF, OP_HALF, SCHEDULE, TIMER, TIMER_DEAD
from remoting.fields import decimal
from remoting.hashing import java_hash
from remoting.record import NOTED, Message, decode_properties, elsewhere

ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
UNIQ_KEY: Final = "UNIQ_KEY"
TOPIC: Final = TIMER.encode()
_NOT_THERE: Final = frozenset({TIMER, HALF, OP_HALF, SCHEDULE})
"""Whoever waits there was never meant for it."""
_QUEUE_ID_MAX: Final = 2**31 - 1
_OUT_MS_MAX: Final = 2**62
_ROLLS_MAX: Final = 2**31 - 1
Key = tuple[str, str, int]
"""Topic, unique id and moment of a timer: a marker with the same takes it back."""


@attrs.frozen
class Letter:
    """A message of the timers' topic."""

    message: Message
    values: dict[str, str]
    topic: str
    """The real one; "" if it has none."""
    out_ms: int
    """0, so due at once, where that is no time."""

    @classmethod
    def of(cls, message: Message) -> Letter:
        values = decode_properties(message.properties)
        out_ms = decimal(values.get(TIMER_OUT_MS, ""))
        return cls(message, values, values.get(REAL_TOPIC, ""),
                   out_ms if out_ms is not None and 0 <= out_ms <= _OUT_MS_MAX else 0)

    @property
    def topic_hash(self) -> int:
        return java_hash(self.topic)

    @property
    def moved_from(self) -> int | None:
        """Where the message stood in the log whose place this one takes."""
        return decimal(self.values.get(TIMER_MOVED, ""))

    @property
    def came_again(self) -> bool:
        """It rolled, or was put forward: others may have come in between."""
        return ROLL_TIMES in self.values or TIMER_MOVED in self.values

    @property
    def deletes(self) -> bool:
        return DELETES in self.values

    @property
    def key(self) -> Key:
        """Of a message; a marker with the same takes it back."""
        return self.topic, self.values.get(UNIQ_KEY, ""), self.out_ms

    @property
    def key_deleted(self) -> Key:
        """Of a marker: brokers before 5.5 write the topic in front."""
        return self.topic, self.values[DELETES].removeprefix(f"{self.topic}+"), self.out_ms

    @property
    def lost(self) -> str:
        """Why it can go nowhere; ""."""
        queue_id = decimal(self.values.get(REAL_QID, ""))
        if not self.topic or queue_id is None or not 0 <= queue_id <= _QUEUE_ID_MAX:
            return (f"it has no topic and queue to go to: REAL_TOPIC {self.topic!r}, "
                    f"REAL_QID {self.values.get(REAL_QID)!r}")
        return f"it would go to {self.topic}" if self.topic in _NOT_THERE else ""

    def rolled(self, unit: Unit, now_ms: int, *, moved: bool = False) -> Message:
        """To wait on, in the same topic; ``moved``: its slot has not come yet."""
        times = decimal(self.values.get(ROLL_TIMES, "0")) or 0
        values = self._out_of(unit, now_ms)
        values[ROLL_TIMES] = str(min(max(times, 0) + 1, _ROLLS_MAX))
        if moved:
            values[TIMER_MOVED] = str(unit.offset)
            del values[TIMER_DONE]
            return attrs.evolve(self.message, properties=props.write(values))
        return attrs.evolve(self.message, sys_flag=self.message.sys_flag | NOTED, properties=props.write(values))

    def delivered(self, unit: Unit, now_ms: int) -> Message:
        """In the topic and queue that it is meant for; what says when it was due stays, so it is no timer again."""
        values = self._out_of(unit, now_ms)
        values.setdefault(TIMER_OUT_MS, "0")
        topic, queue_id = values.pop(REAL_TOPIC), values.pop(REAL_QID)
        return elsewhere(
            self.message, topic=topic.encode(), queue_id=int(queue_id), prepared_offset=0,
            sys_flag=self.message.sys_flag | NOTED, properties=props.write(values), store_host=self.message.store_host)

    def _out_of(self, unit: Unit, now_ms: int) -> dict[str, str]:
        """The properties, with what says where it comes from."""
        values = {**self.values, ENQUEUE_MS: str(unit.write_time_ms), DEQUEUE_MS: str(now_ms),
                  TIMER_DONE: str(unit.offset)}
        values.pop(TIMER_MOVED, None)
        return values

    def set_aside(self) -> Message:
        """As it is, where somebody may look at it."""
        return attrs.evolve(self.message, topic=TIMER_DEAD.encode(), queue_id=0, prepared_offset=0)
