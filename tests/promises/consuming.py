"""The promises of ``docs/reference/consuming.md``: answers, for the most part, that tests go through."""

from __future__ import annotations

from tests.promises.table import (
    CONSUMERS,
    IN_PROCESS,
    ON_PURPOSE,
    ONE_ANSWER,
    Page,
    Promise,
    both,
    tests_of,
)

JAVA_CLIENTS = ("interop untouched_java_clients_across_a_failover_of_our_brokers",)
TOOLS = ("interop both_tools_say_the_same_of_our_broker",)
ORDER = tests_of("broker/pulling", "requests", "what_is_wrong_is_found_in_javas_order")
FOUND = tests_of("broker/pulling", "requests", "codes_of_what_was_found")
RANGE = tests_of("broker/pulling", "reading", "offsets_in_and_out_of_range")
RESET = tests_of("broker/offsets", "requests", "a_reset_holds_against_late_commits_until_the_next_pull")

STARTED_AGAIN = tests_of("broker/offsets", "resets", "a_reset_holds_on_a_master_that_was_started_again")
KEPT = tests_of("broker/offsets", "resets",
                "a_reset_holds_on_the_next_master_against_late_commits_until_the_next_pull",
                "a_reset_holds_where_a_slave_acts_and_when_its_master_is_back")
AHEAD = tests_of("broker/pulling", "requests", "a_pull_that_is_ahead_of_its_heartbeat_gets_all_tags")
FILTERED = tests_of("broker/pulling", "filtering", "a_pull_that_relies_on_what_heartbeats_registered")
TOLD = tests_of("broker/consumers", "heartbeats", "the_others_hear_at_once_of_who_comes_and_goes")
LATER = tests_of("broker/consumers", "heartbeats",
                 "whose_heartbeat_makes_a_change_hears_of_it_half_a_second_later_once",
                 "nobody_is_told_while_it_sends_heartbeats",
                 "a_client_that_never_stops_sending_heartbeats_is_told_after_two_seconds")
TOGETHER = tests_of("broker/consumers", "heartbeats", "consumers_that_start_together_hear_of_each_other_at_once")
EMPTY = tests_of("broker/offsets", "requests", "what_a_group_is_told_of_where_it_is",
                 "an_empty_queue_is_begun_at_0_where_a_master_knows_that_it_is_empty")
SINGLE = ("interop java_clients_and_tools_with_our_single_master",)


COUNTED = tests_of("broker/query", "stats", "what_is_old_leaves_one_span_after_the_other", "rates_and_means")
STATISTICS = tests_of("broker", "every_code", "statistics_of_bytes_and_of_what_was_given_back")


def pull(start: str, tests: tuple[str, ...] = ORDER) -> Promise:
    """A row of what is checked, or found."""
    return Promise(start, not_simulated=ONE_ANSWER, tests=tests, not_real=IN_PROCESS)


def answer(start: str, tests: tuple[str, ...], real: tuple[str, ...] = ()) -> Promise:
    return Promise(start, not_simulated=CONSUMERS, tests=tests, real=real, not_real="" if real else IN_PROCESS)


PAGE = Page("docs/reference/consuming.md", (
    pull("Checks, their order"), pull("In this order"),
    pull("this broker is a slave", tests_of("broker/pulling", "requests",
                                        "a_slave_that_is_not_read_refuses_and_a_new_one_sends_away_who_waits")),
    pull("`brokerPermission` allows no reading"), pull("code 361"), pull("the group is unknown"),
    pull("the group may not consume"), pull("the topic is unknown"), pull("the topic cannot be read"),
    pull("the queue is none of the topic's"), pull("the filter comes with the pull"),
    pull("it does not, and the group has no members"), pull("the group broadcasts"),
    pull("the group may not read this topic"), pull("the group's members do not want"),
    pull("the heartbeat's subscription is older", tests_of("broker/pulling", "requests",
                                                       "a_pull_that_is_ahead_of_its_heartbeat_gets_all_tags")),
    pull("the filter is over properties", FILTERED), pull("the registered one is older", FILTERED),
    pull("a filter over properties, and", tests_of("broker/pulling", "filtering",
                                                   "without_the_key_nobody_filters_by_properties")),
    pull("one that comes with the pull and", tests_of("broker/pulling", "filtering", "a_pull_that_brings_its_filter")),
    pull("Entries are filtered by the hash", tests_of("broker/pulling", "requests",
                                                  "records_come_as_they_are_and_filtered_by_their_tags")),
    pull("An answer has at most", tests_of("broker/pulling", "reading", "the_first_message_comes_whatever_its_size",
                                       "messages_far_behind_come_in_smaller_answers_and_say_how_far")),
    pull("A filter looks at 800", tests_of("broker/pulling", "reading",
                                       "a_filter_looks_at_a_limited_part_of_the_queue")),
    pull("messages | 0", FOUND), pull("none that matches; deleted ones", FOUND),
    pull("a queue that never had a message",
         tests_of("broker/pulling", "reading", "a_queue_that_never_had_a_message")),
    pull("the end | 19", both(FOUND, RANGE)), pull("behind the end", both(FOUND, RANGE)),
    answer("a pull or POP waits, and its topic or group", tests_of(
        "broker", "left_waiting", "their_topic_is_deleted", "their_group_is_deleted",
        "the_configuration_forbids_them")),
    pull("before the beginning", RANGE), pull("a reset waits", tests_of(
        "broker/pulling", "requests", "a_reset_sends_the_next_pull_there_and_wakes_one_that_is_held")),
    pull("A slave that is read may lag", tests_of("broker/pulling", "requests",
                                              "a_slave_that_is_read_corrects_nothing_unless_told")),
    pull("A pull that finds nothing (19)", tests_of("broker/pulling", "requests",
        "a_wait_ends_in_time_with_nothing_found",
                                                "without_long_polling_it_waits_a_short_time")),
    pull("A message that it wants wakes it", tests_of(
        "broker/pulling", "requests", "a_pull_waits_for_a_message_and_gets_all_of_that_turn",
        "messages_that_are_not_wanted_do_not_wake_but_the_sweep_leads_behind_them")),
    pull("It is answered once", tests_of("broker/pulling", "requests",
                                     "many_wait_for_one_queue_and_each_is_answered_once")),
    pull("What forbids it", tests_of("broker", "left_waiting", "they_may_not_read_any_more",
                                     "the_configuration_forbids_them")),
    Promise("**A new master**, with", "B24", real=("failovers UNSEEN",)),
    answer("Until all that it held", tests_of("broker", "young_master",
                                              "a_pull_behind_what_a_young_master_shows_is_sent_nowhere_else")),
    answer("Positions (29, 30) and resets", tests_of(
        "broker", "young_master", "a_young_master_is_asked_for_the_end_of_a_queue",
        "a_reset_on_a_young_master_takes_nobody_back_unasked")),
    answer("`youngMasterShowsAll` has", tests_of("broker", "young_master",
                                                 "a_key_has_a_new_master_show_all_at_once_as_javas_do")),
    answer("Here such a pull is answered", AHEAD), answer("Expressions over properties are the broker's", AHEAD),
    answer("`consumerOffset.json` is Java's", tests_of("broker/offsets", "requests",
                                                   "offsets_reach_the_disk_at_intervals_and_at_the_end"), JAVA_CLIENTS),
    answer("A group that never said", tests_of("broker/offsets", "requests", "what_a_group_is_told_of_where_it_is",
                                           "a_queue_whose_beginning_was_deleted_is_not_begun_at_0")),
    answer("A master also says 0", EMPTY, SINGLE),
    answer("A reset (222) holds", RESET),
    Promise("Every replica hears of it in the log", not_simulated=CONSUMERS, tests=KEPT, not_real=IN_PROCESS),
    answer("A broker that is started again", STARTED_AGAIN),
    answer("It is answered when those know", tests_of(
        "broker/offsets", "resets", "a_reset_is_on_disk_when_it_is_answered",
        "a_reset_that_replicas_cannot_hear_of_is_answered_so")),
    answer("A broker that becomes master lowers", tests_of(
        "broker/offsets", "made_again", "a_master_lowers_positions_behind_the_end_of_their_queues",
        "a_master_lowers_positions_though_consumers_do_not_see_all_of_its_log_yet")),
    answer("With `useServerSideResetOffset` off", tests_of("broker/offsets", "requests", "a_reset_that_clients_do")),
    answer("A heartbeat makes the group", tests_of("broker/consumers", "heartbeats",
                                               "a_first_heartbeat_makes_group_and_retry_topic"), JAVA_CLIENTS),
    answer("A client is gone when", tests_of("broker/consumers", "heartbeats",
                                         "the_others_hear_at_once_of_who_comes_and_goes",
                                         "silence_ends_a_membership_and_an_idle_connection")),
    answer("The members of its group hear", both(TOLD, tests_of(
        "broker/consumers", "notices", "changes_are_told_once_to_those_whose_heartbeats_are_over"))),
    answer("A member whose last heartbeat", both(LATER, TOGETHER), SINGLE),
    answer("Once it did, it hears of changes", TOGETHER),
    answer("A heartbeat without subscriptions", tests_of(
        "broker/consumers", "heartbeats", "heartbeats_without_subscriptions_are_taken_where_those_are_known")),
    answer("[Locks on queues](locks.md) (41, 42)", tests_of(
        "broker/locks", "part", "one_broker_grants_a_queue_to_one_client"), JAVA_CLIENTS),
    answer("What asks a client", tests_of(
        "broker/consumers", "clientcalls", "a_client_is_asked_and_its_answer_goes_back"), TOOLS),
    answer("With `clientRebalance=false`", tests_of("broker/consumers", "assignment", "every_member_gets_its_share",
                                                "modes_are_checked_kept_and_listed")),
    answer("12 | messages by key", tests_of("broker/query", "query", "messages_by_key_by_id_and_by_place"), TOOLS),
    answer("33 | one message", tests_of("broker/query", "query", "messages_by_key_by_id_and_by_place"), TOOLS),
    answer("29 | the first message", tests_of("broker/query", "query", "positions_by_time"), TOOLS),
    answer("30, 31, 32 | end", tests_of("broker/query", "query", "bounds_of_queues"), TOOLS),
    answer("321 | entries", tests_of("broker/query", "query", "entries_of_a_queue"), TOOLS),
    answer("202, 208, 317, 303", tests_of("broker/query", "query", "how_full_a_topic_is", "how_far_groups_are",
                                      "times_of_what_was_consumed"), TOOLS),
    answer("315 |", tests_of("broker/query", "query", "counters_are_shown"), TOOLS),
    answer("`TOPIC_PUT_NUMS`, `TOPIC_PUT_SIZE`", STATISTICS),
    answer("`GROUP_GET_NUMS`, `GROUP_GET_SIZE`", COUNTED),
    answer("`SNDBCK_PUT_NUMS`", STATISTICS),
    answer("`BROKER_PUT_NUMS`, `BROKER_GET_NUMS`", COUNTED),
    answer("`BROKER_PUT_NUMS_WITHOUT", tests_of("broker/query", "stats",
                                               "topics_of_the_system_are_in_one_sum_of_two")),
    answer("`BROKER_CK_NUMS`", STATISTICS),
    answer("A name that is not counted", tests_of("broker/query", "query", "counters_are_shown")),
    answer("306, 316, 329", tests_of("broker/query", "query", "cleaning_is_passed_on"), TOOLS),
    answer("a pull that is sent to a reset offset", RESET),
    answer("resets that no pull has seen", KEPT),
    answer("a reset, and its broker is killed", tests_of(
        "broker/offsets", "resets", "a_reset_is_on_disk_when_it_is_answered")),
    answer("a reset that no pull has seen", STARTED_AGAIN),
    answer("what wakes a held pull", tests_of("broker/pulling", "requests",
                                          "a_pull_waits_for_a_message_and_gets_all_of_that_turn")),
    answer("messages 40", both(TOLD, LATER)),
    answer("a pull by tags that is ahead", AHEAD),
    answer("14 for a queue that shows no message", EMPTY, SINGLE),
    answer("a member that fell silent", tests_of("broker/consumers", "heartbeats",
                                             "silence_ends_a_membership_and_an_idle_connection")),
    answer("V2 heartbeat that nobody", tests_of("broker/consumers", "heartbeats",
                                            "heartbeats_without_subscriptions_are_taken_where_those_are_known")),
    answer("groups and retry topics, on a slave", tests_of("broker/consumers", "heartbeats",
                                                       "a_slave_makes_nothing_and_knows_its_clients")),
    answer("a commit for a queue", tests_of("broker/offsets", "requests", "commits_and_who_may_not")),
    answer("314 without a topic", tests_of("broker/offsets", "requests", "offsets_are_cloned")),
    answer("308 for a group", tests_of("broker/offsets", "requests", "corrections_of_offsets")),
    answer("counters of messages put", tests_of("broker/query", "stats",
                                            "messages_put_are_those_that_queues_have_more_than_before")),
    Promise("Delayed messages are delivered from then on", "B36 B39", not_real=IN_PROCESS),
    Promise("search by tag (12", not_simulated=ON_PURPOSE, not_real=IN_PROCESS,
            tests=tests_of("broker/query", "query", "messages_by_key_by_id_and_by_place")),
), others=(
    "What a broker does for consumers", "Codes 11 and 361", "Then the queue is read", "Codes 14, 15, 43",
    "Codes 34, 35, 38",
    "A Java client that gets other queues", "The next one leaves 30 s later",
    "Code 315 asks for one", "`BrokerStatsManager` of RocketMQ", "`GROUP_CK_NUMS`, `GROUP_ACK_NUMS`",
    "`QUEUE_PUT_NUMS`", "`TOPIC_PUT_LATENCY`", "`GROUP_GET_FROM_DISK_NUMS`", "`CONSUMER_REGISTER_TIME`",
    "`SNDBCK2DLQ_TIMES`",
    "light topics, static topics", "POP | [a page",
))
