"""Planted bugs of what a master keeps while a controller, a slave or a disk stands still."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

PLANTED: Final = (
    Planted("a set is kept for each time that it was asked for", "broker/ha/insync.py",
            "            del self.asked[earlier]\n            self._before_ns[members] = self._asked_ns.pop(earlier)\n",
            "            del earlier\n", ("INV_B54",)),
    Planted("a set that was asked for before is forgotten with one refusal", "broker/ha/insync.py",
            "            if before_ns is not None and before_ns > void:", "            if False:",
            ("tests/broker/ha/test_insync.py::test_a_refusal_says_nothing_of_an_earlier_request_for_the_same_set",)),
    Planted("members asked for are forgotten with the process", "broker/ha/switching.py",
            "        return asked.members - role.sync_state_set if counts else frozenset()\n",
            "        return frozenset()\n",
            ("tests/broker/ha/test_asked.py::test_a_member_that_was_asked_for_counts_after_a_kill",
             "tests/broker/ha/test_asked.py::test_a_member_that_was_asked_for_counts_until_a_controller_says")),
    Planted("a request leaves before it is written down", "broker/replicas/manager.py",
            "        if not held.may_ask(members):\n            return []\n", "",
            ("tests/broker/replicas/test_manager.py::test_a_member_that_cannot_be_written_down_is_asked_for_later",)),
    Planted("the older connection of a slave stays", "broker/ha/master.py",
            '        return [Close(older, f"slave {message.broker_id} has connected again")]\n', "        return []\n",
            ("tests/broker/ha/test_replication.py::test_h7_two_connections_of_one_slave_are_one_holder",)),
    Planted("puts wait for slaves without end", "broker/ha/acks.py",
            "        if now_ns < self._due_ns:\n            return\n", "        return\n", ("INV_B54",)),
    Planted("puts wait for the disk without end", "broker/puts.py",
            "        while unflushed and unflushed[0].began_ns + self._sync_flush_timeout_ns <= now_ns:\n",
            "        while False and unflushed:\n", ("INV_B54",), "disks"),
)
