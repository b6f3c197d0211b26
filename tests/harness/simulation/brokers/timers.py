"""Planted bugs of timers: which wait for which moment, when a slot is done, and who was delivered already."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

TIMER: Final = "broker/timer/"
MACHINE: Final = TIMER + "machine.py"
ADMISSION: Final = TIMER + "admission.py"
LETTERS: Final = TIMER + "letters.py"
DELIVERED: Final = TIMER + "delivered.py"
DELIVERY: Final = TIMER + "delivery.py"
ELSEWHERE: Final = TIMER + "elsewhere.py"
SLOTS: Final = "tests/broker/timer/test_machine.py::"
ADMITTED: Final = "tests/broker/timer/test_admission.py::"
KNOWN: Final = "tests/broker/timer/test_delivered.py::"
ACTED: Final = "tests/broker/timer/test_elsewhere.py::"
LACKED: Final = ACTED + "test_a_timer_that_only_the_lost_master_had_comes_late_and_no_other_comes_twice"
SETTLED: Final = "tests/broker/timer/test_store.py::test_what_is_settled_is_in_slots_that_are_done_as_the_disk_says"
BEHIND: Final = ("tests/broker/timer/test_markers.py::"
                 "test_who_rolls_behind_its_marker_is_taken_back",)

PLANTED: Final = (
    # --- which slot
    Planted("a moment that is still going on is opened", MACHINE, "slot_ms >= now_ms", "slot_ms > now_ms",
            (SLOTS + "test_slots_come_in_their_order_and_units_in_the_queues",)),
    Planted("a slot is done before the ones that began before it", MACHINE,
            "self.store.done_before(begun[0] if begun else self._open_ms)", "self.store.done_before(self._open_ms)",
            (SLOTS + "test_a_slot_is_done_when_all_of_it_is_and_later_ones_go_on",)),
    Planted("a late timer is left in a slot that nobody opens again", MACHINE,
            "self.started and slot_ms < self._open_ms", "False",
            (SLOTS + "test_a_late_one_is_handed_out_at_once_and_holds_its_slot",)),
    Planted("a late timer holds no slot", MACHINE,
            "                self._begin(slot_ms)\n                self._late.append(Due(slot_ms, unit, self._run))\n",
            "                self._begin(self._open_ms)\n"
            "                self._late.append(Due(self._open_ms, unit, self._run))\n",
            (SLOTS + "test_a_late_one_is_handed_out_at_once_and_holds_its_slot",)),
    Planted("a slot that is being read hands out a marker that comes meanwhile twice", MACHINE,
            "                if unit.at >= log_end:\n                    continue\n", "",
            (SLOTS + "test_a_marker_that_comes_into_a_slot_that_is_being_read_comes_once",)),
    Planted("what a former mastership ordered counts in the next one", MACHINE,
            "return self.started and due.run == self._run", "return self.started",
            (SLOTS + "test_a_new_run_begins_where_all_is_done_and_the_old_one_counts_no_more",)),
    Planted("a marker that rolls takes nothing back any more", MACHINE,
            "kind | (DELETE if deletes else 0)", "kind | (DELETE if deletes and not kind & ROLL else 0)",
            ("tests/broker/timer/test_machine.py::test_a_marker_rolls_as_its_message_does",)),
    # --- which messages
    Planted("an exact time is delivered a second too late", ADMISSION, "(asked_ms - 1) // precision_ms",
            "asked_ms // precision_ms", (ADMITTED + "test_a_slot_is_as_long_as_the_precision",)),
    Planted("nothing is too far away", ADMISSION, "not 0 < asked_ms - now_ms <= keys.timer_max_delay_sec * 1_000",
            "not 0 < asked_ms - now_ms", (ADMITTED + "test_absurd_times_are_illegal",)),
    Planted("what grows too long later is admitted", ADMISSION, "size + ADDED_BYTES > PROPERTIES_BYTES_MAX",
            "size > PROPERTIES_BYTES_MAX", (ADMITTED + "test_what_could_never_be_delivered_is_refused",)),
    Planted("a marker takes back messages of other topics", LETTERS,
            "return self.topic, self.values.get(UNIQ_KEY, \"\"), self.out_ms",
            "return \"\", self.values.get(UNIQ_KEY, \"\"), self.out_ms",
            (ADMITTED + "test_a_marker_of_either_release_names_its_message",)),
    Planted("a marker of an older release names nothing", LETTERS,
            ".removeprefix(f\"{self.topic}+\")", "", (ADMITTED + "test_a_marker_of_either_release_names_its_message",)),
    Planted("a timer is delivered into the system's own topics", LETTERS, "if self.topic in _NOT_THERE", "if False",
            (ADMITTED + "test_what_has_nowhere_to_go",)),
    # --- which were taken back before they came
    Planted("markers of a former process are not looked for", DELIVERY,
            "if slot_ms >= self._spent_from or not letter.came_again:", "if True:", BEHIND),
    Planted("a new master takes all markers for known", DELIVERY,
            "self._spent_from, self._search = self._store.read_time_ms, self._through_done()",
            "self._spent_from, self._search = 0, self._through_done()", BEHIND),
    Planted("what rolls is done before the wheel has it again", DELIVERY,
            "        if due.unit.rolls:\n            self._rolled", "        if False:\n            self._rolled",
            ("tests/broker/timer/test_timers.py::"
             "test_what_rolls_later_than_it_is_due_is_not_done_before_it_comes",)),
    Planted("what rolled is taken for what stands before its marker", LETTERS,
            "return ROLL_TIMES in self.values or TIMER_MOVED in self.values", "return TIMER_MOVED in self.values",
            BEHIND),
    Planted("it is delivered before the search came to its slot", DELIVERY,
            "            self._again([due], SEARCH_PAUSE_MS)\n        return slot_ms >= self._spent_from",
            "            return True\n        return True", BEHIND),
    Planted("the search ends with the first slot that is empty", DELIVERY,
            "            self._spent_from = slot_ms\n            if empty",
            "            self._spent_from = 0 if empty else slot_ms\n            if empty", BEHIND),
    # --- which were delivered
    Planted("whoever claims a place has it", DELIVERED, "self._known.get(offset) == hash((topic, uniq_key))",
            "offset in self._known", (KNOWN + "test_what_was_delivered_is_known_by_place_topic_and_id",)),
    Planted("what stood in a log that was cut counts as delivered", DELIVERED, "self._order[-1][2] >= end",
            "self._order[-1][2] > end", (KNOWN + "test_a_log_that_is_cut_takes_it_back",)),
    Planted("what was delivered is forgotten before it is in the wheel", DELIVERED, " and order[0][1] < below", "",
            (KNOWN + "test_it_is_forgotten_when_the_slots_of_its_time_are_done",)),
    Planted("what came late to the wheel is forgotten before its slot is done", TIMER + "store.py",
            "        if slot == wheel.begin:\n", "        if False:\n", (SETTLED,)),
    Planted("what was delivered is forgotten before the disk says that its slot is done", TIMER + "store.py",
            "        self._settles = sure.read_time_ms, min(sure.below, self.done[1])\n",
            "        self.settled = self._settles = self.done\n", (SETTLED,)),
    Planted("what was delivered is forgotten before its slot is done", DELIVERED, "order[0][0] < read_time_ms",
            "order[0][0] <= read_time_ms", (KNOWN + "test_it_is_forgotten_when_the_slots_of_its_time_are_done",)),
    Planted("a killed process's marker stays where it came too late", TIMER + "store.py",
            "self._cut(min(at, claimed), place_of)", "self._cut(at, place_of)",
            ("tests/broker/timer/test_store.py::test_a_marker_that_was_late_for_its_slot_is_in_it_after_a_kill",)),
    # --- which were delivered by a slave that acted
    Planted("a slave says that it delivered what it never had", "broker/ledger/part.py",
            "str(done.below), 0)", "str(EVERY), 0)", (LACKED,)),
    Planted("a slave says that it delivered less than it said before", "broker/ledger/part.py",
            "done.time_ms > (self.ledger.get(thing) or 0):", "done.time_ms:",
            (ACTED + "test_a_slave_says_what_it_delivered_and_never_that_it_delivered_less",)),
    Planted("a member without a ledger lacked nothing", TIMER + "part.py",
            "self._offset_of(told.queue_offset)", "self._journal.end",
            (ACTED + "test_of_a_member_without_a_ledger_its_place_in_the_queue_says_what_it_lacked",)),
    Planted("what a slave lacked was delivered by it", ELSEWHERE,
            "each.begin <= offset < each.below for", "each.begin <= offset for",
            (ACTED + "test_a_timer_was_delivered_if_it_was_due_before_and_stands_below",)),
    Planted("of two slaves that acted in turn the last one counts", ELSEWHERE,
            "if not _says(new, each)]", "if False]",
            (ACTED + "test_of_slaves_that_acted_in_turn_each_one_counts_until_the_disk_is_past_it",)),
    Planted("what stood in front of a slave's log was delivered by it", ELSEWHERE,
            "each.begin <= offset < each.below for", "offset < each.below for",
            (ACTED + "test_a_timer_was_delivered_if_it_was_due_before_and_stands_below",)),
    Planted("what a slave delivered comes again", DELIVERY, "if self._is_elsewhere(due, unit.offset):", "if False:",
            (LACKED,)),
    Planted("what a slave delivered comes again from where it was moved to", DELIVERY,
            "letter.moved_from is not None and self._is_elsewhere(due, letter.moved_from)", "False", (LACKED,)),
    Planted("the next process does not know what a slave delivered", TIMER + "part.py",
            "Elsewhere(load(shared.files, DoneElsewhere, ELSEWHERE))", "Elsewhere(DoneElsewhere())", (LACKED,)),
    Planted("a timer that came late to a slave was delivered by it", TIMER + "store.py",
            "for slot, found in self._late.items() if slot >= self._wheel.begin)", "for slot, found in ())",
            ("tests/broker/timer/test_store.py::test_what_came_late_is_not_done_before_its_slot_is_over",)),
)
