"""Planted bugs of POP: what is given without a checkpoint, twice or never, and what acknowledgements change."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

POP: Final = "broker/pop/"
REQUESTS: Final = POP + "requests.py"
ACKING: Final = POP + "acking.py"
CHAIN: Final = POP + "chain.py"
PART: Final = POP + "part.py"
TAKING: Final = POP + "taking.py"
RECORDS: Final = POP + "records.py"
ORDER: Final = POP + "order.py"
REVIVE: Final = POP + "revive.py"
REVIVING: Final = POP + "reviving.py"
BACK: Final = "tests/broker/pop/test_reviving.py::"
LATE: Final = "tests/broker/pop/test_ordered.py::test_an_answer_that_comes_late_takes_nobody_back"
RIPE: Final = "tests/broker/pop/test_revive.py::"
LOOSE: Final = "tests/broker/pop/test_loose.py::"
ACTING: Final = "tests/broker/pop/test_acting.py::"

PLANTED: Final = (
    # --- what is given
    Planted("progress stands between an acknowledgement and its checkpoint", "broker/pop/revive.py",
            "                if first <= last < place:\n", "                if False:\n",
            ("tests/broker/pop/test_revive.py::"
             "test_progress_never_stands_between_an_acknowledgement_and_its_checkpoint_behind_it",)),
    Planted("messages leave before their checkpoint is held", REQUESTS,
            "        if result.status is not PutStatus.PUT_OK:\n            self.counters.refused += 1\n",
            "        if not result.puts:\n            self.counters.refused += 1\n", ("INV_B49",), "pops"),
    Planted("messages of a checkpoint that was refused are given to nobody", REQUESTS,
            "            for link in reversed(links):\n                self._chain.refused(link)\n",
            "            for link in links:\n                self._chain.stored(link, 0)\n", ("INV_B50", "INV_B45"),
            "pops"),
    Planted("the next POP reads what is on its way", CHAIN,
            "return (committed, committed) if queue is None else (queue.links[-1].end, queue.looked)",
            "return committed, committed", ("INV_B52", "INV_B46"), "pops"),
    Planted("a group is past a checkpoint as soon as that is put", CHAIN,
            "(order[0].gone or (order[0].log_end is not None and order[0].log_end <= confirmed)):",
            "(order[0].gone or order[0].log_end is not None):", ("INV_B50",), "pops"),
    Planted("retry topics are looked at by nobody", TAKING,
            "    found = [Visit(topic, NORMAL, each) for each in wanted]\n    if retry is None:\n",
            "    found = [Visit(topic, NORMAL, each) for each in wanted]\n    if True:\n", ("INV_B45",), "pops"),
    # --- how far groups are on the next master
    Planted("a new master goes by the offsets that it copied", PART,
            "            if (known is None or known < end) and self._topics", "            if False and self._topics",
            ("INV_B52", "INV_B46"), "pops"),
    Planted("no replica hears of checkpoints", RECORDS,
            "            message.sys_flag |= NOTED\n", "            pass\n", ("INV_B52", "INV_B46"), "pops"),
    # --- in order
    Planted("who pops in order waits for nobody", ORDER,
            "        return now_ms < self.until_ms(invisible_ms)\n", "        return False\n", ("INV_B47",), "pops"),
    Planted("a smaller batch takes its group past the rest of the one before", ORDER,
            "if each[0] not in offsets]", "if each[0] not in offsets and each[1]]", ("INV_B50",), "pops"),
    Planted("what was done with out of turn is given again with the rest", POP + "ordered.py",
            "        return haul if not done else _without(haul, done)\n", "        return haul\n", ("INV_B46",),
            "pops"),
    Planted("a change of order that is answered late counts as the last", ORDER,
            "pending[pending.index(change) + 1:] if change in pending else pending",
            "[each for each in pending if each is not change]", (LATE,)),
    Planted("a change of order that is answered late takes its group back", POP + "ordered.py",
            "if offset is not None and self._log.orders.is_last(change) and not", "if offset is not None and not",
            (LATE,)),
    Planted("a POP that waited long for replicas is given what another one has", POP + "ordered.py",
            "if self._log.orders.is_out(each[1])]", "if True]",
            ("tests/broker/pop/test_ordered.py::"
             "test_of_what_was_given_to_another_one_before_its_answer_nothing_is_given",)),
    Planted("a state of order that was removed comes back by a late answer", ORDER,
            "self._places.get(key, self._passed)", "self._places.get(key, -1)",
            ("tests/broker/pop/test_order.py::test_what_was_removed_does_not_come_back_by_a_late_answer",)),
    Planted("who was replaced answers for batches of the next master", POP + "ordered.py",
            "if late and not changes:", "if False:",
            ("tests/broker/pop/test_ordered.py::test_of_what_another_master_gave_only_who_leads_answers",)),
    Planted("who was replaced says that nothing is out any more", POP + "ordered.py",
            "            self._store([self._log.orders.still(order_key)], late)\n", "            late(\"\")\n",
            ("tests/broker/pop/test_ordered.py::test_of_what_another_master_gave_only_who_leads_answers",)),
    Planted("who finds what is done with out of turn asks again and again", REQUESTS,
            "                elif at > begin:  #", "                elif at > begin and not found.count:  #",
            ("tests/broker/pop/test_ordered.py::test_who_finds_nothing_but_what_is_done_with_reads_on",)),
    Planted("an empty property counts where a filter asks for it", "broker/filters/expressions.py",
            "            if value := raw[behind:end] if stop < 0 else raw[behind:stop]:\n"
            "                return value\n",
            "            return raw[behind:end] if stop < 0 else raw[behind:stop]\n",
            ("tests/broker/filters/test_expressions.py::test_an_empty_property_is_none",)),
    Planted("a batch begins where its group was told to be", POP + "ordered.py",
            "return 0 if state is None else state.next_offset", "return 0",
            ("tests/broker/pop/test_ordered.py::test_a_batch_begins_behind_what_is_on_its_way",)),
    # --- what is acknowledged
    Planted("an acknowledgement is answered though nobody may hold it", ACKING,
            "answer(\"\" if result.status is PutStatus.PUT_OK else", "answer(\"\" if True else", ("INV_B46",), "pops"),
    Planted("a message of another time has no checkpoint of its own", ACKING,
            "            self._records.checkpoint(checkpoint, receipt.revive_qid),\n", "", ("INV_B45",), "pops"),
    Planted("a message of another time keeps the old one as well", ACKING,
            "            self._records.ack(ack, receipt.revive_qid, receipt.invisible_ms)],\n",
            "            ],\n", ("INV_B46",), "pops"),
    Planted("an acknowledgement is of the next message", ACKING,
            "    return AckMessage(asked.offset, receipt.start_offset,",
            "    return AckMessage(asked.offset + 1, receipt.start_offset,", ("INV_B46",), "pops"),
    Planted("acknowledgements that come together count for the first message alone", RECORDS,
            "    if len(offsets) == 1:\n", "    if offsets:\n", ("INV_B46",), "pops"),
    Planted("many that a shorter queue does not have are answered and not stored", ACKING,
            "and offset <= queue.max_offset] or there", "and offset <= queue.max_offset]",
            ("tests/broker/pop/test_acking.py::"
             "test_who_has_a_shorter_queue_says_nothing_that_it_cannot_store",)),
    Planted("acknowledgements come long behind their checkpoint", RECORDS,
            "                             found.pop_time_ms + invisible_ms)\n\n    def _message",
            "                             found.pop_time_ms + invisible_ms + 9_000)\n\n    def _message",
            ("INV_B46",), "pops"),
    Planted("a checkpoint comes late to where it is revived", RECORDS,
            "revive_qid, found.revive_time_ms - AHEAD_MS, progress)",
            "revive_qid, found.revive_time_ms + 6_000, progress)", ("INV_B46", "INV_B48", "INV_B52"),
            "pops"),
    # --- what comes back
    Planted("acknowledgements are read and count for nothing", REVIVE,
            "                each.left.difference_update(offsets)\n", "", ("INV_B46",), "pops"),
    Planted("a second checkpoint of one name hears of no acknowledgement", REVIVE,
            "        for each in (waiting, *self._twins[key]) if key in self._twins else (waiting,):\n",
            "        for each in (waiting,):\n", (
                "tests/broker/pop/test_revive.py::"
                "test_of_two_checkpoints_of_one_name_both_hear_of_acknowledgements",)),
    Planted("a checkpoint is ripe when it comes", REVIVE,
            "by_time and by_time[0][0] < upto_ms:", "by_time:", ("INV_B51",), "pops"),
    Planted("a revive queue is processed as far as it was read", REVIVE,
            "        last = (pins[0][0] if pins else self.at) - 1\n", "        return self.at - 1\n", ("INV_B45",),
            "pops"),
    Planted("nobody waits for acknowledgements that timers hold", REVIVE,
            "        upto_ms = min(self._sure_ms - ACKS_BEHIND_MS, now_ms - HYSTERESIS_MS)\n",
            "        upto_ms = now_ms - HYSTERESIS_MS\n",
            (RIPE + "test_it_waits_until_the_timers_say_that_all_acknowledgements_are_there_and_they_are_read",)),
    Planted("no replica hears what came back", POP + "returning.py",
            "sys_flag=message.sys_flag | NOTED,", "sys_flag=message.sys_flag,", ("INV_B52",), "pops"),
    Planted("what came back is forgotten when the group's offset passes it", POP + "returning.py",
            "        self._passed.append(one)\n", "        self._known.discard(one[1])\n",
            (BACK + "test_of_those_that_the_offset_has_passed_the_last_are_known",)),
    Planted("an old copy of the revive offset counts", REVIVING,
            "max(self._passed.get(number, -1), -1 if found is None else found)", "-1 if found is None else found",
            (BACK + "test_an_old_copy_of_the_offset_brings_nothing_back_again",)),
    Planted("full properties come back never", REVIVING,
            "if len(message.properties) > PROPERTIES_BYTES_MAX and not self._acts:", "if False:",
            (BACK + "test_full_properties_go_to_the_dead_letters_as_they_are",)),
    Planted("a dead letter keeps the mark of what came back before", POP + "returning.py",
            "sys_flag=record.message.sys_flag & ~NOTED", "sys_flag=record.message.sys_flag",
            (BACK + "test_full_properties_go_to_the_dead_letters_as_they_are",)),
    # --- on a slave that acts
    Planted("an acknowledgement that the master will need is let go", REVIVE,
            "        if waiting.place < 0:\n", "        if True:\n",
            (LOOSE + "test_an_acknowledgement_of_a_record_in_the_queue_is_needed_until_that_is_passed",)),
    Planted("a checkpoint's timer is done when it is taken", REVIVING,
            "        loose = Loose(-2 - (first or 0), done)\n",
            "        loose = Loose(-2 - (first or 0), lambda: None)\n        done()\n",
            (ACTING + "test_who_cannot_be_popped_from_gets_nothing_and_others_go_on",)),
    Planted("what a slave does not find is gone", REVIVING,
            "record = Fate.LATER if self._acts else Fate.GONE", "record = Fate.GONE",
            (ACTING + "test_what_the_slave_does_not_find_is_left_to_its_master",)),
    Planted("checkpoints are ripe before the slot of their acknowledgements is seen", "broker/timer/machine.py",
            "return min(self._unseen, default=self._open_ms) if self.started", "return self._open_ms if self.started",
            ("tests/broker/timer/test_machine.py::test_what_was_seen",)),
    Planted("what comes back goes where nobody pops it", "broker/escape/part.py",
            "found = await self._ask(each.beside, READ) if each.beside else await self._ask(topic)",
            "found = await self._ask(self._standing.cluster_name)",
            (ACTING + "test_who_cannot_be_popped_from_gets_nothing_and_others_go_on",)),
    Planted("what came back too often is a dead letter of the other group", "broker/escape/letters.py",
            'if beside else {})}', 'if False else {})}',
            (ACTING + "test_what_came_back_often_is_no_dead_letter_elsewhere",)),
    Planted("one that nobody takes holds the others up", REVIVING,
            "        if self._acts and isinstance(result, NotTaken) and len(offsets) == 1:\n", "        if False:\n",
            (ACTING + "test_who_cannot_be_popped_from_gets_nothing_and_others_go_on",)),
    Planted("records that are taken count as timers that nobody stored", "broker/timer/delivery.py",
            "            self._machine.unfinished - self._taken < UNFINISHED_MAX)",
            "            self._machine.unfinished < UNFINISHED_MAX)",
            (ACTING + "test_more_are_out_than_timers_may_be_unfinished",)),
)
