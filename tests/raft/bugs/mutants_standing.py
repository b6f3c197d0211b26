"""Mutants of table G: each lets something wait, or stay, without end; the named tests must turn red."""

from __future__ import annotations

from tests.raft.bugs.mutant import Impossible, Mutant

TESTS = "tests/raft/bugs/test_standing.py::"

MUTANTS = [
    Mutant("G1", "raft/held.py",
           old="        sends.pop(key, None)\n        sends[key] = send\n",
           new="        sends[key, send.after, id(send)] = send\n",
           tests=(TESTS + "test_BUG_G1_a_sync_that_hangs_across_a_change_of_leader_holds_a_handful_of_replies",)),
    Mutant("G1", "raft/held.py",
           old="            if sends[key].after > token:\n",
           new="            if False:\n",
           tests=(TESTS + "test_BUG_G1_of_what_says_the_same_the_latest_is_held_in_the_order_of_tokens",)),
    Mutant("G1", "raft/held.py",
           old="        sends.pop(key, None)\n",
           new="",
           tests=(TESTS + "test_BUG_G1_of_what_says_the_same_the_latest_is_held_in_the_order_of_tokens",)),
    Mutant("G1", "raft/held.py",
           old="        return send.peer, kind, message.probe  # type: ignore[union-attr]\n",
           new="        return send.peer, kind\n",
           tests=(TESTS + "test_BUG_G1_of_what_says_the_same_the_latest_is_held_in_the_order_of_tokens",)),
    Mutant("G1", "raft/held.py",
           old="        if len(sends) > HELD_MAX:\n",
           new="        if False:\n",
           tests=(TESTS + "test_BUG_G1_no_more_than_so_many_messages_are_held_back",)),
    Mutant("G2", "raft/following.py",
           old="            if core.disk_lags:  # the leader",
           new="            if False:  # the leader",
           tests=(TESTS + "test_BUG_G2_tails_that_are_overwritten_fill_the_queue_of_a_disk_that_hangs_to_its_limit",)),
    Mutant("G2", "raft/following.py",
           old="                expected = frame.first\n                break\n",
           new="                break\n",
           tests=(TESTS + "test_BUG_G2_what_a_follower_does_not_take_it_does_not_acknowledge",)),
    Mutant("G2", "raft/leadership.py",
           old="        if core.disk_lags:\n",
           new="        if False:\n",
           tests=(TESTS + "test_BUG_G2_a_leader_whose_own_disk_hangs_takes_so_much_and_no_more",)),
    Mutant("G2", "raft/replica.py",
           old="            self.unsynced_bytes -= size\n",
           new="",
           tests=(TESTS + "test_BUG_G2_tails_that_are_overwritten_fill_the_queue_of_a_disk_that_hangs_to_its_limit",)),
    Mutant("G3", "raft/replica.py",
           old=" and not self._withheld and len(self._unsynced) < WRITES_MAX:",
           new=" and not self._withheld:",
           tests=(TESTS + "test_BUG_G3_terms_that_rise_while_a_disk_hangs_share_a_write",)),
]

IMPOSSIBLE: list[Impossible] = []
