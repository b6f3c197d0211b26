"""Planted bugs of slaves that act for their master: what is lent and lost, and what a ledger forgets too early."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

LENDING: Final = "broker/pop/lending.py"
ENTRIES: Final = "broker/ledger/entries.py"
LEDGER: Final = "broker/ledger/part.py"
LENT: Final = "tests/broker/pop/test_lending.py::"
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
            "() if asked.log_end is not None else LASTING)", "())",
            (KEPT + "test_a_decision_outlives_the_masters_disk_until_the_slaves_log_has_it",)),
    Planted("slaves forget what only the master's log has", LEDGER,
            "if asked.log_end is not None and self._durable_end < asked.log_end:", "if False:",
            (KEPT + "test_who_holds_less_of_the_log_forgets_nothing_that_it_says",)),
    Planted("a mark that is not on disk counts", LEDGER,
            "if end <= durable]", "if True]",
            ("tests/broker/transactions/test_standing_in.py::"
             "test_a_decision_stays_in_the_masters_ledger_until_its_mark_is_on_disk",)),
    Planted("what other slaves wrote earlier comes behind", ENTRIES,
            "            self._order.sort(key=attrgetter(\"mark\"))\n", "            pass\n",
            ("tests/broker/ledger/test_entries.py::"
             "test_the_last_entry_of_each_thing_counts_in_whatever_order_they_come",)),
    Planted("decisions are forgotten with offsets", ENTRIES,
            "for kind, last in self._last.items() if kind not in but\n", "for kind, last in self._last.items()\n",
            (KEPT + "test_what_is_not_in_the_log_is_forgotten_by_nobody",)),
)
