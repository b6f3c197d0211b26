"""Mutants of table R: each removes one guard of replies, sessions and progress; the named tests must turn red."""

from __future__ import annotations

from tests.raft.bugs.mutant import Impossible, Mutant

TESTS = "tests/raft/bugs/test_replies.py::"

MUTANTS = [
    Mutant("R1", "raft/progress.py",
           old="        if match <= self.match:\n            return False\n",
           new="",
           tests=(TESTS + "test_BUG_R1_reordered_acknowledgements_never_lower_match",)),
    Mutant("R2", "raft/leadership.py",
           old="        if (progress is None or reply.session != progress.session or reply.term != core.term\n"
               "                or reply.sequence > progress.sequence):\n"
               "            core.dropped(peer, reply, \"another term, session or sequence\")  # raft-rejoin survey",
           new="        if (progress is None or reply.session != progress.session\n"
               "                or reply.sequence > progress.sequence):\n"
               "            core.dropped(peer, reply, \"another session or sequence\")",
           tests=(TESTS + "test_BUG_R2_an_acknowledgement_of_an_earlier_leadership_counts_for_nothing",)),
    Mutant("R3", "raft/leadership.py",
           old="        if (progress is None or reply.session != progress.session or reply.term != core.term\n"
               "                or reply.sequence > progress.sequence):\n"
               "            core.dropped(peer, reply, \"another term, session or sequence\")  # raft-rejoin survey",
           new="        if progress is None or reply.term != core.term:\n"
               "            core.dropped(peer, reply, \"another term\")",
           tests=(TESTS + "test_BUG_R3_an_acknowledgement_from_before_a_removal_is_of_another_session",)),
    Mutant("R4", "raft/identities.py",
           old="if peer in members and members[peer].incarnation and met and members[peer].incarnation != met)",
           new="if peer in members and met and members[peer].incarnation < b\"\")",
           tests=(TESTS + "test_BUG_R4_a_follower_that_lost_its_log_forms_no_quorum",)),
    Mutant("R5", "raft/leadership.py",
           old="if reply.sequence <= progress.resolved_sequence or progress.state == SNAPSHOT:",
           new="if progress.state == SNAPSHOT:",
           tests=(TESTS + "test_BUG_R5_a_conflict_that_arrives_after_success_is_history",)),
    Mutant("R5", "raft/leadership.py",
           old="previous = progress.match if progress.match >= log.purged_index else 0",
           new="previous = core.commit_index",
           tests=(TESTS + "test_BUG_R5_a_heartbeat_starts_at_the_known_match",)),
    Mutant("R6", "raft/tracker.py",
           old="return quorum_value(membership.voters, membership.outgoing, self.counted)",
           new="return quorum_value(membership.everyone, membership.outgoing, self.counted)",
           tests=(TESTS + "test_BUG_R6_learners_are_never_counted",)),
    Mutant("R7", "raft/log.py",
           old="        self.last_term = self.term_at(last)\n",
           new="",
           tests=(TESTS + "test_BUG_R7_the_last_entrys_index_and_term_change_together",)),
    Mutant("R8", "raft/leadership.py",
           old="self._to_probe(progress, index + 1, \"logs differ\")",
           new="self._to_probe(progress, progress.next - 1, \"logs differ\")",
           tests=(TESTS + "test_BUG_R8_a_hint_is_always_taken",)),
    Mutant("R9", "raft/leadership.py",
           old="        if progress is None or progress.session != reply.session or progress.departing_until_ns:\n"
               "            self.core.dropped(peer, reply, \"an objection of a non-member\")\n"
               "            return\n",
           new="",
           tests=(TESTS + "test_BUG_R9_a_message_from_outside_the_membership_is_dropped_and_counted",)),
]
IMPOSSIBLE = [
    Impossible("R10", why="there is one encoder for each message type, and it takes the whole value: a field cannot be "
                          "left out on one path alone",
               assertion="tests/raft/test_wire.py: every message, drawn at random, survives encode and decode"),
]
