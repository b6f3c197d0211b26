"""Mutants of table V: each removes one guard of liveness; the named tests must turn red."""

from __future__ import annotations

from tests.raft.bugs.mutant import Impossible, Mutant

TESTS = "tests/raft/bugs/test_liveness.py::"

MUTANTS = [
    Mutant("V1", "raft/candidacy.py",
           old="        self.learn_term(outcome.known_term)\n",
           new="",
           tests=(TESTS + "test_BUG_V1_a_refused_probe_teaches_the_term",)),
    Mutant("V2", "raft/hello.py",
           old="if own.rules != theirs.rules and own.rules and theirs.rules:",
           new="if own.rules and not theirs.rules:",
           tests=(TESTS + "test_BUG_V2_a_group_with_mixed_rules_is_refused_at_the_door",)),
    Mutant("V3", "raft/rules/strict.py",
           old="return me.heard_leader_ns < self.lease_ns and me.leader != candidate",
           new="return me.leader != candidate",
           tests=(TESTS + "test_BUG_V3_a_dead_leaders_followers_do_not_protect_it_for_ever",)),
    Mutant("V4", "raft/rules/strict.py",
           old="        if highest > tally.term:\n",
           new="        if highest < 0:\n",
           tests=(TESTS + "test_BUG_V4_a_node_in_a_higher_term_comes_back_within_a_timeout",)),
    Mutant("V5", "raft/rules/strict.py",
           old="        if behind is not None:\n",
           new="        if behind is not None and not request.probe:\n",
           tests=(TESTS + "test_BUG_V5_a_probe_judges_the_log",)),
    Mutant("V7", "raft/rules/strict.py",
           old="        if tally.quorum_contact_ns > self.lease_ns:\n",
           new="        if tally.quorum_contact_ns > 1 << 62:\n",
           tests=(TESTS + "test_BUG_V7_a_leader_that_can_send_but_not_hear_gives_way",)),
    Mutant("V8", "raft/replica.py",
           old="(Ratis 980).\n            self.following.wait_for_leader()\n",
           new="(Ratis 980).\n            pass\n",
           tests=(TESTS + "test_BUG_V8_patience_starts_when_the_vote_is_durable",)),
    Mutant("V9", "raft/leadership.py",
           old="        if self.transfer.busy:\n            raise Rejected(RejectReason.TRANSFERRING)\n"
               "        if core.writes.disk_full:\n",
           new="        if core.writes.disk_full:\n",
           tests=(TESTS + "test_BUG_V9_writes_stop_during_a_hand_over_and_resume_after_it",)),
    Mutant("V10", "raft/rules/strict.py",
           old="return RoundPlan(term, probe=not (handed_over or passed))",
           new="return RoundPlan(term, probe=not passed)",
           tests=(TESTS + "test_BUG_V10_the_target_of_a_hand_over_asks_for_votes_at_once",)),
    Mutant("V12", "raft/leadership.py",
           old="self._to_probe(progress, progress.match + 1, \"no answer\")",
           new="pass",
           tests=(TESTS + "test_BUG_V12_a_stuck_pipeline_is_torn_down",)),
    Mutant("V14", "raft/leadership.py",
           old="            self._next_beat = max(planned, now - self.heartbeat_ns + 1) + self.heartbeat_ns",
           new="            self._next_beat = now + self.heartbeat_ns",
           tests=(TESTS + "test_BUG_V14_late_ticks_do_not_add_up",)),
    Mutant("V15", "raft/leadership.py",
           old="return self.core.commit_index >= self.own_first",
           new="return True",
           tests=(TESTS + "test_BUG_V15_after_a_restart_reads_cover_the_nodes_own_tail",)),
    Mutant("V16", "raft/rules/strict.py",
           old="        return RoundPlan(term, probe=not (handed_over or passed))\n",
           new="        return RoundPlan(term, probe=False)\n",
           tests=(TESTS + "test_BUG_V16_a_removed_node_that_does_not_know_it_disturbs_nobody",)),
]
IMPOSSIBLE = [
    Impossible("V6", why="no decision of the core reads an address; the leader is an id everywhere",
               assertion="tests/raft/bugs/test_liveness.py: all addresses change under a leader that stays"),
    Impossible("V11", why="the core waits for nothing: a change advances when a quorum acknowledged, whoever that is",
               assertion="tests/raft/bugs/test_liveness.py: a change completes while one voter is cut off"),
    Impossible("V13", why="replies are made when a message arrives or the disk reports; no code path from applying "
                          "to replying exists",
               assertion="tests/raft/bugs/test_liveness.py: heartbeats are answered while nothing is applied"),
]
