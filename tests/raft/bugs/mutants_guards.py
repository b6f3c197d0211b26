"""Mutants of table U: what outsiders changed while every test stayed green; the named tests must turn red."""

from __future__ import annotations

from tests.raft.bugs.mutant import Impossible, Mutant

TESTS = "tests/raft/bugs/test_guards.py::"

MUTANTS = [
    Mutant("U1", "raft/tracker.py",
           old="membership.voters, membership.outgoing, self._counted_contact if counted else self._contact)",
           new="membership.voters, (), self._counted_contact if counted else self._contact)",
           tests=(TESTS + "test_BUG_U1_while_joint_a_lease_needs_both_halves",)),
    Mutant("U2", "raft/progress.py",
           old="            self.contact_ns = times.popleft()[1]\n",
           new="            self.contact_ns = (times.popleft(), now)[1]\n",
           tests=(TESTS + "test_BUG_U2_a_late_answer_extends_a_lease_from_when_its_question_left",)),
    Mutant("U3", "raft/candidacy.py",
           old="elif reply.result == VoteResult.ACCEPT and not tally.probe and reply.term != tally.term:",
           new="elif reply.result == VoteResult.ACCEPT and not tally.probe and reply.term > tally.term:",
           tests=(TESTS + "test_BUG_U3_a_grant_of_an_earlier_term_and_life_counts_for_nothing",)),
    Mutant("U4", "raft/writes.py",
           old="        self._under_way = deque((token, 0, at, size) for token, _, at, size in self._under_way)\n",
           new="",
           tests=(TESTS + "test_BUG_U4_a_late_sync_of_before_an_install_says_nothing_of_the_log_behind_it",)),
    Mutant("U5", "raft/log.py",
           old="        self.durable_index = min(self.durable_index, last)\n",
           new="",
           tests=(TESTS + "test_BUG_U5_what_replaced_a_durable_suffix_is_not_durable_yet",)),
    Mutant("U6", "raft/replica.py",
           old="if self.term == 0 or self.membership.voters == (node_id,):",
           new="if self.term <= 1 or self.membership.voters == (node_id,):",
           tests=(TESTS + "test_BUG_U6_a_voter_restarted_in_the_first_term_keeps_its_silence",)),
    Mutant("U7", "raft/reads.py",
           old="            if index > core.commit_index:\n                break\n",
           new="            if index > core.commit_index + 1:\n                break\n",
           tests=(TESTS + "test_BUG_U7_a_read_through_the_log_waits_for_its_own_entry",)),
    Mutant("U8", "raft/following.py",
           old="if reply.ticket not in self._questions or peer != core.leader or reply.term != core.term:",
           new="if reply.ticket not in self._questions or reply.term != core.term:",
           tests=(TESTS + "test_BUG_U8_a_read_is_answered_by_the_leader_it_was_asked_of",)),
    Mutant("U8", "raft/following.py",
           old="if reply.ticket not in self._questions or peer != core.leader or reply.term != core.term:",
           new="if reply.ticket not in self._questions or peer != core.leader:",
           tests=(TESTS + "test_BUG_U8_a_read_is_answered_by_the_leader_it_was_asked_of",)),
    Mutant("U9", "raft/log.py",
           old="        self.purged_term = self.term_at(index)\n",
           new="        self.purged_term = self.last_term\n",
           tests=(TESTS + "test_BUG_U9_the_boundary_of_a_purge_has_the_term_of_its_own_entry",)),
    Mutant("U10", "raft/following.py",
           old="        if core.installing or (core.writes.disk_full and message.frames):\n",
           new="        if core.writes.disk_full and message.frames:\n",
           tests=(TESTS + "test_BUG_U10_nothing_is_announced_while_a_snapshot_is_installed",)),
    Mutant("U11", "raft/replica.py",
           old="if peer in self.identities.strangers and not isinstance(message, (Append, SnapshotChunk)):",
           new="if peer in self.identities.strangers and isinstance(message, AppendReply):",
           tests=(TESTS + "test_BUG_U11_the_vote_of_a_stranger_does_not_count",)),
    Mutant("U12", "raft/changes.py",
           old="                and not leadership.transfer.busy and not core.writes.disk_full)",
           new="                and not core.writes.disk_full)",
           tests=(TESTS + "test_BUG_U12_no_membership_entry_is_appended_while_leadership_is_handed_over",)),
    Mutant("U13", "raft/snapshots.py",
           old="or message is None or core.leader != peer or core.installing:",
           new="or message is None or core.installing:",
           tests=(TESTS + "test_BUG_U13_a_piece_stored_for_an_earlier_leader_is_not_answered_to_it",)),
    Mutant("U14", "raft/following.py",
           old="""                        core.dropped(peer, message, "a frame that is here in part")
                        return None
""",
           new="                        pass\n",
           tests=(TESTS + "test_BUG_U14_a_frame_that_is_here_in_part_is_not_taken_for_whole",)),
    Mutant("U15", "raft/driver.py",
           old="if output.after <= self.durable_token:",
           new="if output.after <= self.submitted:",
           tests=(TESTS + "test_BUG_U15_nothing_is_said_of_a_term_that_is_on_no_disk",)),
    Mutant("U17", "raft/storage/segment.py",
           old="        self._usable()\n        if self._synced != self._sequence:\n",
           new="        self._usable()\n        if self._purge_pending:\n            self._guard(self._retire)\n"
               "        if self._synced != self._sequence:\n",
           tests=(TESTS + "test_BUG_U17_a_segment_is_let_go_only_when_what_made_it_dead_is_durable",)),
]
IMPOSSIBLE = [
    Impossible("U16", why="a segment's name is synced before its first byte is written and before the next name is "
                          "given up, so a name that is in the cache only names a segment without content, which "
                          "opening discards and syncs: the sync at the start of an opening is a second one",
               assertion=TESTS + "test_BUG_U16_the_name_of_a_segment_that_was_in_the_cache_only_survives_a_power_cut"),
]
