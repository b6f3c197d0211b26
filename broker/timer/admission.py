"""The rule for timers, messages with a delay of any length: diverts them to the timers' topic, or refuses them.

Pure values; the caller gives time and random numbers. Source: ``HookUtils.handleScheduleMessage`` and
``transformTimerMessage`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.properties import TIMER_DONE, TIMER_MOVED, TIMER_OUT_MS, TIMERS, UNIQ_KEY
from broker.rules import Diverted, Draft, Refusal, rule
from broker.timer.handles import Handle
from broker.timer.keys import TimerKeys
from broker.topics.names import RETRY_PREFIX, TIMER
from remoting.codes import ResponseCode
from remoting.fields import decimal
from remoting.record import COMMIT, PROPERTIES_BYTES_MAX, ROLLBACK

DELAY_SEC: Final = "TIMER_DELAY_SEC"
DELAY_MS: Final = "TIMER_DELAY_MS"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
DELETES: Final = "TIMER_DEL_UNIQKEY"
"""Property of a marker, which recalls a timer: the timer's unique id, with topic and ``+`` before it in old versions.
"""
ADDED_BYTES: Final = 272
"""Most bytes that brokers add to the properties until the message is delivered."""
_HERE: Final = Diverted(TIMER, 0)
_LONGS: Final = range(-(2**63), 2**63)


class Timers:
    """Admits timers. ``count`` returns how many wait in a slot; ``chance`` returns a random number from 0 to 1."""

    def __init__(self, keys: TimerKeys, broker_name: str, wall_ms: Callable[[], int], count: Callable[[int], int],
                 chance: Callable[[], float]) -> None:
        self.keys, self._broker_name = keys, broker_name
        self._wall_ms, self._count, self._chance = wall_ms, count, chance
        self.rule = rule(self.timers, *TIMERS, TIMER_OUT_MS)

    def timers(self, draft: Draft) -> Diverted | Refusal | None:
        """Divert a timer to the timers' topic, where it waits; one that is due already passes."""
        values, keys = draft.properties, self.keys
        if (draft.level > 0 or TIMER_OUT_MS in values or TIMERS.isdisjoint(values) or draft.topic == TIMER
                or draft.sys_flag & ROLLBACK not in (0, COMMIT)):
            return None
        if not keys.timer_wheel_enable:
            return Refusal(ResponseCode.SYSTEM_ERROR,
                           "accurate timer message is not enabled, timerWheelEnable is false")
        values.pop(TIMER_DONE, None)  # only brokers set these two
        values.pop(TIMER_MOVED, None)
        now_ms = self._wall_ms()
        asked_ms = _asked_ms(values, now_ms)
        if asked_ms is not None and asked_ms <= now_ms and DELETES not in values:
            return None
        if asked_ms is None or not 0 < asked_ms - now_ms <= keys.timer_max_delay_sec * 1_000:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, (
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{keys.timer_max_delay_sec * 1_000}ms; or if set del msg, the delay time should be bigger than the "
                "current time"))
        out_ms = slot_begin_ms(asked_ms, keys.timer_precision_ms)
        if self._is_full(out_ms):
            most = keys.timer_congest_num_each_slot
            return Refusal(ResponseCode.SYSTEM_ERROR, (
                f"timer message is under flow control, max num limit is {2 * most} or the current value is greater "
                f"than {most} and less than {2 * most}, trigger random flow control"))
        values[TIMER_OUT_MS] = str(out_ms)
        size = sum(len(name.encode(errors="replace")) + len(value.encode(errors="replace")) + 2
                   for name, value in values.items()) + len(draft.topic)
        if size + ADDED_BYTES > PROPERTIES_BYTES_MAX:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, (
                f"timer message illegal, its properties have {size} bytes; with what is added until it is delivered "
                f"they would be longer than {PROPERTIES_BYTES_MAX}"))
        if not draft.topic.startswith(RETRY_PREFIX):
            draft.answered["recallHandle"] = Handle(
                draft.topic, self._broker_name, out_ms + 1, values.get(UNIQ_KEY, "")).encode()
        return _HERE

    def _is_full(self, out_ms: int) -> bool:
        """Return whether to refuse: above the limit by chance, from twice the limit on always."""
        most = self.keys.timer_congest_num_each_slot
        count = self._count(out_ms)
        return count > most and (count >= 2 * most or self._chance() < (count - most) / most)


def slot_begin_ms(asked_ms: int, precision_ms: int) -> int:
    """Begin of the last slot before ``asked_ms``. A slot is delivered when it is over."""
    return (asked_ms - 1) // precision_ms * precision_ms


def _asked_ms(values: Mapping[str, str], now_ms: int) -> int | None:
    """The time that the message asks for; None: its property is no number."""
    for name, unit_ms, begin_ms in ((DELAY_SEC, 1_000, now_ms), (DELAY_MS, 1, now_ms), (DELIVER_MS, 1, 0)):
        if name in values:
            number = decimal(values[name])
            return begin_ms + number * unit_ms if number is not None and number in _LONGS else None
    return None
