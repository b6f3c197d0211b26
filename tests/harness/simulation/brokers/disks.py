"""Planted bugs of disks that are full or stand still, and of who says so."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

HA: Final = "broker/ha/"
STORE: Final = "broker/store/"
DIAGNOSIS: Final = "broker/store/diagnosis.py"
DIAGNOSES: Final = "tests/broker/store/test_diagnosis.py::"
DISKS: Final = "tests/broker/test_disk_health.py::"
MOVES: Final = "tests/broker/test_disk_moves.py::"

PLANTED: Final = (
    # --- disks that are full or stand still
    Planted("a stall is told at half of its time", DIAGNOSIS,
            "now_ns - self._moved_ns >= stall_ns:", "now_ns - self._moved_ns >= stall_ns // 2:",
            (DIAGNOSES + "test_what_is_under_way_for_too_long_stalls_the_disk",)),
    Planted("pieces that end count as nothing", DIAGNOSIS,
            " or pieces != self._pieces or late:", " or late:",
            (DIAGNOSES + "test_pieces_that_end_one_after_the_other_stall_nothing_however_many_they_are",)),
    Planted("a process that stood still accuses its disk", DIAGNOSIS,
            " or pieces != self._pieces or late:", " or pieces != self._pieces:",
            (DIAGNOSES + "test_a_pause_of_the_process_itself_accuses_no_disk",)),
    Planted("one good try ends trouble", DIAGNOSIS, "self._good >= GOOD_TRIES", "self._good >= 1",
            (DIAGNOSES + "test_of_any_disk_trouble_is_seen_in_time_and_ends_late",)),
    Planted("slow tries are good ones", DIAGNOSIS, " if room and works and quick else 0", " if room and works else 0",
            (DIAGNOSES + "test_a_stalled_disk_that_is_slow_or_broken_stays_stalled",)),
    Planted("good tries count though sends are refused", DIAGNOSIS,
            "            self.health = health\n        self._good = 0\n", "            self.health = health\n",
            (DIAGNOSES + "test_a_full_disk_is_full_at_once_and_well_after_good_tries_in_a_row",)),
    Planted("the steps of the disk's thread are not counted", "broker/journal.py",
            "            self._steps_done += 1\n", "",
            (DISKS + "test_a_flush_of_many_short_syncs_is_no_stall",)),
    Planted("a disk is well as soon as what hung has ended", "broker/journal.py",
            "        if not busy and diagnosis.due(now_ns):\n",
            "        if not busy:\n            diagnosis.health = DiskHealth.WELL\n        if False:\n",
            (DISKS + "test_a_sync_that_hangs_is_told_in_time_and_over_after_a_calm_while",)),
    Planted("a slave in trouble stays with its master", HA + "copying.py",
            "self.address if self._journal.health is DiskHealth.WELL else None", "self.address",
            (DISKS + "test_a_slave_in_trouble_leaves_its_master_in_words_and_comes_back_by_itself",)),
    Planted("a slave that is well again does not come back", HA + "copying.py",
            "        self._journal.disk_changed.join(\"copying\", self._disk_changed)\n",
            "        self._journal.disk_changed.join(\"copying\", lambda: self._journal.health.value and "
            "self._disk_changed())\n",
            (DISKS + "test_a_slave_in_trouble_leaves_its_master_in_words_and_comes_back_by_itself",)),
    Planted("nobody is told of a master's disk", "broker/roles.py", ", disk=journal.health)", ")",
            (MOVES + "test_a_full_master_gives_way_to_a_member_with_room",)),
    Planted("a full disk has no room for an epoch", STORE + "files.py",
            "        if not no_room(error) or not files.exists(SPARE):\n", "        if True:\n",
            (DISKS + "test_a_full_disk_has_room_for_what_says_who_a_replica_is_and_what_its_log_is_worth",)),
    Planted("the spare is given up once and for all", STORE + "files.py",
            "        finally:\n            keep_spare(files)\n", "        finally:\n            pass\n",
            (DISKS + "test_a_full_disk_has_room_for_what_says_who_a_replica_is_and_what_its_log_is_worth",)),
)
