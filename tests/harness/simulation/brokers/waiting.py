"""Planted bugs of what waits in a broker, until it is due or decided."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted
from tests.harness.simulation.brokers import deciding

MACHINE: Final = "broker/schedule/machine.py"
DELIVERY: Final = "broker/schedule/delivery.py"
LEVELS: Final = "broker/schedule/levels.py"
TIMERS: Final = "broker/timer/machine.py"
TIMER_DELIVERY: Final = "broker/timer/delivery.py"
LETTERS: Final = "broker/timer/letters.py"
PIECES: Final = "tests/broker/test_pieces.py::"

PLANTED: Final = (
    Planted("a new master takes positions of messages that are not seen yet for beyond their queue", DELIVERY,
            "        self._journal.number()", "        pass",
            ("tests/broker/schedule/test_part.py::"
             "test_a_position_behind_messages_that_consumers_do_not_see_yet_stays_where_it_is",)),
    # --- delay levels
    Planted("what could not be delivered is passed over", MACHINE,
            "alone, level.together = level.together == 1 or delivery.end - delivery.begin == 1, 1\n",
            "alone, level.together, level.offset = False, 1, delivery.end\n", ("INV_B40", "INV_B36"), "delays"),
    Planted("what was put is delivered, whatever comes of it", DELIVERY,
            "        if result.status is PutStatus.PUT_OK:\n", "        if result.status is not None:\n",
            ("INV_B40", "INV_B36"), "delays"),
    Planted("a delayed message is due half a second early", MACHINE,
            "    return due_ms <= wall_ms or ", "    return due_ms <= wall_ms + 500 or ", ("INV_B37",), "delays"),
    Planted("a level is as long as the one before it", "broker/store/dispatch.py",
            "len(self._delays_ms)) - 1]", "len(self._delays_ms)) - 2]", ("INV_B37",), "delays"),
    Planted("what was delayed goes to the first queue", LEVELS,
            "topic=topic.encode(), queue_id=queue_id,", "topic=topic.encode(), queue_id=0,", ("INV_B38",), "delays"),
    Planted("a level is delivered twice at a time", MACHINE,
            "            if not level.under_way and level.look_at_ns <= now_ns:\n",
            "            if level.look_at_ns <= now_ns:\n", ("INV_B39",), "delays"),
    Planted("a new master delivers all levels from their beginning", MACHINE,
            "if level.offset is not None and level.offset > (end := queues.end(number)):\n"
            "                self._move(level, end, wall_ms)\n", "level.offset = 0\n", ("INV_B39",), "delays"),
    Planted("a new master goes back to where its log is seen", MACHINE,
            "level.offset > (end := queues.end(number)):",
            "level.offset > (end := (queues.bounds(number) or (0, 0))[1]):",
            ("tests/broker/schedule/test_machine.py::"
             "test_a_position_stays_where_the_log_goes_on_behind_what_is_seen",)),
    Planted("a level that failed is not looked at again", MACHINE,
            "(PAUSE_AFTER_FAULT_MS if fault and alone else PAUSE_MS)",
            "(PAUSE_AFTER_FAULT_MS if fault and alone else 1 << 40)",
            ("INV_B36",), "delays"),
    Planted("one more is passed over with what was delivered", MACHINE,
            "            else:\n                self._stands(level, delivery.end, wall_ms)\n",
            "            else:\n                self._stands(level, delivery.end + 1, wall_ms)\n",
            ("INV_B40", "INV_B36"), "delays"),
    # --- timers
    Planted("a slot is delivered while its moment lasts", TIMERS,
            "        if slot_ms is None or slot_ms >= now_ms:\n", "        if slot_ms is None or slot_ms > now_ms:\n",
            ("INV_B37",), "timers"),
    Planted("what is to roll is delivered", TIMER_DELIVERY,
            "if unit.rolls:\n            return letter.rolled(", "if False:\n            return letter.rolled(",
            ("INV_B37",), "timers"),
    Planted("a timer that was not stored is dropped", TIMER_DELIVERY,
            "            self._again(dues, pause_ms)\n        self._deliv", "        self._deliv",
            ("INV_B36",), "timers"),
    Planted("slots are done as they are opened", TIMERS,
            "        self.store.done_before(begun[0] if begun else self._open_ms)\n",
            "        self.store.done_before(self._open_ms)\n", ("INV_B36",), "timers"),
    Planted("a new master begins two seconds behind the last slot that is done", TIMERS,
            "            self._open_ms = self.store.read_time_ms\n",
            "            self._open_ms = self.store.read_time_ms + 2_000\n", ("INV_B36",), "timers"),
    Planted("what was taken back is delivered", TIMER_DELIVERY,
            "        if not letter.deletes:\n            key = self", "        if False:\n            key = self",
            ("INV_B41",), "timers"),
    Planted("a timer that is stored and slow to be confirmed is stored again", TIMER_DELIVERY,
            "elif result.status in WRITTEN and result.puts:", "elif False:", ("INV_B39",), "timers"),
    Planted("timers go to the first queue", LETTERS,
            "queue_id=int(queue_id), prepared_offset=0,", "queue_id=0, prepared_offset=0,", ("INV_B38",), "timers"),
    Planted("a master tells slaves that nothing is in the wheel", "broker/timer/part.py",
            "            self._store.master_queue_offset = self._store.queue_offset\n", "            pass\n",
            ("tests/broker/timer/test_timers.py::"
             "test_what_slaves_know_to_be_delivered_no_new_master_delivers_again",)),
    # --- pieces
    Planted("a piece of due timers has no end", TIMER_DELIVERY,
            "            is_over = left <= 0 or self._journal.now_ns() >= until_ns\n", "            pass\n",
            (PIECES + "test_others_have_the_loop_while_many_timers_are_due",)),
    Planted("timers come into the wheel however long that takes", TIMER_DELIVERY,
            "                if not works or self._journal.now_ns() >= until_ns:\n", "                if not works:\n",
            (PIECES + "test_others_have_the_loop_while_many_timers_come_into_the_wheel",)),
    Planted("timers that came into the wheel are delivered at the next tick", TIMER_DELIVERY,
            "        if waited and self._caught_up:\n            self._delivering.ask()\n", "",
            (PIECES + "test_timers_that_were_due_as_they_came_into_the_wheel_wait_for_no_tick",)),
    Planted("timers come into the wheel while it has units of a log that was cut", TIMER_DELIVERY,
            "if self.keys.timer_stop_enqueue or not self.may_enqueue:\n", "if self.keys.timer_stop_enqueue:\n",
            ("tests/broker/timer/test_orders.py::test_a_log_is_cut_when_its_timers_are_forgotten_and_not_before",)),
    Planted("timers are put again however long that takes", TIMER_DELIVERY,
            "            if begin and self._journal.now_ns() >= until_ns:\n", "            if False:\n",
            (PIECES + "test_others_have_the_loop_while_timers_make_way_for_the_log",)),
    Planted("a piece of delayed messages has no end", DELIVERY,
            "            if left <= 0 or self._journal.now_ns() >= until_ns:\n", "            if False:\n",
            (PIECES + "test_others_have_the_loop_while_messages_of_all_levels_are_due",)),
    Planted("the first level comes before all others", MACHINE, ", key=lambda level: level <= self._last", "",
            ("tests/broker/schedule/test_machine.py::"
             "test_levels_take_turns_while_more_is_due_than_is_asked_for",)),
    Planted("what is left of work in pieces waits for a tick", "broker/journal.py",
            "            self._journal.soon(self._piece)\n", "            self._asked = False\n",
            (PIECES + "test_no_time_passes_between_two_pieces",)),
    Planted("work in pieces goes on whoever appends", "broker/journal.py",
            "        if self.log.max_offset == self.end or began_ns >= self._others_until_ns:\n", "        if True:\n",
            ("tests/broker/test_journal.py::test_work_in_pieces_leaves_half_of_the_time_to_who_appends",)),
    *deciding.PLANTED,
)
