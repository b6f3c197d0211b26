"""Planted bugs of the store: what a cut, a start and a power cut leave of it."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

HA: Final = "broker/ha/"
MANAGER: Final = "broker/replicas/manager.py"
STORE: Final = "broker/store/"
MANAGERS: Final = "tests/broker/replicas/test_manager.py::"
TRUST: Final = "tests/broker/store/test_trust.py::"
HA_TRUST: Final = "tests/broker/ha/test_trust.py::"
DOUBT: Final = "tests/broker/replicas/test_doubt.py::"
ACTIVE: Final = "tests/controller/test_active.py::"
LIVES: Final = "tests/broker/store/test_lives.py::"
OLDER: Final = "tests/broker/replicas/test_older_copy.py::"
REGISTERING: Final = "broker/replicas/registering.py"
PLAIN: Final = "tests/broker/plain/test_cores.py::"

PLANTED: Final = (
    # --- the store under it
    Planted("a cut leaves the queues (apache/rocketmq#10666)", STORE + "store.py",
            "            self._queues.truncate(offset)\n", "", ("INV_B10",)),
    Planted("a new master gives old queue offsets (apache/rocketmq#7689)", STORE + "writing.py",
            "        self._next = None\n        if not self._log.max_offset:", "        if not self._log.max_offset:",
            ("INV_B18",)),
    Planted("only the last file is synced", STORE + "commitlog.py",
            "SyncJob(tuple(self._open[first:last])", "SyncJob(tuple(self._open[last - 1:last])", ("INV_B21",), "power"),
    Planted("a flush counts on what a killed process left in memory", STORE + "consumequeue.py",
            "        self._doubt_what_is_not_sure(min(sure, log_end))\n\n", "\n",
            ("tests/broker/store/test_flush.py::"
             "test_a_flush_counts_on_no_entry_that_a_killed_process_left_in_memory",)),
    Planted("a flush counts on an empty file that a killed process left in memory", STORE + "consumequeue.py",
            "        if not self._open:\n            return\n        if self.max",
            "        if self.max_offset == self.min_offset:\n            return\n        if self.max",
            ("tests/broker/store/test_flush.py::"
             "test_a_flush_counts_on_no_file_that_a_killed_process_made_and_left_empty",)),
    Planted("a flush counts on an index file that a killed process left in memory", STORE + "indexfile.py",
            "        self.new_names = killed and bool(self._open)\n", "",
            ("tests/broker/store/test_flush.py::"
             "test_a_flush_counts_on_no_index_file_whose_name_a_killed_process_left_in_memory",)),
    Planted("a queue that lacks a file is taken for whole", STORE + "writing.py",
            "                if queue_offset > due and gapless:\n                    return False\n", "",
            ("tests/broker/store/test_flush.py::test_queues_that_lost_more_than_a_file_are_told_again",)),
    Planted("a checkpoint counts on more than was flushed", STORE + "flush.py",
            "min(visible.offset, visible.indexed_offset, self._log.flushed_offset)",
            "min(visible.offset, visible.indexed_offset)",
            ("tests/broker/store/test_flush.py::test_no_checkpoint_counts_on_a_log_that_was_not_flushed",)),
    Planted("a table that a killed process renamed is gone after a power cut", STORE + "store.py",
            "        if killed and self._files.list(tables.FOLDER):", "        if False:",
            ("tests/broker/store/test_store.py::"
             "test_a_table_that_a_start_after_a_kill_reads_outlives_a_power_cut",)),
    Planted("consumers see what is written", "broker/journal.py",
            "self.visible.advance_some(self.confirm_offset, self.config",
            "self.visible.advance_some(self.end, self.config",
            ("INV_B5",)),
    # --- an older copy of a directory
    Planted("an older copy is registered as any other", "controller/requests.py",
            "    if header.known_lives is not None and member", "    if False and member", ("INV_B29",), "copies"),
    Planted("an older copy is told so, and doubts nothing", STORE + "lives.py",
            "        if doubt:\n", "        if False:\n", ("INV_B29",), "copies"),
    Planted("a life is noted before the doubt", STORE + "lives.py",
            "        if doubt:\n            self._trust.doubt()\n"
            "        write_whole(self._files, PATH, text.encode())\n",
            "        write_whole(self._files, PATH, text.encode())\n"
            "        if doubt:\n            self._trust.doubt()\n",
            (LIVES + "test_a_life_is_not_noted_before_the_doubt_wherever_the_process_is_killed",)),
    Planted("a life is registered before it is noted", REGISTERING,
            "        if isinstance(found, Identity) and self._lives is not None and", "        if False and",
            (OLDER + "test_a_store_that_is_no_copy_is_never_in_doubt_wherever_it_is_killed",)),
    Planted("lives of before are forgotten as the next one is noted", REGISTERING,
            "self._lives = (*lives[1 - LIVES_MAX:], self._life)", "self._lives = (self._life,)",
            (OLDER + "test_a_store_that_is_no_copy_is_never_in_doubt_wherever_it_is_killed",)),
    Planted("who was registered once is not judged again", REGISTERING,
            "        self._doubts = False\n        # No", "        # No",
            (OLDER + "test_who_comes_back_behind_another_process_of_its_id_doubts_its_log",)),
    # --- after a power cut
    Planted("a log in doubt counts in elections", "controller/active.py",
            "        if among <= still or (", "        if True or (", ("INV_B29",), "power"),
    Planted("those in doubt wait for nobody", "controller/active.py",
            "        if among <= still or (", "        if not among & observation.live.keys() - doubted.keys() or (",
            ("INV_B29",), "power"),
    Planted("a doubt that was told before the master was lost counts", "controller/active.py",
            "if group.master is None and epoch >= group.master_epoch}", "}",
            (ACTIVE + "test_a_doubt_of_before_the_master_was_lost_may_be_over",
             ACTIVE + "test_those_in_doubt_do_not_choose_while_the_lost_master_is_on_record")),
    Planted("a master that lives is passed over for its doubt", "controller/active.py",
            "in observation.live.keys() - {group.leader}\n", "in observation.live.keys()\n",
            (ACTIVE + "test_a_master_that_lives_is_not_replaced_for_what_it_last_said_of_doubt",)),
    Planted("who was cleaned away while it had no master asks in vain", MANAGER,
            "            return [self._registering.unknown()]\n        if answer is None or",
            "            return []\n        if answer is None or",
            (MANAGERS + "test_a_broker_that_was_cleaned_away_while_it_had_no_master_says_so",)),
    Planted("that a log is in doubt no longer waits for the next heartbeat", MANAGER,
            "trusted = self._said_doubt and not self._in_doubt", "trusted = False",
            (DOUBT + "test_that_a_log_is_in_doubt_no_longer_is_told_at_once",)),
    Planted("a broker whose log is level beats without an end", MANAGER,
            "        self._said_doubt, self._said = self._in_doubt, troubles\n",
            "        self._said_doubt, self._said = True, troubles\n",
            (DOUBT + "test_that_a_log_is_in_doubt_no_longer_is_told_at_once",)),
    Planted("nobody hears that a copied log is level", HA + "autoswitch.py",
            "self._epoch_file, self._tell)", "self._epoch_file)",
            (HA_TRUST + "test_the_tail_is_kept_until_there_is_a_master_and_copied_again_then",)),
    Planted("a doubt is told with the first epoch for ever", MANAGER,
            "            if self._doubt_epoch is None or epoch > self._doubt_epoch:\n",
            "            if self._doubt_epoch is None:\n",
            (DOUBT + "test_a_doubt_is_told_with_the_epoch_that_is_known_at_once",)),
    Planted("a preference counts among those in doubt", "controller/active.py",
            "            return observation, LONGEST\n", "            return observation, settings.policy\n",
            (ACTIVE + "test_no_preference_counts_among_those_in_doubt",)),
    Planted("no doubt is told", MANAGER, "log_in_doubt=True if self._in_doubt else None", "log_in_doubt=None",
            ("INV_B29",), "power"),
    Planted("an election that could not know of the doubt is accepted", MANAGER,
            " and not self._knew_of_doubt():\n", " and False:\n",
            (DOUBT + "test_an_election_that_could_not_know_of_the_doubt_is_refused",)),
    Planted("what was told after the controllers knew was decided after", MANAGER,
            "return not self._in_doubt or self._doubt_epoch is not None or (",
            "return not self._in_doubt or self._told or (",
            (DOUBT + "test_what_was_decided_before_the_controllers_knew_is_refused_though_it_is_told_later",)),
    Planted("what was not synced is acknowledged", HA + "slave.py",
            "            point = min(point, self._trusted_end)\n", "            pass\n", ("INV_B30",), "power"),
    Planted("all that a power cut left is trusted", STORE + "trust.py",
            "                upto = log.boundary(upto)\n", "                upto = end\n", ("INV_B30",), "power"),
    Planted("a log is level as soon as there is a master", HA + "slave.py",
            "            self._level_at = self._master_end\n", "            self._level_at = 0\n",
            (HA_TRUST + "test_what_is_not_trusted_is_copied_again_and_then_the_log_is_level",)),
    Planted("a restart ends the doubt", STORE + "trust.py",
            "    if found is not None and found.upto != ALL:\n", "    if False:\n",
            (TRUST + "test_doubt_outlives_restarts_and_checkpoints",)),
    Planted("what stands where a log in doubt was cut is trusted", STORE + "trust.py",
            "        return min(found.upto, flushed) if", "        return found.upto if",
            (TRUST + "test_what_stands_where_a_log_in_doubt_was_cut_is_new_and_not_synced",)),
    Planted("what was copied while in doubt is cut again after a kill", STORE + "trust.py",
            "            self._note(WHOLE)\n", "            pass\n",
            (TRUST + "test_what_is_copied_while_in_doubt_is_cut_by_no_start_of_the_same_boot",)),
    Planted("what was copied behind a synced end is cut again after a kill", STORE + "trust.py",
            "upto = WHOLE if self.trusted_end is None else upto", "upto = upto",
            (TRUST + "test_what_is_copied_while_in_doubt_is_cut_by_no_start_of_the_same_boot",)),
    Planted("a log is trusted before it is cut", STORE + "store.py",
            "        self.flusher.lower(kept)\n",
            "        self.flusher.lower(kept)\n        self.trust.truncate(kept)\n",
            (TRUST + "test_a_kill_within_a_cut_trusts_nothing_new",)),
    Planted("a plain slave acknowledges what was not synced", "broker/plain/slave.py",
            "        if self._trusted_end is not None:\n            return [TruncateLog",
            "        if False:\n            return [TruncateLog",
            (PLAIN + "test_what_was_not_synced_before_a_power_cut_is_copied_again_once_there_is_a_master",)),
    Planted("a plain slave does not hear what its store lost", "broker/plain/roles.py",
            "SlaveCore(config, journal.end, journal.trust.trusted_end)", "SlaveCore(config, journal.end)",
            ("tests/broker/plain/test_roles.py::"
             "test_a_slave_whose_machine_went_down_copies_again_what_it_had_not_synced",)),
)
