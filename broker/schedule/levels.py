"""Delay levels: how long each is, and how a message is put aside for one and restored.

Pure values. Source: ``ScheduleMessageService.parseDelayLevel``, ``HookUtils.transformDelayLevelMessage`` and
``messageTimeUp`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from broker.properties import DELAY, REAL_QID, REAL_TOPIC, TIMERS
from broker.rules import Diverted, Draft, rule
from broker.topics.names import HALF, SCHEDULE
from remoting.fields import decimal
from remoting.record import COMMIT, ROLLBACK, Message, decode_properties

DEFAULT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""``messageDelayLevel``."""
SCHEDULE_TOPIC: Final = SCHEDULE.encode()
LEVELS_MAX: Final = 18
"""Queues of the topic at every broker, and so the most levels."""
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_QUEUE_ID_MAX: Final = 2**31 - 1


def parse(text: str = DEFAULT) -> tuple[int, ...]:
    """Return the milliseconds of each level, level 1 first. Raises ``ValueError``, which names the wrong part."""
    delays = []
    for part in text.split():
        found = _LEVEL.fullmatch(part)
        if found is None:
            raise ValueError(f"messageDelayLevel: {part!r} is no delay; 1s, 5m, 2h or 1d would be")
        delays.append(int(found[1]) * _UNIT_MS[found[2]])
    if not 0 < len(delays) <= LEVELS_MAX:
        raise ValueError(f"messageDelayLevel has {len(delays)} levels; 1 to {LEVELS_MAX} are possible")
    return tuple(delays)


class DelayLevels:
    """The rule of messages with a delay level, of which there are ``count``."""

    def __init__(self, count: int = LEVELS_MAX) -> None:
        self._queues = [Diverted(SCHEDULE, queue_id) for queue_id in range(count)]
        self.rule = rule(self.delay_levels, DELAY)

    def delay_levels(self, draft: Draft) -> Diverted | None:
        """A message with a delay level waits in the level's queue of the schedule topic; timers that it has go."""
        if draft.level <= 0 or draft.sys_flag & ROLLBACK not in (0, COMMIT):
            return None
        values = draft.properties
        for timer in TIMERS:
            if timer in values:
                del values[timer]
        level = min(draft.level, len(self._queues))
        values[DELAY] = str(level)
        return self._queues[level - 1]


def restored(message: Message) -> Message | str:
    """Return the message for its own topic and queue, or why it has none: then it is dropped.

    Its properties stay: Java delivers it with its ``DELAY`` too, and consumers show it.
    """
    properties = decode_properties(message.properties)
    topic, queue_id = properties.get(REAL_TOPIC), decimal(properties.get(REAL_QID, ""))
    if not topic or queue_id is None or not 0 <= queue_id <= _QUEUE_ID_MAX:
        return f"it has no topic and queue to go to: REAL_TOPIC {topic!r}, REAL_QID {properties.get(REAL_QID)!r}"
    if topic == HALF:
        return f"it would go to {topic}, and so be delivered to nobody"
    return attrs.evolve(message, topic=topic.encode(), queue_id=queue_id, prepared_offset=0)
