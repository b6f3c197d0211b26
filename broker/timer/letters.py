"""Letters: messages of the timers' topic, and the messages that a broker makes of them when their time comes.

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
"""Topics of the broker's own, to which no timer is delivered."""
_QUEUE_ID_MAX: Final = 2**31 - 1
_OUT_MS_MAX: Final = 2**62
_ROLLS_MAX: Final = 2**31 - 1
Key = tuple[str, str, int]
"""Topic, unique id and slot of a timer: a marker with the same takes it back."""


@attrs.frozen
class Letter:
    """A message of the timers' topic."""

    message: Message
    values: dict[str, str]
    topic: str
    """The topic that it is meant for; "" if it names none."""
    out_ms: int
    """When it is due, ms; 0, so at once, if it names no time."""

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
        """The old offset in the log, if this message was put again before it was due."""
        return decimal(self.values.get(TIMER_MOVED, ""))

    @property
    def came_again(self) -> bool:
        """Return whether it was put again (rolled or moved), so that it may stand after its marker."""
        return ROLL_TIMES in self.values or TIMER_MOVED in self.values

    @property
    def deletes(self) -> bool:
        return DELETES in self.values

    @property
    def key(self) -> Key:
        """The key of a timer; a marker with the same key recalls it."""
        return self.topic, self.values.get(UNIQ_KEY, ""), self.out_ms

    @property
    def key_deleted(self) -> Key:
        """The key that a marker recalls; brokers before 5.5 write the topic before the id."""
        return self.topic, self.values[DELETES].removeprefix(f"{self.topic}+"), self.out_ms

    @property
    def lost(self) -> str:
        """Why it cannot be delivered to any topic; "" if it can."""
        queue_id = decimal(self.values.get(REAL_QID, ""))
        if not self.topic or queue_id is None or not 0 <= queue_id <= _QUEUE_ID_MAX:
            return (f"it has no topic and queue to go to: REAL_TOPIC {self.topic!r}, "
                    f"REAL_QID {self.values.get(REAL_QID)!r}")
        return f"it would go to {self.topic}" if self.topic in _NOT_THERE else ""

    def rolled(self, unit: Unit, now_ms: int, *, moved: bool = False) -> Message:
        """The message put again into the timers' topic: to wait for its next slot, or, if ``moved``, for the same."""
        times = decimal(self.values.get(ROLL_TIMES, "0")) or 0
        values = self._out_of(unit, now_ms)
        values[ROLL_TIMES] = str(min(max(times, 0) + 1, _ROLLS_MAX))
        if moved:
            values[TIMER_MOVED] = str(unit.offset)
            del values[TIMER_DONE]
            return attrs.evolve(self.message, properties=props.write(values))
        return attrs.evolve(self.message, sys_flag=self.message.sys_flag | NOTED, properties=props.write(values))

    def delivered(self, unit: Unit, now_ms: int) -> Message:
        """The message for its own topic and queue. It keeps its due time, by which no broker delays it again."""
        values = self._out_of(unit, now_ms)
        values.setdefault(TIMER_OUT_MS, "0")
        topic, queue_id = values.pop(REAL_TOPIC), values.pop(REAL_QID)
        return elsewhere(
            self.message, topic=topic.encode(), queue_id=int(queue_id), prepared_offset=0,
            sys_flag=self.message.sys_flag | NOTED, properties=props.write(values), store_host=self.message.store_host)

    def _out_of(self, unit: Unit, now_ms: int) -> dict[str, str]:
        """Its properties, with times and origin added."""
        values = {**self.values, ENQUEUE_MS: str(unit.write_time_ms), DEQUEUE_MS: str(now_ms),
                  TIMER_DONE: str(unit.offset)}
        values.pop(TIMER_MOVED, None)
        return values

    def set_aside(self) -> Message:
        """The message for the topic of undeliverable timers, where operators can look at it."""
        return attrs.evolve(self.message, topic=TIMER_DEAD.encode(), queue_id=0, prepared_offset=0,
                            sys_flag=self.message.sys_flag & ~NOTED)  # what it was noted for was heard
