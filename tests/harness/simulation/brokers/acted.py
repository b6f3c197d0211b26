"""Planted bugs of slaves that act for their master: what is lent and lost, and what a ledger forgets too early."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

LENDING: Final = "broker/pop/lending.py"
ENTRIES: Final = "broker/ledger/entries.py"
LEDGER: Final = "broker/ledger/part.py"
LENT: Final = "tests/broker/pop/test_lending.py::"
LOCKS: Final = "broker/consumers/locks.py"
QUORUM: Final = "broker/locks/quorum.py"
ONE: Final = "tests/broker/locks/test_quorum.py::test_one_client_holds_a_queue_whatever_is_late_lost_or_forgotten"
TURNS: Final = ("tests/broker/ledger/test_entries.py::"
                "test_of_slaves_that_act_in_turn_the_later_one_counts")
KEPT: Final = "tests/broker/ledger/test_part.py::"

PLANTED: Final = (
    Planted("what a group is past is taken back with another queue's", LENDING,
            "                                 if not link.settled], each.ticket)\n",
            "                                 if True], each.ticket)\n",
            (LENT + "test_a_queue_whose_offset_has_moved_is_not_taken_back_with_another",)),
    Planted("another time is taken back though the old one may be acknowledged", LENDING,
            "            if why_not and not stored:\n", "            if why_not:\n",
            (LENT + "test_a_new_time_is_taken_back_only_if_the_old_one_surely_stays",)),
    Planted("a master forgets what its log does not say yet", LEDGER,
            "        if role.leads:\n            await self._each(others.values(), self._is_in_log)\n        elif ",
            "        if ",
            (KEPT + "test_a_decision_outlives_the_masters_disk_until_the_slaves_log_has_it",)),
    Planted("slaves forget what only the master's ledger has", LEDGER,
            "BUT_TABLES if asked.log_end is None else OF_TIMERS", "OF_TIMERS",
            (KEPT + "test_a_decision_outlives_the_masters_disk_until_the_slaves_log_has_it",)),
    Planted("slaves forget what only the master's log has", LEDGER,
            "if asked.log_end is not None and self._durable_end < asked.log_end:", "if False:",
            (KEPT + "test_who_holds_less_of_the_log_forgets_nothing_that_it_says",)),
    Planted("a mark that is not on disk counts", LEDGER,
            "if end <= durable]", "if True]",
            ("tests/broker/transactions/test_standing_in.py::"
             "test_a_decision_stays_in_the_masters_ledger_until_its_mark_is_on_disk",)),
    Planted("what a slave never held is delivered, it says", "broker/schedule/machine.py",
            "        if not level.lacks:\n", "        if True:\n",
            ("tests/broker/schedule/test_machine.py::"
             "test_a_slave_that_lacks_the_first_messages_does_not_say_that_they_are_delivered",)),
    Planted("what a slave never held is looked for as it begins to act alone", "broker/schedule/machine.py",
            "        level.lacks |= self._is_lacking(level, bounds[0])", "        level.lacks |= False",
            ("tests/broker/schedule/test_machine.py::test_a_slave_that_gets_the_last_messages_while_it_acts_"
             "does_not_say_that_those_before_are_delivered",)),
    Planted("records of POP that a slave never had are done with, it says", "broker/pop/reviving.py",
            "core.processed > self.kept and not self.lacks\n", "core.processed > self.kept\n",
            ("tests/broker/pop/test_acting.py::test_records_that_a_slave_never_had_are_left_to_its_master",)),
    Planted("terms are counted, whatever the time is", ENTRIES, "if wall_ms > self._at.term:", "if False:",
            (TURNS,)),
    Planted("what another slave noted meanwhile is not thought of", ENTRIES,
            "known.value == value and known.mark.term >= since_ms:", "known.value == value:", (TURNS,)),
    Planted("an offset that a slave has is not noted again", LEDGER,
            "queue_id), offset, again=True)", "queue_id), offset)",
            (KEPT + "test_an_offset_that_is_committed_again_counts_after_what_another_slave_was_told",)),
    Planted("who begins to decide has read nothing", LEDGER,
            "in (None, self._learnt_ns) else self._unread", "in (None, self._learnt_ns) else \"\"",
            (KEPT + "test_who_begins_to_decide_has_read_what_others_decided",)),
    Planted("who does not answer is not waited for", LEDGER,
            "if now_ns - since_ns < LEARN_NS:", "if False:",
            (KEPT + "test_a_member_that_does_not_answer_is_waited_for_so_long",)),
    Planted("what is in flight is not waited for", LEDGER,
            "return later() if asked.decided and self._notes else self._page(command, asked)",
            "return self._page(command, asked)",
            (KEPT + "test_what_is_in_flight_is_decided_before_others_read",)),
    Planted("a right that ended and began again is one", "broker/acting/right.py",
            "for time_ns in (*sorted(times), now_ns):", "for time_ns in (now_ns,):",
            ("tests/broker/acting/test_right.py::"
             "test_a_right_that_ended_and_began_while_the_process_stood_still_is_another_one",)),
    Planted("what other slaves wrote earlier comes behind", ENTRIES,
            "            self._order.sort(key=attrgetter(\"mark\"))\n", "            pass\n",
            ("tests/broker/ledger/test_entries.py::"
             "test_the_last_entry_of_each_thing_counts_in_whatever_order_they_come",)),
    Planted("decisions are forgotten with offsets", ENTRIES,
            "for kind, last in self._last.items() if kind not in but\n", "for kind, last in self._last.items()\n",
            (KEPT + "test_what_is_not_in_the_log_is_forgotten_by_nobody",)),
    Planted("a broker that forgot its grants grants anew at once", LOCKS,
            "if not lasts and now_ns < self.silent_until_ns:", "if False:", (ONE,)),
    Planted("word of an old unlock takes a lock that is asked for again", LOCKS,
            "if queue in held and held[queue].grant == grant:", "if queue in held:", (ONE,)),
    Planted("a renewal is the grant before", LOCKS,
            "            held[queue] = _Held(client_id, now_ns + HELD_MS * 1_000_000, self._grant, not own)\n"
            "            mine[queue] = self._grant\n",
            "            if renewed and there is not None:\n                self._grant = there.grant\n"
            "            held[queue] = _Held(client_id, now_ns + HELD_MS * 1_000_000, self._grant, not own)\n"
            "            mine[queue] = self._grant\n", (ONE,)),
    Planted("fewer than half are a majority", QUORUM,
            "return total_replicas // 2 + 1", "return total_replicas // 2", (ONE,)),
    Planted("a client gives back what another one holds", QUORUM,
            "if known is not None and known[0] == client:", "if known is not None:",
            ("tests/broker/locks/test_quorum.py::test_what_a_client_gives_back",)),
)
