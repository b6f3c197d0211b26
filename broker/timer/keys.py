"""The keys of timers. They are values: a live key comes as another configuration."""

from __future__ import annotations

from typing import Final

import attrs

from remoting.daemon.keys import key

_INT_MAX: Final = 2**31 - 1
WINDOW_MOST: Final = 2 * 7 * 86_400 // 2 - 60
"""The value that replaces a ``timerRollWindowSlot`` above it or below 2: a minute less than a week."""


@attrs.frozen(kw_only=True)
class TimerKeys:
    """The broker's configuration keys that belong to timers."""

    timer_wheel_enable: bool = key(True, "deliver messages at the time that they ask for; false: they are refused")
    timer_max_delay_sec: int = key(259_200, "seconds; a message that asks for a longer delay is refused", least=0,
                                   most=_INT_MAX, live=True)
    timer_precision_ms: int = key(1_000, "length of a timer's slot", least=10, most=60_000)
    timer_roll_window_slot: int = key(
        172_800, f"slots; a timer that waits for longer is stored again in between; below 2 or above {WINDOW_MOST}: "
        f"{WINDOW_MOST}", least=-_INT_MAX, most=_INT_MAX)
    timer_congest_num_each_slot: int = key(_INT_MAX, "messages of one slot; the more there are, the more are refused",
                                           least=1, most=_INT_MAX, live=True)
    timer_stop_enqueue: bool = key(False, "put no timer into the wheel: they wait in their queue", live=True)
    timer_stop_dequeue: bool = key(False, "deliver no timer", live=True)
    timer_flush_interval_ms: int = key(1_000, "between two writes of the wheel", least=10, most=_INT_MAX)
    mapped_file_size_timer_log: int = key(100 << 20, "bytes of a file of the timer log", least=1 << 12, most=_INT_MAX)
    recall_message_enable: bool = key(False, "clients may recall a timer by its handle (code 370)", live=True)

    @property
    def window_slots(self) -> int:
        asked = self.timer_roll_window_slot
        return asked if 2 <= asked <= WINDOW_MOST else WINDOW_MOST
