"""Planted bugs of groups without controllers, which their simulation notices: who acts, and what a ledger keeps."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

LEDGER: Final = "broker/ledger/part.py"
ENDING: Final = "broker/transactions/ending.py"
ACTING: Final = "acting"
FILE: Final = "broker/ledger/file.py"
FILES: Final = "tests/broker/ledger/test_file.py::"
KEPT: Final = "tests/broker/ledger/test_part.py::"
ONLINE: Final = ("tests/broker/preonline/test_levelling.py::"
                 "test_positions_of_groups_are_neither_taken_nor_told_until_the_members_are_read",)

KNOWS: Final = ("tests/broker/preonline/test_levelling.py::"
                "test_a_master_of_rocketmq_takes_what_its_acting_slave_knows")

PLANTED: Final = (
    Planted("an isolated master takes positions", "broker/preonline/levelling.py",
            "        codes = REFUSED.union(copied)\n", "        codes = frozenset(copied)\n", ONLINE),
    Planted("an isolated master takes positions that come with pulls", "broker/offsets/part.py",
            "config.is_isolated_first and shared", "False and shared", ONLINE),
    Planted("an isolated master tells positions", "broker/preonline/levelling.py",
            "        return made | {", "        return made or {", ONLINE),
    Planted("a master takes messages before it is level with its members", "broker/roles.py",
            "self._puts, self._replication, self.levelling, self._itself = puts, replication, levelling, itself\n",
            "self._puts, self._replication, self.levelling, self._itself = puts, replication, levelling, itself\n"
            "        puts.serve(replication)\n", ("INV_B60",), ACTING),
    Planted("a master comes back without what its members have beyond its log", "broker/preonline/steps.py",
            "if ends.end > own.end}", "if False}", ("INV_B36",), ACTING),
    Planted("an isolated master locks queues", "broker/locks/part.py",
            "        if self._is_isolated and not self._is_strict:\n", "        if False:\n",
            ("tests/broker/locks/test_part.py::test_a_master_that_is_not_back_yet_grants_nothing_by_itself",)),
    Planted("a master does not say where its log begins", "broker/plain/master.py",
            "            if begin < log.begin and not here.told:\n", "            if False:\n",
            ("tests/broker/plain/test_roles.py::"
             "test_a_slave_that_is_behind_the_begin_of_its_masters_log_says_so_once",)),
    Planted("a slave says that it delivered timers that it never had", "broker/timer/part.py",
            "return TimersDone(*self._store.done, self._journal.begin)", "return TimersDone(*self._store.done)",
            ("tests/broker/timer/test_elsewhere.py::"
             "test_a_slave_that_copied_the_last_file_alone_does_not_say_that_it_delivered_what_it_never_had",)),
    Planted("no slave acts", "broker/roles.py",
            "if members.least == now.broker_id and listed:", "if False:", ("INV_B55",), ACTING),
    Planted("what is committed in the master's place is not noted", LEDGER,
            "        if self._notes:\n            self.note(Thing(Subject.OFFSET",
            "        if False:\n            self.note(Thing(Subject.OFFSET", ("INV_B58", "INV_B63"), ACTING),
    Planted("a master takes no offset of a ledger", LEDGER,
            "                self._offsets.table.take(group, topic, thing.queue, entry.value)\n",
            "                pass\n", ("INV_B57", "INV_B58"), ACTING),
    Planted("slaves forget the time of the timers before the master's wheel is on disk", LEDGER,
            "BUT_TABLES if asked.log_end is None else OF_TIMERS)", "LASTING if asked.log_end is None else ())",
            ("tests/broker/ledger/test_part.py::"
             "test_the_time_of_the_timers_outlives_a_master_that_is_lost_before_its_wheel_is_on_disk",)),
    Planted("an older entry of a ledger replaces a later one", "broker/ledger/entries.py",
            "if known is not None and (known.mark, known.value) >= (entry.mark, entry.value):", "if False:",
            ("INV_B57", "INV_B58"), ACTING),
    Planted("a master forgets what it took from a ledger before all slaves are told", LEDGER,
            "            if entry.thing.kind in OF_TABLES and self.ledger.take(entry):", "            if False:",
            (KEPT + "test_what_one_slave_forgot_counts_where_another_one_has_something_older",)),
    Planted("a master takes what was noted before it led", LEDGER,
            "        found.keeps(self.ledger.kept)\n", "",
            (KEPT + "test_what_was_noted_before_a_master_led_does_not_come_back_with_a_slave",)),
    Planted("a slave takes again what its master has", "broker/ledger/entries.py",
            "in (Subject.END, Subject.KEPT) or self._is_kept(entry):", "in (Subject.END, Subject.KEPT):",
            (KEPT + "test_what_was_noted_before_a_master_led_does_not_come_back_with_a_slave",)),
    Planted("a place up to which entries were kept is not written", "broker/ledger/part.py",
            "        if self.ledger.forget(upto, but) or is_new:\n", "        if self.ledger.forget(upto, but):\n",
            (KEPT + "test_what_a_master_has_is_not_taken_by_a_slave_that_is_started_again",)),
    Planted("a master that leads keeps what not all slaves heard", LEDGER,
            "        if role.leads and next(", "        if False and next(",
            (KEPT + "test_a_master_that_leads_before_all_have_heard_takes_nothing_from_its_own_ledger_later",)),
    Planted("who pulls is sent over what the slave never had, and nobody notes it", "broker/pulling/requests.py",
            "        elif found.status is Status.OFFSET_TOO_SMALL:\n", "        elif False:\n",
            (KEPT + "test_what_a_slave_sends_a_group_over_is_not_passed_over_at_its_master",)),
    Planted("who pops is sent over what the slave never had, and nobody notes it", "broker/pop/requests.py",
            "            elif found.status is Status.OFFSET_TOO_SMALL:\n", "            elif False:\n",
            (KEPT + "test_a_group_that_pops_is_not_sent_over_what_its_master_has",)),
    Planted("a group is set back over what nobody holds", LEDGER,
            "if max(wanted, least) < begin)", "if True)",
            (KEPT + "test_a_group_is_set_back_only_over_what_is_here",)),
    Planted("a gap sets back whom it is long over for", LEDGER,
            "            self.file.anew()\n            self._find_gaps()\n", "            self.file.anew()\n",
            (KEPT + "test_a_group_is_set_back_only_over_what_is_here",)),
    Planted("what no other master takes counts as stored", "broker/escape/part.py",
            "        if whys:\n", "        if False:\n", ("INV_B36", "INV_B55", "INV_B58"), ACTING),
    Planted("a master decides without the right", ENDING,
            "        if why:\n            return _no_right(",
            "        if why and stands_in:\n            return _no_right(",
            ("INV_B59",), ACTING),
    Planted("who begins to decide has not read what others decided", LEDGER,
            "in (None, self._learnt_ns) else self._unread", "in (None, self._learnt_ns) else \"\"",
            ("INV_B59",), ACTING),
    Planted("what others decided is read and forgotten", LEDGER,
            "            if self._standing.role.leads:\n                self._take_lasting(entries)\n",
            "            if self._standing.role.leads:\n                pass\n", ("INV_B59",), ACTING),
    Planted("terms are counted, whatever the time is", "broker/ledger/entries.py",
            "if wall_ms > self._at.term:", "if False:", ("INV_B58",), ACTING),
    Planted("a slave answers for what a killed process left in memory", FILE,
            "        if raw:\n            self.anew()\n", "",
            (FILES + "test_what_a_killed_process_left_in_memory_is_written_before_it_counts_as_kept",
             FILES + "test_what_a_killed_process_forgot_does_not_come_back_after_it_counts_as_gone")),
    Planted("what a killed process could not sync counts as kept when a sync finds nothing to do", FILE,
            "            self.anew()\n        self._entries = ", "            file = self._files.open(PATH)\n"
            "            file.sync()\n            self._files.sync_dir('config')\n        self._entries = ",
            (FILES + "test_what_a_killed_process_left_in_memory_is_written_before_it_counts_as_kept",)),
    Planted("positions that were said to an acting slave have their master's old version", "broker/offsets/requests.py",
            "if self._offsets.knows_more and not", "if False and not", (KNOWS,)),
    Planted("levels that an acting slave delivered have their master's old version", "broker/schedule/delivery.py",
            "if self.machine.knows_more:", "if False:", (KNOWS,)),
    Planted("a slave keeps what was out before the Java master that it follows", "broker/pop/orderlog.py",
            "        if not codes:\n            self.log.follows_java()\n", "        pass\n",
            ("tests/broker/pop/test_orderlog.py::"
             "test_without_controllers_who_followed_a_java_master_knows_that_all_from_before_is_void",)),
)
