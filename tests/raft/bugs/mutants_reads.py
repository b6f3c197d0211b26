"""Mutants of table Q: each removes one guard of reads, leases and clocks; the named tests must turn red."""

from __future__ import annotations

from tests.raft.bugs.mutant import Impossible, Mutant

TESTS = "tests/raft/bugs/test_reads.py::"

MUTANTS = [
    Mutant("Q1", "raft/reads.py",
           old="if self._waiting and not self._asked and leadership.own_term_committed:",
           new="if self._waiting and not self._asked:",
           tests=(TESTS + "test_BUG_Q1_no_read_index_before_the_first_commit_of_the_term",)),
    Mutant("Q2", "raft/reads.py",
           old="            self.round += 1\n",
           new="            self.round = 1\n",
           tests=(TESTS + "test_BUG_Q2_answers_to_an_earlier_round_complete_no_later_one",)),
    Mutant("Q3", "raft/leadership.py",
           old="return start >= self.lease_floor and core.now < start + length",
           new="return start >= self.lease_floor",
           tests=(TESTS + "test_BUG_Q3_a_lease_ends_before_another_leader_can_be_elected",)),
    Mutant("Q5", "raft/leadership.py",
           old="return start >= self.lease_floor and core.now < start + length",
           new="return core.now < start + length",
           tests=(TESTS + "test_BUG_Q5_a_pause_shorter_than_the_lease_voids_it_too",)),
    Mutant("Q6", "raft/leadership.py",
           old="length = core.rules.lease_ns * (100 - core.config.clock_drift_percent) // 100",
           new="length = core.rules.lease_ns",
           tests=(TESTS + "test_BUG_Q6_the_lease_leaves_room_for_clock_drift",)),
    Mutant("Q6", "raft/hello.py",
           old="    if own.lease_ms != theirs.lease_ms and own.lease_ms and theirs.lease_ms:\n",
           new="    if own.lease_ms and not theirs.lease_ms and False:\n",
           tests=(TESTS + "test_BUG_Q6_voters_that_keep_a_shorter_silence_are_refused_at_the_door",)),
    Mutant("Q7", "raft/reads.py",
           old="        if leadership.transfer.busy:\n            raise Rejected(RejectReason.TRANSFERRING)\n",
           new="",
           tests=(TESTS + "test_BUG_Q7_reads_are_gated_during_a_hand_over_like_writes",)),
    Mutant("Q8", "raft/leadership.py",
           old="return quorum_value(core.membership.voters, core.membership.outgoing, seen) >= number",
           new="return quorum_value(core.membership.everyone, core.membership.outgoing, seen) >= number",
           tests=(TESTS + "test_BUG_Q8_a_read_round_needs_the_voters_quorum",)),
    Mutant("Q8", "raft/leadership.py",
           old="return quorum_value(core.membership.voters, core.membership.outgoing, seen) >= number",
           new="return quorum_value(core.membership.voters, (), seen) >= number",
           tests=(TESTS + "test_BUG_Q8_while_joint_a_read_needs_both_halves",)),
    Mutant("Q9", "raft/reads.py",
           old="        for ticket, origin in (*self._asked, *self._waiting, *((ticket, None)",
           new="        for ticket, origin in (*self._asked, *((ticket, None)",
           tests=(TESTS + "test_BUG_Q9_every_read_ends",)),
    Mutant("Q10", "raft/rules/dledger.py",
           old="    lease_ns = 0\n",
           new="    lease_ns = 2_000 * MS\n",
           tests=(TESTS + "test_BUG_Q10_no_lease_without_promised_silence",)),
    Mutant("Q11", "raft/leadership.py",
           old="        self.reads.refuse_all()\n",
           new="",
           tests=(TESTS + "test_BUG_Q11_reads_end_with_the_leadership_and_free_their_memory",)),
    Mutant("Q12", "raft/replica.py",
           old="        elif self.installing:\n            raise Rejected(RejectReason.INSTALLING)\n",
           new="",
           tests=(TESTS + "test_BUG_Q12_no_read_while_a_snapshot_is_installed",)),
    Mutant("Q13", "raft/reads.py",
           old="            if leadership.round_confirmed(self.round):\n                self.advance()\n",
           new="            if core.applied_index >= self._round_index:\n"
               "                asked, self._asked = self._asked, []\n"
               "                for ticket, origin in asked:\n"
               "                    self._answer(ticket, origin, Code.SUCCESS, self._round_index)\n",
           tests=(TESTS + "test_BUG_Q13_confirmation_comes_first_even_if_apply_is_current",)),
    Mutant("Q14", "raft/transfer.py",
           old="            leadership.lease_dead = True\n",
           new="",
           tests=(TESTS + "test_BUG_Q14_the_lease_is_gone_once_the_successor_was_told",)),
]
IMPOSSIBLE = [
    Impossible("Q4", why="no core can read a clock: time comes in as an argument, and the wall clock's number is only "
                         "copied into frames",
               assertion="tests/raft/bugs/test_reads.py: cores import no clock; pyproject.toml: the layer contract"),
]
