"""Planted bugs of consume queues that are damaged: what readers meet, and how they are mended."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

STORE: Final = "broker/store/"
MENDING: Final = STORE + "mending.py"
TESTS: Final = "tests/broker/store/test_mending.py::"
WHATEVER: Final = TESTS + "test_whatever_happens_meanwhile_the_queue_says_what_the_log_holds"
ANEW: Final = TESTS + "test_readers_see_the_old_entry_or_the_right_one"
FRONT: Final = TESTS + "test_an_entry_that_is_gone_does_not_take_those_in_front_of_it_along"

BEGINNING: Final = "broker/queueends/beginning.py"
ASKING_PART: Final = "broker/queueends/part.py"
ENDS: Final = "tests/broker/queueends/test_ends.py::"
ASKING: Final = "tests/broker/queueends/test_part.py::"

PLANTED: Final = (
    Planted("zeros in a queue are passed over", "broker/pulling/reading.py",
            "        elif size < RECORD_BYTES_MIN or where < 0:\n", "        elif where < 0:\n",
            (TESTS + "test_no_entry_is_passed_over_silently",)),
    Planted("damage that is in front of all is passed over", "broker/pulling/reading.py",
            "    if not count:\n", "    if count is None:\n",
            (TESTS + "test_no_entry_is_passed_over_silently",)),
    Planted("zeros are messages that are gone, and all in front of them is", STORE + "consumequeue.py",
            "        if size <= 0 or offset < 0:\n            raise _NoEntry\n", "", (FRONT,)),
    Planted("a queue with whole files behind the damage is taken for one that ends there", STORE + "consumequeue.py",
            "            self._look_behind(len(self._open) - 1, 0, last, sure)\n", "", (WHATEVER,)),
    Planted("a queue of which nothing is left begins at 0 again", STORE + "queues.py",
            "                        queue.end_where_it_did()\n", "", (WHATEVER,)),
    Planted("a queue begins at 0 where others have had its messages", STORE + "queues.py",
            "                queue.begin_at(end)\n", "                del end\n",
            ("tests/broker/queueends/test_part.py::"
             "test_a_new_master_goes_on_with_the_numbers_of_what_it_never_had",)),
    Planted("a queue that begins with a file has none", STORE + "consumequeue.py",
            "        if self._base and not self._open:", "        if False:",
            ("tests/broker/store/test_store.py::test_queues_without_messages_here_go_on_where_others_have_them",)),
    Planted("queues end behind the message that the slave copies first", STORE + "consumequeue.py",
            "bisect_left(places, log_offset,", "bisect_left(places, log_offset + 1,",
            (ENDS + "test_queues_end_before_their_first_message_from_there_on",)),
    Planted("a replica that copied nothing begins at 0 the queues that it was to copy", "broker/queueends/ends.py",
            "        if queue is not None:\n", "        if queue is not None and queue.last_offset < log_offset:\n",
            (ENDS + "test_a_replica_gives_the_numbers_that_its_master_gave_however_little_it_copied",
             "tests/harness/simulation/brokers/test_queueends.py::"
             "test_who_is_elected_though_it_copied_next_to_nothing_goes_on_with_the_numbers_of_all_queues")),
    Planted("an empty log begins before it is known where queues end", BEGINNING,
            "        self._wanted = offset\n        return False\n", "        return True\n", ("INV_B20",), "late"),
    Planted("a log begins before a power cut keeps where queues end", BEGINNING,
            "        self._told = offset\n", "        self._known = offset\n",
            (ASKING + "test_an_empty_log_begins_when_it_is_on_disk_where_queues_end",)),
    Planted("what was told of an earlier beginning counts", BEGINNING,
            "        return not offset or offset == self._known\n",
            "        return not offset or self._known is not None\n",
            (ASKING + "test_an_empty_log_begins_when_it_is_on_disk_where_queues_end",)),
    Planted("what another master told counts", BEGINNING,
            "self._wanted = master, None, None\n            self.forget()\n", "self._wanted = master, None, None\n",
            ("tests/broker/queueends/test_beginning.py::"
             "test_what_was_told_is_void_with_another_master_and_without_its_queues",)),
    Planted("a master tells of queues as consumers see them", "broker/queueends/ends.py",
            "    if seen < log_offset:\n", "    if False:\n",
            (ASKING + "test_a_master_tells_of_messages_that_are_in_no_queue_yet",)),
    Planted("queues of an earlier beginning stay", ASKING_PART,
            "        if was_empty and self._to_ask() == begin and journal.messages.queues():\n", "        if False:\n",
            (ASKING + "test_queues_of_an_earlier_beginning_go_further",)),
    Planted("a slave that waits to begin says that its master is silent", "broker/ha/slave.py",
            "        self._away_ns = None  # this slave left its master, so the master is not silent\n", "",
            ("tests/broker/ha/test_replication.py::"
             "test_an_empty_log_waits_without_a_connection_until_it_may_begin",)),
    Planted("an empty slave is offered the oldest file, though that goes each time", "broker/ha/master.py",
            "        elif self._offered.get(broker_id, begin) < begin:", "        elif False:",
            ("tests/broker/ha/test_replication.py::"
             "test_an_empty_slave_whose_offered_file_goes_each_time_is_offered_a_later_one",)),
    Planted("an empty slave that comes again is offered the newest file", "broker/ha/master.py",
            "offered = self._offered.get(broker_id, begin)", "offered = begin",
            ("tests/broker/ha/test_replication.py::"
             "test_a_slave_that_comes_again_without_a_log_is_offered_the_same_file",)),
    Planted("an older message of that place replaces the entry", MENDING,
            "        return (found.message.topic, found.message.queue_id, found.queue_offset, found.size) == (\n"
            "            *self._key, place, size)\n", "        return False\n", (ANEW,)),
    Planted("entries are written as they are found", MENDING,
            "                self._right[place] = entry\n",
            "                self._queue.mend(place, entry)\n", (ANEW,)),
    Planted("what was too much to remember is not looked for again", MENDING,
            "                self.is_partial = True\n", "                pass\n",
            (TESTS + "test_little_is_remembered_at_a_time",)),
    Planted("entries without a message stay", MENDING, "        walk.give_up_rest()\n", "",
            (TESTS + "test_entries_without_a_message_point_nowhere",)),
    Planted("a queue is mended over and over", MENDING,
            "                self._outcomes[key] = outcome\n", "                pass\n",
            (TESTS + "test_a_queue_is_mended_once_in_the_life_of_a_process",)),
    Planted("a walk goes on over a log that was cut", STORE + "store.py",
            "        self.mender.restart()\n        count =", "        count =",
            (TESTS + "test_a_topic_that_is_deleted_and_made_anew_meanwhile_is_looked_at_from_the_start",)),
    Planted("delayed messages of a damaged queue are dropped", "broker/schedule/delivery.py",
            "                if not is_gone and self._mends(levels.SCHEDULE_TOPIC, delivery.level - 1):\n"
            "                    raise _Waits(str(error)) from None\n", "",
            ("tests/broker/schedule/test_delivery.py::"
             "test_messages_of_a_level_whose_queue_is_damaged_wait_until_it_is_mended",)),
)
