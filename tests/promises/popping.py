"""The promises of ``docs/reference/popping.md``."""

from __future__ import annotations

from tests.promises.table import IN_PROCESS, ONE_ANSWER, ONE_RULE, TIMING, WORDS, Page, Promise, both, tests_of

JAVAS = ("interop both_brokers_say_the_same_to_who_pops",)
PUSH = ("interop java_push_consumers_pop_from_our_brokers",)
KILLED = ("interop java_push_consumers_pop_across_a_failover_of_our_brokers",)
REFUSED = ("interop popped_messages_outlive_a_store_that_refuses_writes",)


def acking(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "acking", *names)


def requests(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "requests", *names)


def ordered(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "ordered", *names)


def orderlog(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "orderlog", *names)


def part(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "part", *names)


def reviving(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "reviving", *names)


def waiting(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "waiting", *names)


def acting(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "acting", *names)


def answer(start: str, tests: tuple[str, ...], real: tuple[str, ...] = ()) -> Promise:
    """Of one request."""
    return Promise(start, not_simulated=ONE_ANSWER, tests=tests, real=real, not_real="" if real else IN_PROCESS)


def kept(start: str, asks: str, tests: tuple[str, ...] = (), real: tuple[str, ...] = ()) -> Promise:
    """What the simulation asks after each event."""
    return Promise(start, asks, tests=tests, real=real, not_real="" if real else IN_PROCESS)


CHECKS = both(requests("what_is_refused", "what_a_broker_refuses_by_its_keys", "what_is_not_shown"),
              acking("what_is_refused"), tests_of("broker/pop", "notify", "what_is_refused"))
BACK = tests_of("broker/pop", "redelivery", "what_nobody_acknowledges_comes_back_in_time")
RETURNED = reviving("what_was_not_acknowledged_comes_back_and_nothing_else")
JSON = tests_of("broker/pop", "order", "states_are_javas_json")
STATES = orderlog("the_next_master_knows_what_is_out_and_what_of_it_is_done")
BATCH = ordered("a_second_batch_comes_when_the_first_is_done_with")
BEHIND = part("how_far_behind_a_group_is")
KEYS = tests_of("broker/pop", "records", "a_checkpoint_waits_as_a_timer_until_a_second_before_its_time")

PAGE = Page("docs/reference/popping.md", (
    kept("What it does not acknowledge", "B45 B48", BACK, PUSH),
    answer("A client that writes them", tests_of("remoting", "server", "who_cuts_a_code_off_is_told")),
    answer("They are carried out by a master", acting("what_is_not_acknowledged_comes_back_while_the_master_is_away")),
    answer("Any other slave answers 2", part("a_slave_sends_clients_away")),
    *(answer(start, CHECKS) for start in (
        "Checks, in this order", "`bornTime` + `pollTime` is", "the broker may not be read", "`timerWheelEnable` is",
        "unknown topic |", "the topic may not", "unknown group", "the group may not", "`invisibleTime` below",
        "the filter cannot")),
    answer("`maxMsgNums` below 1", CHECKS, JAVAS), answer("no such queue", CHECKS, JAVAS),
    answer("no entries", acking("entries_that_say_nothing", "requests_that_say_nothing"), JAVAS),
    answer("`offset` outside", acking("the_end_of_a_queue_can_be_acknowledged_and_not_changed",
                                      "who_has_a_shorter_queue_says_nothing_that_it_cannot_store"), JAVAS),
    answer("a group, or of a 200151 a topic", acking(
        "what_is_refused", "entries_that_say_nothing", "a_group_of_a_strange_name_that_is_there_acknowledges")),
    answer("an acknowledgement of a group that no broker", acking("what_is_refused")),
    answer("a checkpoint in the revive topic with such", reviving("records_that_nobody_understands_are_passed_over")),
    answer("a checkpoint in the revive topic, sent", reviving(
        "a_checkpoint_that_no_timer_could_hold_back_is_passed_over")),
    answer("a receipt that is none", acking("what_is_refused")),
    kept("the record cannot be stored", "B49", both(
        requests("where_no_checkpoint_can_be_stored_nothing_is_given"),
        acking("what_is_not_stored_is_not_answered_with_success"))),
    answer("Where there is nothing to give",
           requests("nothing_is_answered_when_the_wait_is_over", "when_too_many_wait_the_next_one_is_told_so",
                    "a_peek_takes_nothing"), JAVAS),
    answer("A 200054 is checked", tests_of(
        "broker/pop", "notify", "a_message_is_there_until_it_is_given_to_somebody", "the_wait_ends_with_no",
        "when_too_many_wait_it_says_so")),
    answer("One that brings `exp`", tests_of(
        "broker/pop", "notify", "of_few_messages_that_are_left_one_must_have_a_wanted_tag",
        "without_the_key_filters_of_who_asks_are_not_looked_at")),
    answer("Properties, and messages of retry", tests_of(
        "broker/pop", "notify", "of_few_messages_that_are_left_one_must_have_a_wanted_tag")),
    answer("A 200055 has", tests_of("broker/pop", "notify", "pops_that_wait_are_counted_by_the_queue_that_they_name")),
    answer("A POP of any queue goes", both(
        tests_of("broker/pop", "taking", "queues_are_looked_at_in_turn"),
        requests("a_topic_of_priorities_gives_its_highest_queue_first"))),
    answer("In a topic whose `message.type`", requests(
        "a_topic_of_priorities_gives_its_highest_queue_first",
        "priorities_count_as_often_as_the_group_says_and_not_in_order")),
    answer("What comes back is looked at", requests(
        "how_often_what_comes_back_is_first", "how_often_what_comes_back_is_first_in_a_topic_of_priorities")),
    answer("Requests wait by topic", waiting("too_many_are_not_parked")),
    answer("A request ends its wait 50 ms", waiting("it_is_tried_a_last_time_when_its_time_is_nearly_over",
                                                    "a_clock_that_is_ahead_waits_as_long_as_any")),
    answer("They are carried out again", requests("a_message_ends_the_wait"), JAVAS),
    answer("a message of their topic is seen", waiting(
        "a_message_wakes_one_of_its_queue_and_one_of_any_for_each_group",
        "pops_wake_in_the_order_of_their_ends_and_notifications_in_the_other")),
    answer("a message of a retry topic", waiting("what_was_not_acknowledged_wakes_who_waits_for_the_first_topic")),
    answer("800 messages", waiting("messages_that_nobody_wants_wake_nobody_until_they_are_many")),
    answer("a POP left messages", waiting("unlocked_and_more_wake_one")),
    answer("a queue is free", both(waiting("unlocked_and_more_wake_one"),
           ordered("an_acknowledgement_wakes_who_waits"))),
    answer("a new master may show", both(
        waiting("whoever_waits_when_the_broker_stops_is_tried_and_nobody_waits_any_more"),
        part("who_waits_is_answered_when_the_broker_stops"))),
    answer("Records of a retry topic are given", requests("what_comes_back_is_of_the_topic_again"), PUSH),
    answer("Until they are due they wait", KEYS),
    answer("`ck` | a second", KEYS),
    answer("`ack` | when", tests_of("broker/pop", "records",
                                    "acknowledgements_wait_until_the_time_of_their_checkpoint")),
    answer("`bAck` | when", acking("many_are_acknowledged_at_once")),
    answer("Acknowledgements of one checkpoint", acking(
        "acknowledgements_that_come_together_are_one_record_of_each_checkpoint"), PUSH),
    kept("Each request is answered by what becomes", "B46 B48", acking(
        "each_of_those_hears_why_they_are_not_stored",
        "acknowledgements_that_were_gathered_when_writes_closed_are_refused")),
    answer("The checkpoint of a POP has one property", tests_of(
        "broker/pop", "records", "every_replica_hears_of_one_that_takes_its_group_on")),
    kept("The next POP reads behind", "B52", tests_of("broker/pop", "chain",
                                                      "the_next_pop_reads_behind_what_is_not_stored_yet")),
    kept("The offset of the group in a queue", "B50"),
    kept("If a checkpoint is refused", "B49 B50", requests("where_no_checkpoint_can_be_stored_nothing_is_given")),
    kept("If it is stored, and not", "B49", part("what_is_not_held_in_time_is_neither_given_nor_given_again")),
    kept("Every replica hears the checkpoints", "B52",
           part("a_slave_that_becomes_master_goes_on_behind_the_checkpoints",
                                                            "a_damaged_file_is_made_again_from_the_log"), KILLED),
    kept("One that begins behind the end", "B50",
           tests_of("broker/pop", "progress", "one_behind_a_gap_takes_nobody_on")),
    answer("One that begins in front", tests_of("broker/pop", "progress", "one_that_begins_further_back_counts")),
    kept("A new master raises its offsets", "B52", part("a_slave_that_becomes_master_goes_on_behind_the_checkpoints"),
         KILLED),
    answer("Messages that a filter left out", requests("what_a_filter_leaves_out_is_passed")),
    answer("A reset (222) is in the log", part("a_reset_holds_on_the_next_master",
                                            "a_topic_that_is_made_again_begins_anew_on_the_next_master")),
    Promise("Every replica follows that record", "B62", tests=tests_of(
        "broker/offsets", "made_again", "a_slave_that_becomes_master_at_once_has_no_old_position",
        "a_slave_killed_before_it_wrote_its_file_forgets_all_the_same",
        "a_record_is_followed_again_while_the_file_cannot_be_written",
        "positions_in_the_topic_that_was_made_again_outlive_a_kill"), real=tests_of(
            "broker/offsets", "made_again_killed", "a_slave_that_follows_a_killed_master_passes_nothing_over",
            "a_broker_killed_when_the_deletion_was_answered_passes_nothing_over")),
    answer("A record that is refused is said again", tests_of(
        "broker/pop", "changes", "a_refused_record_stands_before_the_next_message",
        "what_was_refused_is_said_when_the_master_may_write_again", "who_follows_another_master_says_nothing_again")),
    Promise("A deletion (215, 207) is answered", "B62", tests=tests_of(
        "broker/offsets", "made_again", "positions_are_gone_on_disk_when_the_deletion_is_answered",
        "a_deletion_that_replicas_cannot_hear_of_is_answered_so"), real=tests_of(
            "broker/offsets", "made_again_killed", "a_slave_that_follows_a_killed_master_passes_nothing_over",
            "a_broker_killed_when_the_deletion_was_answered_passes_nothing_over")),
    answer("A master reads its queues on", reviving("all_queues_are_read_and_those_of_before")),
    kept("A checkpoint is looked at when", "B46 B51", tests_of(
        "broker/pop", "revive", "what_was_not_acknowledged_comes_back_two_seconds_behind_its_time",
        "it_waits_until_the_timers_say_that_all_acknowledgements_are_there_and_they_are_read")),
    kept("So an acknowledgement that was answered", "B46", acking("a_late_acknowledgement_is_answered_with_success"),
         JAVAS),
    answer("is there | it is stored", RETURNED, PUSH),
    answer("was deleted as old", reviving("what_was_deleted_as_old_does_not_come_back",
                                          "of_a_topic_that_was_made_anew_nothing_comes_back",
                                          "a_topic_that_is_deleted_holds_nothing_up"), JAVAS),
    answer("cannot be read, or lies", both(
        reviving("an_offset_beyond_the_end_is_tried_again", "a_group_that_nobody_knows_is_given_some_time"),
        tests_of("broker/pop", "revive", "the_pause_of_one_that_is_put_again_grows"))),
    kept("A put that is refused", "B45", reviving("refused_puts_lose_nothing"), REFUSED),
    kept("The offset passes a checkpoint", "B45"),
    *(answer(start, RETURNED, PUSH) for start in (
        "reconsume times | one more", "`1ST_POP_TIME` | the pop time", "topic | that of the checkpoint")),
    *(answer(start, RETURNED) for start in ("body, flag, birth", "hosts | this", "`ORIGIN_GROUP` | the")),
    kept("`__QUORATE_REVIVED` | ours", "B52", reviving("what_came_back_does_not_again_though_the_offset_was_not_copied",
                                                       "an_old_copy_of_the_offset_brings_nothing_back_again")),
    answer("A slave that [acts", acting("what_is_not_acknowledged_comes_back_while_the_master_is_away")),
    answer("Its records wait in their timers", acting("what_the_slave_does_not_find_is_left_to_its_master",
                                                      "a_master_that_comes_back_brings_back_none_of_them_again")),
    answer("Checkpoints of its own", tests_of("broker/pop", "lending",
           "what_is_given_and_not_acknowledged_comes_back_at_the_other_master")),
    Promise("`popReviveBehind` of code 28", not_simulated=WORDS, tests=reviving("it_says_why_nothing_comes_back"),
            not_real=IN_PROCESS),
    answer("The log is kept from the first record", reviving(
        "the_log_is_kept_from_the_first_record_that_is_needed", "messages_that_may_come_back_stay",
        "old_files_stay_until_what_was_popped_there_came_back",
        "the_first_message_of_each_queue_is_retained_until_its_time")),
    kept("With `order` a batch", "B47", BATCH, JAVAS),
    answer("Retry topics are not looked at", tests_of("broker/pop", "notify",
                                                      "what_comes_back_is_a_message_too_but_not_in_order")),
    answer("There is no checkpoint, and", BATCH),
    kept("a second request", "B47", BATCH, JAVAS),
    answer("an acknowledgement | the group's", both(BATCH, ordered(
        "who_acknowledges_what_was_not_given_is_told", "of_what_another_master_gave_only_who_leads_answers")), JAVAS),
    answer("`CHANGE_MESSAGE_INVISIBLETIME` | the", ordered(
        "another_time_blocks_for_that_time", "of_what_another_master_gave_only_who_leads_answers")),
    answer("what is given again | is counted", ordered("what_is_not_done_with_in_time_comes_again_and_is_counted")),
    kept("210, with words | replicas acknowledged", "B47",
         ordered("of_what_was_given_to_another_one_before_its_answer_nothing_is_given")),
    answer("1 | the state cannot", ordered("what_cannot_be_stored_is_neither_given_nor_done_with")),
    answer("Its fields are those of Java's", JSON),
    kept("Each change is a message", "B47", STATES),
    kept("Every replica reads them, so", "B47", both(STATES, ordered("order_holds_on_the_next_master"))),
    answer("A reign that wrote to the log", orderlog("a_reign_of_another_kind_of_broker_voids_what_was_out_before")),
    answer("A master leaves its word", orderlog("the_next_master_knows_what_is_out_and_what_of_it_is_done")),
    answer("Without controllers a replica", orderlog(
        "without_controllers_who_followed_a_java_master_knows_that_all_from_before_is_void")),
    answer("States in old files", orderlog(
        "states_go_forward_before_their_files_go", "old_files_go_when_what_is_out_was_stored_behind_them")),
    answer("The file of Java is written", orderlog(
        "javas_file_is_taken_over_and_written",
        "of_what_was_out_before_a_java_broker_that_had_nothing_out_nothing_is_left")),
    Promise("`mqadmin brokerStatus` (code 28)", not_simulated=WORDS, tests=part("what_is_counted"),
            not_real=IN_PROCESS),
    Promise("An answer 210 with a remark", not_simulated=WORDS,
            tests=requests("where_no_checkpoint_can_be_stored_nothing_is_given"), not_real=IN_PROCESS),
    answer("The page for Prometheus", part("what_is_counted")),
    *(answer(start, BEHIND) for start in (
        "`lag_messages` |", "`lag_latency_milliseconds` |", "`inflight_messages` |",
        "`ready_messages`, `queueing_latency_milliseconds`")),
    kept("an acknowledgement that could not be stored", "B46",
         acking("what_is_not_stored_is_not_answered_with_success")),
    answer("a change of the time |", acking("another_time_is_a_checkpoint_and_an_acknowledgement")),
    answer("a change within the millisecond", acking("another_time_is_a_checkpoint_and_an_acknowledgement")),
    kept("a checkpoint that was not acknowledged by", "B49",
         part("what_is_not_held_in_time_is_neither_given_nor_given_again")),
    kept("a checkpoint that the store refused", "B49", requests("where_no_checkpoint_can_be_stored_nothing_is_given")),
    kept("offsets on a new master", "B52", part("a_slave_that_becomes_master_goes_on_behind_the_checkpoints"), KILLED),
    kept("order on a new master", "B47", ordered("order_holds_on_the_next_master")),
    answer("what is done with in the middle", ordered("what_is_not_done_with_in_time_comes_again_and_is_counted")),
    answer("the new kind of retry topic", requests("the_old_retry_topic_is_read_as_long_as_a_key_says_so")),
    answer("a receipt of another broker", acking("what_is_refused")),
    answer("a POP for no message", requests("what_is_refused")),
    kept("a message that should come back", "B45", reviving("refused_puts_lose_nothing"), REFUSED),
    answer("where the message should stand", reviving("where_another_message_stands_it_is_tried_again")),
    answer("an offset beyond the end of its queue", reviving(
        "an_offset_beyond_the_end_is_tried_again", "of_a_topic_that_was_made_anew_nothing_comes_back")),
    answer("a message whose properties have no room", reviving("full_properties_go_to_the_dead_letters_as_they_are")),
    answer("revive queues beyond `reviveQueueNum`", reviving("all_queues_are_read_and_those_of_before")),
    answer("acknowledged in the middle of a batch", tests_of("broker/pop", "order",
                                                             "what_is_done_with_in_the_middle_is_not_given_again")),
    answer("an acknowledgement in order without", tests_of("broker/pop", "order",
                                                           "without_a_state_no_message_is_passed_over")),
    answer("the master is away, without controllers", acting(
        "what_is_not_acknowledged_comes_back_while_the_master_is_away", "no_other_master_is_there_for_a_while")),
    answer("where an acting slave sends", acting("who_cannot_be_popped_from_gets_nothing_and_others_go_on")),
    Promise("a checkpoint that takes longer than 30 s", not_simulated=TIMING, not_real=ONE_RULE,
            tests=reviving("refused_puts_lose_nothing")),
), others=(
    "A consumer that *pops*", "What a broker does for that", "The client's side", "Their codes have", "All times are",
    "200050 `POP", "200051 `ACK", "200052 `PEEK", "200053 `CHANGE", "200151 `BATCH", "200054 `NOT", "200055 `POLL",
    "receipt (`extraInfo`", "retry flag |", "`startOffsetInfo` |", "`msgOffsetInfo` |", "`orderCountInfo` |",
    "All are messages of `rmq_sys_REVIVE", "of a checkpoint | `topic", "of an acknowledgement | `topic",
    "of a checkpoint | `floor", "of a record in `rmq_sys_pop_resets`", "Checkpoints and acknowledgements leave",
    "Then, of each message", "The record that comes back", "What is out in order is the state", "`epoch` | of",
    "`topic`, `group`, `queueId` | whose", "`state` | all", "`enablePopBufferMerge` and",
    "`enableSkipLongAwaitingAck`,", "subscriptions of groups that pop",
))
