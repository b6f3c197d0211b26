"""Planted bugs of transactions: what is decided twice, or never, and the tests that notice."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

BROKER: Final = "broker/transactions/"
HALVES: Final = "tests/broker/transactions/test_halves.py::"
TOGETHER: Final = BROKER + "together.py"
GATHERING: Final = "broker/gathering.py"
ENDING: Final = "tests/broker/transactions/test_ending.py::"
STANDING_IN: Final = "tests/broker/transactions/test_standing_in.py::"
ASKING: Final = "tests/broker/transactions/test_asking.py::"
FEEDING: Final = "tests/broker/transactions/test_feeding.py::"
REPLICAS: Final = "tests/broker/transactions/test_replicas.py::"
RECORDS: Final = "tests/broker/transactions/test_records.py::"
CONVERSION: Final = "tests/broker/transactions/test_conversion.py::"
NOTED: Final = "tests/broker/test_noted.py::"

PLANTED: Final = (
    Planted("each put-back is a transaction of its own", BROKER + "halves.py",
            "if named is None or named.half.unique == half.unique:", "if False:",
            (HALVES + "test_the_table_agrees_with_a_model",)),
    Planted("a half that was put back names any transaction", BROKER + "halves.py",
            "if named is None or named.half.unique == half.unique:", "if True:",
            (HALVES + "test_a_name_of_another_transaction_is_not_believed",)),
    Planted("what Java put back is told by its id alone", BROKER + "halves.py",
            "(known.half.group, known.half.born_ms, known.half.checks + 1) == (",
            "(known.half.group, half.born_ms, half.checks) == (",
            (HALVES + "test_what_java_put_back_is_known_by_its_id_its_birth_and_its_count",)),
    Planted("what is no longer remembered is open", BROKER + "halves.py",
            "if ended is not None or (self.since <= first < half.offset and first not in self._open):",
            "if ended is not None:", (HALVES + "test_what_ended_before_the_memory_reaches_stays_ended",)),
    Planted("a former half names nothing", BROKER + "halves.py",
            "transaction.former.append((transaction.half.offset, transaction.half.queue_offset))",
            "self._by_offset.pop(transaction.half.offset)", (HALVES + "test_the_table_agrees_with_a_model",)),
    Planted("a half that was brought back stays given up", BROKER + "halves.py",
            "transaction.half, transaction.given_up = half, False", "transaction.half = half",
            (HALVES + "test_the_table_agrees_with_a_model",
             ASKING + "test_unanswered_checks_end_in_a_topic_and_a_half_is_brought_back")),
    Planted("a commit has no mark in its append", TOGETHER,
            "return [*finals, mark(", "return finals or [mark(", (ENDING + "test_final_and_mark_are_one_append",)),
    Planted("a mark has the key of one of its transactions", TOGETHER,
            "[each.first for each in self.all])]", "[self.all[0].first])]",
            (ENDING + "test_each_of_those_that_were_decided_together_is_known_after_a_start",)),
    Planted("commits and rollbacks share a mark", GATHERING,
            "group = self._open.get(key)", "group = self._groups[-1] if self._groups else None",
            (ENDING + "test_those_that_are_decided_in_one_turn_share_a_mark",)),
    Planted("one message that cannot be stored refuses those beside it", BROKER + "ending.py",
            "if result.status in _OF_ONE and len(together.all) > 1:", "if False:",
            (ENDING + "test_who_cannot_be_stored_is_refused_alone",)),
    Planted("one put of decisions has no bound", GATHERING,
            "len(group.items) == self._count_max or group.size_bytes + size_bytes > self._bytes_max:", "False:",
            ("tests/broker/test_gathering.py::test_a_group_has_bounds",)),
    Planted("a half that was put back is passed over when its mark was heard, too", BROKER + "feeding.py",
            "if found[3] not in over or not is_first(found[7]):", "if found[3] not in over:",
            (REPLICAS + "test_a_half_that_was_put_back_and_decided_between_two_looks_ends_its_transaction",)),
    Planted("a half is passed over where no index finds its mark", BROKER + "feeding.py",
            "if halves and marks and self._messages.finds_keys else ()", "if halves and marks else ()",
            (REPLICAS + "test_what_began_and_ended_between_two_looks_of_a_slave_is_known_when_it_leads",)),
    Planted("a half is passed over for whatever mark names it", BROKER + "feeding.py",
            "if records.reason(found[7]) in (records.COMMITTED, records.ROLLED_BACK):", "if True:",
            (REPLICAS + "test_what_a_mark_of_rocketmq_names_is_remembered",)),
    Planted("who decides again decides once more", BROKER + "ending.py",
            "if transaction is None and half.queue_offset < self._feed.half_end:", "if False:",
            (ENDING + "test_a_late_commit_and_the_answer_to_a_check_are_one_message",)),
    Planted("whoever's half stands there is decided", BROKER + "ending.py",
            "half.unique not in (asked.transaction_id, asked.msg_id):", "False:",
            (ENDING + "test_forged_decisions_leave_the_half_alone",)),
    Planted("a contradiction is done", BROKER + "ending.py",
            "if ended in _DECISIONS.values():", "if False:", (ENDING + "test_a_contradiction_is_refused",)),
    Planted("how a transaction ended is not looked for in the log", BROKER + "ending.py",
            "self._messages.get_by_key(records.OP_TOPIC, str(first))}", "()}",
            (ENDING + "test_a_contradiction_is_refused_after_a_start",
             ENDING + "test_a_contradiction_is_refused_after_more_decisions_than_are_remembered")),
    Planted("of a transaction that ended, what nothing tells is done", BROKER + "ending.py",
            "if ended == decision:", "if ended in (decision, records.UNKNOWN):",
            (ENDING + "test_how_a_transaction_ended_that_nothing_tells_is_said_to_be_unknown",)),
    Planted("what was read before a cut is taken for what stands there after it", BROKER + "feeding.py",
            "self._level_at, self._near = -1, NOTHING", "self._level_at = -1",
            (FEEDING + "test_after_a_cut_other_halves_are_read_where_those_stood_that_are_gone",)),
    Planted("what was heard before a cut is taken after it", BROKER + "feeding.py",
            "        self._halves_heard.clear()\n", "", (FEEDING + "test_what_was_heard_before_a_cut_is_gone",)),
    Planted("a half that was not heard is passed over", BROKER + "feeding.py",
            "        if found[3] > due or ", "        if ", (FEEDING + "test_what_was_not_heard_is_read",)),
    Planted("a decision that no replica has is answered as done", BROKER + "ending.py",
            "if status is PutStatus.PUT_OK or status is PutStatus.SLAVE_NOT_AVAILABLE:", "if status in STORED:",
            (ENDING + "test_a_decision_that_a_new_master_may_not_have_is_not_answered_as_done",)),
    Planted("a slave rolls back whoever may deliver", BROKER + "ending.py",
            "        if why:\n            return _no_right(",
            "        if why and decision is COMMITTED:\n            return _no_right(",
            (STANDING_IN + "test_without_the_right_to_deliver_nothing_is_decided",)),
    Planted("a slave delivers at once what is delayed", BROKER + "ending.py",
            "        final = self._ruled(records.final(record, half, self._author.store_host, "
            "self._author.standing.role.epoch))\n        if isinstance(final, Refusal):\n            "
            "self.counters.failed += 1\n            return response(request, final.code, remark=final.remark)\n"
            "        under_way",
            "        final = records.final(record, half, self._author.store_host, self._author.standing.role.epoch)\n"
            "        under_way", (STANDING_IN + "test_what_is_delayed_waits_at_another_master",)),
    Planted("any group may decide", BROKER + "ending.py",
            "if not half.group or half.group != asked.producer_group:", "if not half.group:",
            (ENDING + "test_forged_decisions_leave_the_half_alone",)),
    Planted("whatever stands there is a half", BROKER + "records.py",
            "if in_topic != HALF_TOPIC or sys_flag & ROLLBACK:", "if sys_flag & ROLLBACK:",
            (RECORDS + "test_other_records_are_no_halves", ENDING + "test_forged_decisions_leave_the_half_alone")),
    Planted("a check counts without a producer", BROKER + "asking.py",
            "if what is Verdict.ASK and asked is None and not forward:", "if False:",
            (ASKING + "test_no_check_counts_without_a_producer",)),
    Planted("who gave itself a time is asked before", BROKER + "checking.py",
            "return Verdict.WAIT if age_ms <= half.immunity_ms else Verdict.ASK", "return Verdict.ASK",
            (ASKING + "test_immunity_delays_checks_counts_none_and_refuses_late_decisions",)),
    Planted("a mark decides by places alone", BROKER + "feeding.py",
            "        if unknown and", "        if False and",
            (FEEDING + "test_a_decision_ends_a_half_that_was_put_back_meanwhile_where_the_first_one_is_not_known",)),
    Planted("a mark of an earlier half is one of the present half, too", BROKER + "halves.py",
            "decision, at, marked=False)", "decision, at, marked=True)",
            ("tests/broker/transactions/test_halves.py::"
             "test_a_mark_of_an_earlier_half_is_none_of_the_present_one",)),
    Planted("a final record of any id decides", BROKER + "feeding.py",
            "if known is not None and known.half.unique == unique:", "if known is not None:",
            (REPLICAS + "test_a_copy_of_a_final_record_does_not_decide_the_half_at_its_place",)),
    Planted("final records are not heard of", BROKER + "feeding.py",
            "self._finals.append(found)", "pass",
            (REPLICAS + "test_what_a_java_master_committed_is_not_asked_for_and_gets_its_mark",)),
    Planted("a log that was cut leaves the table as it is", BROKER + "feeding.py",
            "if end > self.halves.highest:", "if True:",
            (REPLICAS + "test_a_decision_that_is_cut_off_is_open_again",)),
    Planted("senders may name a transaction", BROKER + "records.py",
            "    for name in OWN:\n        values.pop(name, None)\n", "",
            (CONVERSION + "test_no_sender_says_what_only_brokers_say",)),
    Planted("what is told again is handed on again", "broker/noted.py",
            "self._flags or found[0] < self._at:", "self._flags:",
            (NOTED + "test_what_is_shown_again_is_not_handed_on_again",)),
    Planted("what was confirmed while nobody listened is passed over", "broker/noted.py",
            "self._live = not run", "self._live = True",
            (NOTED + "test_each_is_handed_on_once_across_starts_and_cuts",)),
)
