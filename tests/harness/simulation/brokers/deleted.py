"""Planted bugs of deletions: where a group of a topic, or a group, that is made again begins."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

CHANGES: Final = "broker/pop/changes.py"
PART: Final = "broker/pop/part.py"
OFFSETS: Final = "broker/offsets/part.py"
AGAIN: Final = "tests/broker/offsets/test_made_again.py::test_"
YOUNG: Final = ("tests/broker/pop/test_changes.py::"
                "test_a_young_master_says_what_is_gone_before_a_message_that_does_not_wait",)

PLANTED: Final = (
    Planted("what is held outlives its topic", "broker/puts.py",
            "            if messages[0].topic != topic:\n", "            if True:\n",
            ("tests/broker/sending/test_sending.py::"
             "test_what_a_young_master_holds_for_a_topic_that_is_deleted_is_refused",)),
    Planted("a slave follows no record of a deletion", CHANGES,
            "lambda: self._positions.heard_gone(topic, group))", "lambda: None)", ("INV_B62",), "deletions"),
    Planted("the log says of no topic that it is gone", PART,
            '            self.changes.say_gone(topic, "")\n', "            pass\n", ("INV_B62",), "deletions"),
    Planted("the log says of no group that it is gone", PART,
            '            self.changes.say_gone("", group)\n', "            pass\n", ("INV_B62",), "deletions"),
    Planted("a young master holds the record that a topic is gone", CHANGES,
            ", hold=False)", ")", YOUNG),
    Planted("a message is refused for a record that a young master does not hold", "broker/puts.py",
            "        need = needed_acks(replication.mode, self._config, replication.replicas(), wait_store_ok)\n",
            "        need = needed_acks(replication.mode, self._config, replication.replicas(), wait_store_ok)\n"
            "        if self.first is not None and (refusal := self.first(wait_store_ok)) is not None:\n"
            "            return done(refusal)\n", YOUNG),
    Planted("what the log refused is forgotten when writes are closed", CHANGES,
            "        self._writes_open = False\n        self._demand()\n",
            "        self._writes_open = False\n        self._unsaid.clear()\n        self._demand()\n",
            ("tests/broker/pop/test_changes.py::"
             "test_what_was_refused_is_said_when_the_master_may_write_again",)),
    Planted("who follows another master says what is gone there", CHANGES,
            "            self._unsaid.clear()\n            self._unsure += 1\n", "            pass\n",
            ("tests/broker/pop/test_changes.py::test_who_follows_another_master_says_nothing_again",)),
    Planted("a record counts as followed when positions are gone in memory alone", CHANGES,
            "        self._positions.when_written(saved)\n", "        saved()\n",
            (AGAIN + "a_record_is_followed_again_while_the_file_cannot_be_written",)),
    Planted("deletions are answered though no replica knows of them", PART,
            "before[TopicsPart].admin.told = before[GroupsPart].admin.told = self.changes.told\n", "pass\n",
            (AGAIN + "a_deletion_that_replicas_cannot_hear_of_is_answered_so",)),
    Planted("positions in a topic outlive it", OFFSETS,
            "        self.table.forget_topic(topic)\n", "        pass\n", ("INV_B62",), "deletions"),
    Planted("positions stay behind the end of their queues", OFFSETS,
            "        self.table.end_at(self._queue_end)\n", "        pass\n",
            (AGAIN + "a_master_lowers_positions_behind_the_end_of_their_queues",)),
    Planted("a master lowers no position while consumers do not see all of its log", OFFSETS,
            "        self._number()", "        pass", (
                AGAIN + "a_master_lowers_positions_though_consumers_do_not_see_all_of_its_log_yet",)),
    Planted("older messages of a topic that was made again take its places as they are told again",
            "broker/store/queues.py", "            if again and queue not in grown and ",
            "            if False and queue not in grown and ",
            ("tests/broker/store/test_store.py::test_"
             "older_messages_of_a_topic_that_was_made_again_do_not_come_back_as_they_are_told_again",)),
    Planted("a master's own record is followed by nobody after a kill", "broker/pop/gone.py",
            "        return not is_own\n", "        return False\n", ("INV_B62",), "deletions"),
)
