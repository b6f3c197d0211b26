"""Mutants of table F: each removes one guard against what a node forgot; the named tests must turn red."""

from __future__ import annotations

from tests.raft.bugs.mutant import Impossible, Mutant

TESTS = "tests/raft/test_forgotten.py::"
MARKS = "tests/raft/storage/test_mark.py::"
COUNTS = TESTS + "test_BUG_F2_until_it_holds_what_it_had_acknowledged_it_counts_for_nothing"

MUTANTS = [
    Mutant("F1", "raft/leadership.py",
           old="        self._add_peer(progress.peer)\n        fresh = self.peers[progress.peer]\n",
           new="        fresh = progress\n",
           tests=(TESTS + "test_BUG_F1_a_voter_whose_older_copy_is_put_back_is_fed_from_its_real_end",
                  TESTS + "test_BUG_F1_it_is_fed_by_a_snapshot_where_the_log_does_not_reach_back")),
    Mutant("F2", "raft/leadership.py",
           old="        fresh.owed, fresh.lapsed = owed, progress.lapsed\n",
           new="        fresh.owed, fresh.lapsed = 0, progress.lapsed\n",
           tests=(COUNTS,)),
    Mutant("F2", "raft/leadership.py",
           old="            return progress.read_round if progress and node_id not in self.uncounted else 0",
           new="            return progress.read_round if progress and node_id not in core.strangers else 0",
           tests=(COUNTS,)),
    Mutant("F2", "raft/leadership.py",
           old="        start = self.quorum_contact(counted=True)\n",
           new="        start = self.quorum_contact()\n",
           tests=(COUNTS,)),
    Mutant("F3", "raft/leadership.py",
           old="        if reply.last_index < progress.match and reply.sequence > progress.match_sequence:\n",
           new="        if reply.last_index < progress.match:\n",
           tests=(TESTS + "test_BUG_F3_a_late_answer_of_the_same_life_is_no_loss",)),
    Mutant("F4", "raft/leadership.py",
           old="        if index < progress.match and reply.sequence > progress.match_sequence:\n"
               "            self._forgot(progress)\n            return\n",
           new="        if index < progress.match:\n            return\n",
           tests=(TESTS + "test_BUG_F4_another_entry_where_it_had_acknowledged_ours_is_a_loss_too",)),
    Mutant("F5", "raft/voting.py",
           old="    if core.lapse is not None:\n",
           new="    if core.lapse is None and core.faulted:\n",
           tests=(TESTS + "test_BUG_F5_a_node_that_knows_of_its_loss_neither_votes_nor_asks_for_votes",)),
    Mutant("F5", "raft/replica.py",
           old="not self.installing and self.lapse is None\n",
           new="not self.installing\n",
           tests=(TESTS + "test_BUG_F5_a_single_voter_that_lost_its_end_waits_for_that_act",)),
    Mutant("F6", "raft/regaining.py",
           old="        held = min(core.following.verified, core.log.durable_index)\n",
           new="        held = 0\n",
           tests=(TESTS + "test_BUG_F6_it_votes_again_once_a_leader_has_given_it_what_it_lost",)),
    Mutant("F7", "raft/following.py",
           old="                hint, hint_term, read_round = core.lapse.index, core.lapse.term, 0\n",
           new="                read_round = 0\n",
           tests=(TESTS + "test_BUG_F7_a_leader_counts_it_for_nothing_while_it_says_so",)),
    Mutant("F7", "raft/leadership.py",
           old="            progress.lapsed, progress.lapse_sequence = True, progress.sequence\n"
               "            self.recount()\n",
           new="            progress.lapsed, progress.lapse_sequence = True, progress.sequence\n",
           tests=(TESTS + "test_BUG_F7_a_leader_counts_it_for_nothing_while_it_says_so",)),
    Mutant("F8", "raft/regaining.py",
           old="(reply.ticket, peer, reply.term) != (self._question, core.leader, core.term)",
           new="(peer, reply.term) != (core.leader, core.term)",
           tests=(TESTS + "test_BUG_F8_what_an_older_life_was_told_is_committed_does_not_end_a_later_lapse",)),
    Mutant("F9", "raft/replica.py",
           old="        self._pending().lapse = lapse\n",
           new="",
           tests=(TESTS + "test_BUG_F9_a_loss_is_accepted_on_purpose",)),
    Mutant("F10", "raft/storage/segment.py",
           old="            self._guard(self._mark.keep, self._catalog, self._synced)\n",
           new="            pass\n",
           tests=(MARKS + "test_BUG_F10_an_end_that_rots_while_the_process_is_dead_is_missed",)),
    Mutant("F11", "raft/storage/mark.py",
           old="            slot.sequence = sequence  # from here on these numbers are given to other blocks\n"
               "            self._put(number, slot)\n",
           new="            slot.sequence = sequence\n",
           tests=(MARKS + "test_BUG_F11_a_lapse_is_kept_until_it_is_said_to_be_over",)),
    Mutant("F12", "raft/storage/mark.py",
           old="                forgotten[number] = known\n",
           new="                pass\n",
           tests=(MARKS + "test_BUG_F12_a_vote_that_rots_is_given_back_by_the_mark",)),
    Mutant("F13", "raft/storage/segment.py",
           old="                self._mark.keep_lapse(write.group, write.lapse)\n",
           new="                self._mark.keep_lapse(write.group, write.lapse)\n"
               "            self._mark.keep(self._catalog, self._sequence)\n",
           tests=(MARKS + "test_BUG_F13_no_power_cut_looks_like_a_loss",)),
]
IMPOSSIBLE: list[Impossible] = []
