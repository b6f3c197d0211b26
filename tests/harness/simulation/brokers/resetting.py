"""Planted bugs of resets of groups: who hears of them, when they are answered, and what undoes them."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

TABLE: Final = "broker/offsets/table.py"
CHANGES: Final = "broker/pop/changes.py"
RESETS: Final = "tests/broker/offsets/test_resets.py::"
NEXT: Final = (RESETS + "test_a_reset_holds_on_the_next_master_against_late_commits_until_the_next_pull",)
COPIES: Final = (RESETS + "test_a_copy_that_is_older_than_a_reset_does_not_undo_it_and_a_newer_one_does",)

PLANTED: Final = (
    Planted("no replica follows a reset", CHANGES,
            "lambda: self._positions.heard_reset(\n            topic, group, queue_id, offset))",
            "lambda: None)", NEXT),
    Planted("a reset is answered before a replica knows of it", CHANGES,
            "        await called.wait()\n", "        await trio.lowlevel.checkpoint()\n",
            (RESETS + "test_a_reset_that_replicas_cannot_hear_of_is_answered_so",)),
    Planted("a reset is answered before it is on disk", "broker/offsets/requests.py",
            "self.told, self.cleaned)", "self.told, trio.lowlevel.checkpoint)",
            (RESETS + "test_a_reset_is_on_disk_when_it_is_answered",)),
    Planted("the next process forgets a reset", "broker/offsets/table.py",
            "data_version=self._version, reset_table=resets or None)", "data_version=self._version)",
            (RESETS + "test_a_reset_holds_on_a_master_that_was_started_again",)),
    Planted("a reset that a pull has seen comes again", "broker/offsets/table.py",
            "        if offset is not None:\n            self.on_change()\n        return offset\n",
            "        return offset\n", (RESETS + "test_a_reset_holds_on_a_master_that_was_started_again",)),
    Planted("members that have not pulled undo a reset", "broker/offsets/part.py",
            "        self._serves = role.serves_pulls\n        if self._serves:\n",
            "        self._serves = role.serves_pulls\n        if False:\n", NEXT),
    Planted("a reset that a new master hears late is none", "broker/offsets/part.py",
            "        if self._serves:\n            self.table.serves()\n\n", "\n", NEXT),
    Planted("a copy that is older than a reset undoes it", TABLE,
            "            elif older:\n", "            elif False:\n", COPIES),
    Planted("a reset comes again when its group has gone on", TABLE,
            "                self._told[key, queue_id] = offset, 0\n", "                pass\n", COPIES),
    Planted("POPs go back to a reset on the next master", "broker/pop/part.py",
            "                self._offsets.take_reset(group, topic, queue_id)  # POPs have gone on since\n",
            "                pass\n", (RESETS + "test_POPs_that_went_on_from_a_reset_do_not_go_back_to_it",)),
    Planted("who went back after a reset is taken forward again", "broker/pop/progress.py",
            "                if self.knows(fields[4], fields[3]):", "                if True:",
            (RESETS + "test_a_group_that_goes_back_by_itself_is_not_taken_forward_again",)),
    Planted("a slave that acts sends no pull to a reset", "broker/pulling/requests.py",
            "found.status is not Status.OFFSET_RESET and (", "True and (",
            (RESETS + "test_a_reset_holds_where_a_slave_acts_and_when_its_master_is_back",)),
)
