"""Planted bugs of who beats, who is silent, and who is accused of it."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

HA: Final = "broker/ha/"
SILENCE: Final = HA + "silence.py"
TESTS: Final = "tests/broker/ha/test_silence.py::"
COSTS: Final = "tests/broker/test_silent_replica.py::"
JAVA_LIKE: Final = TESTS + "test_a_slave_that_reports_each_five_seconds_is_never_silent"
HELD_UP: Final = TESTS + "test_a_network_that_holds_its_reports_up_makes_no_java_slave_one_that_beats"
STOPPED: Final = TESTS + "test_a_master_that_was_stopped_accuses_nobody"
SLAVE_STOPPED: Final = TESTS + "test_a_slave_that_was_stopped_accuses_nobody"
LEAVES: Final = TESTS + "test_a_silent_slave_of_ours_leaves_the_set_in_ha_silence_ms"
NEVER_IDLE: Final = TESTS + "test_a_slave_that_is_never_idle_is_known_by_its_second_acknowledgement"
AGAIN: Final = TESTS + "test_a_slave_that_speaks_again_is_not_silent_and_shows_anew_that_it_beats"
TOGETHER: Final = TESTS + "test_members_that_are_lost_together_leave_together"
HOLDS_UP: Final = TESTS + "test_who_is_only_about_to_fall_silent_holds_nobody_up_for_longer_than_a_beat"
BOTH: Final = TESTS + "test_both_of_ours_repeat_themselves_each_half_second"
THOSE_ALONE: Final = TESTS + "test_a_master_beats_to_those_alone_who_beat"
NOT_BEATING: Final = TESTS + "test_a_master_that_does_not_beat_is_silent_only_without_a_connection"
DIAGNOSIS: Final = "broker/store/diagnosis.py"

PLANTED: Final = (
    # --- who beats
    Planted("whoever repeats itself beats, however seldom", SILENCE,
            "self._regularly + 1 if since_ns <= attention.seldom_ns else 0\n", "self._regularly + 1\n", (JAVA_LIKE,)),
    Planted("a burst of what was held up is taken for beats", SILENCE,
            "        if since_ns >= attention.burst_ns:\n", "        if True:\n", (HELD_UP,)),
    Planted("what was held up, and the next word, are taken for beats", SILENCE,
            "at_once or self._regularly > 1\n", "at_once or self._regularly > 0\n", (HELD_UP,)),
    Planted("first words that came late count", SILENCE,
            "        if now_ns - asked_ns <= self.attention.seldom_ns:\n", "        if True:\n", (HELD_UP, STOPPED)),
    Planted("who is too busy to be silent is never known to beat", SILENCE,
            "        self.beats = at_once or ", "        self.beats = ", (NEVER_IDLE,)),
    Planted("who was taken for what it is not is accused again and again", SILENCE,
            "            self.beats, self._regularly, self._repeated_ns, self._silent_ns = False, 0, None, None\n",
            "            self._silent_ns = None\n",
            (TESTS + "test_one_that_was_taken_for_what_it_is_not_is_accused_once",)),
    Planted("an empty frame that tells of a confirm offset is a beat", HA + "slave.py",
            "            elif not size and message.confirm == self._confirm_of_master:\n",
            "            elif not size:\n",
            (TESTS + "test_a_master_of_before_that_tells_of_confirm_offsets_does_not_beat",)),
    # --- who repeats itself
    Planted("a busy slave does not repeat itself", HA + "slave.py",
            "            return 0 if self._beat_ns is None else self._beat_ns +",
            "            return 0 if self._beat_ns is None else self._written_ns +", (AGAIN,)),
    Planted("a slave repeats itself in its own time, and never at once", HA + "slave.py",
            "        self._written_ns, self._beat_ns = now_ns, None\n",
            "        self._written_ns = self._beat_ns = now_ns\n", (NEVER_IDLE,)),
    Planted("a master beats to nobody", HA + "master.py",
            "            here.beat_ns = now_ns\n", "            pass\n", (BOTH,)),
    Planted("a master beats to everybody", HA + "master.py",
            "        if here.ear.beats and here.beat_ns == _NEVER",
            "        if here.beat_ns == _NEVER", (THOSE_ALONE,)),
    # --- who is silent
    Planted("a judge's own pause counts", SILENCE,
            "            self._resumed_ns = now_ns\n", "            pass\n", (STOPPED, SLAVE_STOPPED)),
    Planted("a judge that has not looked since its pause answers", SILENCE,
            "        return not self._paused(now_ns) and now_ns >= self.silent_ns(heard_ns)\n",
            "        return now_ns >= self.silent_ns(heard_ns)\n", (STOPPED, SLAVE_STOPPED)),
    Planted("a silent member stays", HA + "insync.py",
            " - self.silent(now_ns) | {self.self_id})", " | {self.self_id})", (LEAVES,)),
    Planted("members that are lost together leave one by one", HA + "insync.py",
            "        return frozenset() if soon and ", "        return found if soon and ", (TOGETHER,)),
    Planted("who beats holds up those who are silent for ever", HA + "insync.py",
            "        return due is not None and due <= now_ns + self.config.beat_interval_ms * NS_PER_MS\n",
            "        return due is not None\n", (TOGETHER, HOLDS_UP)),
    Planted("who falls silent much later is waited for", HA + "insync.py",
            "due <= now_ns + self.config.beat_interval_ms *", "due <= now_ns + self.config.silence_ms *", (TOGETHER,)),
    Planted("members wait for each other though enough stay", HA + "insync.py",
            " and len(self.accepted - found - soon) < self.least else found", " else found", (TOGETHER,)),
    Planted("what is overdue hides what time alone tells next", HA + "insync.py",
            "        return min((at_ns for at_ns in due if at_ns > now_ns), default=None)\n",
            "        return min(due, default=None)\n", (TOGETHER,)),
    Planted("who does not beat is silent, too", SILENCE,
            "        return self.beats and self.attention.silent(", "        return self.attention.silent(",
            (JAVA_LIKE, NOT_BEATING)),
    Planted("nothing wakes who is to ask for the smaller set", HA + "insync.py",
            "            if slave.ear is not None and slave.ear.deadline_ns is not None:\n", "            if False:\n",
            (TESTS + "test_time_alone_tells_the_master_when_to_look",)),
    Planted("a master's next epoch forgets who beats", HA + "master.py",
            "in_sync.opened(broker_id, here.handshake.async_learner, now_ns, here.ear)\n            if here.ack",
            "in_sync.opened(broker_id, here.handshake.async_learner, now_ns)\n            if here.ack",
            (TESTS + "test_connections_live_on_and_with_them_what_was_seen_of_a_slave",)),
    # --- a silent master
    Planted("a connection that nobody answers ends a silence", HA + "slave.py",
            "        if self._greeted:\n            return self._ear.silent(now_ns)\n",
            "        if self.state is not HaState.READY:\n            return self._ear.silent(now_ns)\n",
            (NOT_BEATING,)),
    Planted("a silence ends as its connection does", HA + "slave.py",
            "self._ear.heard_ns if self._ear.silent(now_ns) else now_ns", "now_ns",
            (TESTS + "test_a_master_silent_for_long_stays_so_when_its_connection_ends",)),
    Planted("who follows nobody accuses", HA + "slave.py",
            "        self._away_ns = None if address is None else now_ns\n", "        self._away_ns = now_ns\n",
            (TESTS + "test_a_master_silent_for_long_stays_so_when_its_connection_ends",)),
    Planted("the replicas manager is not told of a silent master", HA + "switching.py",
            "            self._was_silent = silent\n            self._tell()\n",
            "            self._was_silent = silent\n", (TESTS + "test_whole_replicas_notice_each_others_silence",)),
    Planted("a tick says nothing of a silent master", "broker/roles.py",
            "master_silent=self._replication.master_silent, ", "",
            (COSTS + "test_slaves_tell_their_managers_of_a_silent_master",)),
    Planted("a Java master whose log is empty is left at each heartbeat", HA + "wire.py",
            "        if offset == -1 and not size:\n", "        if False:\n",
            ("tests/broker/ha/test_wire.py::test_a_java_master_without_a_byte_beats_from_behind_nothing",)),
    # --- who is silent, and whose disk is in trouble
    Planted("what was said in a pause of the judge is a silence", HA + "silence.py",
            "        return (self._looked_ns is None\n"
            "                or now_ns - self._looked_ns > LOOK_NS + self.config.silence_ms * NS_PER_MS // 4)\n",
            "        return False\n", ("INV_B32",), "silence"),
    Planted("a judge that stood still goes on counting", HA + "silence.py",
            "max(heard_ns, self._resumed_ns or heard_ns)", "heard_ns", ("INV_B32",), "silence"),
    Planted("who says nothing new says nothing", HA + "master.py",
            "        here.ear.heard_ns = now_ns\n",
            "        if isinstance(message, SlaveHandshake) or message.offset != here.ack:\n"
            "            here.ear.heard_ns = now_ns\n", ("INV_B32",), "calm"),
    Planted("a master that only repeats itself is silent", HA + "slave.py",
            "        self._ear.heard_ns = now_ns\n",
            "        if not isinstance(message, Transfer) or message.body:\n            self._ear.heard_ns = now_ns\n",
            ("INV_B32",), "calm"),
    Planted("half a silence is one", HA + "silence.py",
            "+ self.config.silence_ms * NS_PER_MS\n\n    @property\n    def seldom_ns",
            "+ self.config.silence_ms * NS_PER_MS // 3\n\n    @property\n    def seldom_ns",
            ("INV_B32",), "silence"),
    Planted("a set may always shrink below its minimum", "broker/replicas/yielding.py",
            "        return sight.shrinks and sight.too_few and not self._may_shrink\n", "        return False\n",
            ("INV_B34",), "silence"),
    Planted("one bad disk below all elects again and again", "controller/yielding.py",
            "        return backoff.last + backoff.wait if backoff is not None else 0\n", "        return 0\n",
            ("INV_B35",), "disks"),
    Planted("who left the set before the others may not go on", "controller/yielding.py",
            "self._living(now, key, group, group.replicas)", "self._living(now, key, group, group.electable)",
            ("INV_B64",), "silence"),
    Planted("a process that stood still says that its disk did", DIAGNOSIS,
            " or pieces != self._pieces or late:", " or pieces != self._pieces:", ("INV_B33",), "silence"),
)
