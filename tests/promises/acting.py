"""The promises of ``docs/reference/acting.md``: groups without controllers."""

from __future__ import annotations

from typing import Final

from tests.promises.table import IN_PROCESS, JAVA, ONE_ANSWER, ORDERS, WORDS, Page, Promise, both, tests_of

POPLESS: Final = "members of simulated groups without controllers pop nothing"
APART: Final = "simulated members without controllers share no machine"
LAYOUT: Final = "it is the layout of a file, which its tests go through"

AWAY = ("interop java_timers_go_on_while_our_master_is_away",)
MIXED = ("interop a_java_name_server_and_ours_say_that_our_master_is_away",
         "interop name_servers_of_four_kinds_say_that_our_master_is_away")
OF_JAVA = ("interop our_slave_acts_for_a_java_master",)
JAVA_ACTS = ("interop a_java_slave_acts_for_our_master",)
HALVES = ("interop our_slave_sends_the_halves_of_a_java_master_on",)
READ = ("interop java_consumers_read_and_lock_at_our_acting_slave",)
MIXED_READ = ("interop java_consumers_read_and_lock_while_our_slave_acts_for_a_java_master",
              "interop our_slave_acts_for_a_java_master_with_delay_levels")
KNOWN_BETTER = tests_of("broker/preonline", "levelling", "a_master_of_rocketmq_takes_what_its_acting_slave_knows")
POPPED = ("interop java_push_consumers_pop_at_our_acting_slave",)
DECIDED = ("interop java_transactions_are_decided_at_our_acting_slave",)
RETURNS = ("interop our_plain_master_comes_back_to_a_java_slave", "interop a_java_plain_master_comes_back_to_our_slave")
KILLED = tests_of("broker/preonline", "killed", "a_master_that_is_killed_comes_back_to_what_its_slave_knows")
POP_KILLED = tests_of("broker/pop", "acting_killed", "what_was_popped_comes_back_without_its_master")
HOUSED = tests_of("broker/container", "container",
                  "a_slave_without_its_master_hands_what_is_due_to_a_master_of_its_container")


def standin(*names: str) -> tuple[str, ...]:
    return tests_of("broker/standin", "part", *names)


def older(*names: str) -> tuple[str, ...]:
    return tests_of("broker/standin", "older", *names)


def right(*names: str) -> tuple[str, ...]:
    return tests_of("broker/acting", "right", *names)


def escape(*names: str) -> tuple[str, ...]:
    return tests_of("broker/escape", "part", *names)


def letters(*names: str) -> tuple[str, ...]:
    return tests_of("broker/escape", "letters", *names)


def siblings(*names: str) -> tuple[str, ...]:
    return tests_of("broker/siblings", "part", *names)


def handover(*names: str) -> tuple[str, ...]:
    return tests_of("broker/siblings", "handover", *names)


def levelling(*names: str) -> tuple[str, ...]:
    return tests_of("broker/preonline", "levelling", *names)


def steps(*names: str) -> tuple[str, ...]:
    return tests_of("broker/preonline", "steps", *names)


def tail(*names: str) -> tuple[str, ...]:
    return tests_of("broker/preonline", "tail", *names)


def ledger(*names: str) -> tuple[str, ...]:
    return tests_of("broker/ledger", "part", *names)


def entries(*names: str) -> tuple[str, ...]:
    return tests_of("broker/ledger", "entries", *names)


def file(*names: str) -> tuple[str, ...]:
    return tests_of("broker/ledger", "file", *names)


def deciding(*names: str) -> tuple[str, ...]:
    return tests_of("broker/transactions", "standing_in", *names)


def asking(*names: str) -> tuple[str, ...]:
    return tests_of("broker/transactions", "in_place", *names)


def popped(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "acting", *names)


def loose(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "loose", *names)


def lending(*names: str) -> tuple[str, ...]:
    return tests_of("broker/pop", "lending", *names)


def errands(*names: str) -> tuple[str, ...]:
    return tests_of("broker/errands", "part", *names)


def elsewhere(*names: str) -> tuple[str, ...]:
    return tests_of("broker/timer", "elsewhere", *names)


def apart(start: str, why: str, tests: tuple[str, ...], real: tuple[str, ...] = (),
          not_real: str = IN_PROCESS) -> Promise:
    """Of which no simulation knows."""
    return Promise(start, not_simulated=why, tests=tests, real=real, not_real="" if real else not_real)


def answer(start: str, tests: tuple[str, ...], real: tuple[str, ...] = ()) -> Promise:
    return apart(start, ONE_ANSWER, tests, real)


def kept(start: str, asks: str, tests: tuple[str, ...] = (), real: tuple[str, ...] = (),
         not_real: str = IN_PROCESS) -> Promise:
    """What the simulation of groups without controllers asks."""
    return Promise(start, asks, tests=tests, real=real, not_real="" if real else not_real)


def pop(start: str, tests: tuple[str, ...], real: tuple[str, ...] = ()) -> Promise:
    return apart(start, POPLESS, tests, real)


ACTS = standin("the_smallest_slave_acts_until_the_master_is_back")
LATE = standin("without_name_servers_nobody_delivers_for_long")
LISTED = standin("who_is_no_longer_listed_registers_again_at_once")
POSITIONS = standin("positions_of_queues_are_answered_in_the_masters_place")
SAID = standin("what_is_said_at_the_start")
BY_CODE = older("each_is_asked_by_what_it_knows")
SIGNS = tests_of("broker", "registration", "signs_of_life_and_how_long_silence_may_last")
ESCAPES = escape("delayed_messages_and_timers")
WAITS = escape("what_nobody_takes_is_kept")
PLACES = letters("only_masters_of_this_cluster_that_may_be_written_to_and_never_the_own_group")
ONE_QUEUE = letters("a_queue_goes_to_one_queue_and_to_another_broker_where_that_one_refused")
AT_SIBLING = siblings("a_sibling_comes_first_and_the_network_next")
AS_IT_IS = siblings("without_remote_escape_a_sibling_stores_the_record_as_it_is")
UNSURE_SIBLING = siblings("an_unknown_outcome_is_counted_and_handed_over_again")
ONE_AT_A_TIME = right("one_at_a_time")
SOON = right("how_soon")
HALF_OR_MORE = right("a_master_needs_half_of_them_and_a_slave_more")
CLOSED = right("a_name_server_that_closes_connections_lets_both_deliver_for_the_timeout_at_most")
HEARS = right("a_slave_that_hears_its_master_lets_it_come_to_its_end")
OVERLAPS = tests_of("broker/acting", "overlaps", "no_overlap_is_longer_than_its_row_says")
DECIDES = deciding("decisions_at_a_slave_are_the_masters")
RIGHTLESS = deciding("a_master_without_the_right_to_deliver_decides_nothing")
SLAVE_RIGHTLESS = deciding("without_the_right_to_deliver_nothing_is_decided")
KNOWS = ledger("who_begins_to_decide_has_read_what_others_decided")
WAITED = ledger("a_member_that_does_not_answer_is_waited_for_so_long")
NOT_LOST = levelling("what_consumers_said_to_the_slave_is_not_lost")
ISOLATED = levelling("positions_of_groups_are_neither_taken_nor_told_until_the_members_are_read")
NO_LOCKS = tests_of("broker/locks", "part", "a_master_that_is_not_back_yet_grants_nothing_by_itself")
WAITING = levelling("delays_timers_and_modes_go_on_where_the_slave_is")
LINKED = levelling("a_member_that_cannot_connect_keeps_the_master_away_in_words")
EARLY_END = levelling("a_log_that_ends_early_is_completed_first")
DIFFERENT = levelling("logs_that_differ_keep_the_master_away")
LONE = levelling("who_is_alone_waits_for_nobody")
NEWLY_STARTED = levelling("a_name_server_that_has_just_started_does_not_hide_the_slave")
TIMERLESS = levelling("a_member_without_timers_does_not_keep_the_master_away")
OTHERS = steps("the_others_are_all_but_this_broker_and_its_former_process")
LONGEST = steps("copying_what_is_longer_ends_level_with_the_longest_or_says_why_not")
ANY_TAIL = tail("any_log_that_is_a_beginning_is_completed")
EMPTY_LOG = tail("an_empty_log_is_copied_from_where_the_members_begins")
COMPARED = tail("what_both_hold_is_compared_first", "logs_that_differ_are_not_joined")
COMMITTED = ledger("a_commit_that_was_answered_outlives_a_slave_that_is_killed",
    "a_commit_is_answered_when_it_is_synced")
LAST_WORD = ledger("the_last_word_of_the_slave_counts_and_it_learns_no_more")
COPIED = ledger("the_next_slave_has_it_as_far_as_it_was_copied")
TIMES = ledger("the_time_of_the_timers_outlives_a_master_that_is_lost_before_its_wheel_is_on_disk")
GAP = ledger("what_a_slave_sends_a_group_over_is_not_passed_over_at_its_master")
POP_GAP = ledger("a_group_that_pops_is_not_sent_over_what_its_master_has")
BOTH_GAPS = both(GAP, POP_GAP)
NO_GAP = ledger("a_slave_that_sends_nobody_on_has_no_gap")
SET_BACK = ledger("a_group_is_set_back_only_over_what_is_here")
FORGOT = ledger("what_one_slave_forgot_counts_where_another_one_has_something_older")
OLDER = ledger("what_was_noted_before_a_master_led_does_not_come_back_with_a_slave")
UNREAD = ledger("what_a_master_never_read_is_forgotten_when_it_would_set_it_back")
IN_LOG = ledger("a_decision_outlives_the_masters_disk_until_the_slaves_log_has_it",
                "what_is_not_in_the_log_is_forgotten_by_nobody",
                "who_holds_less_of_the_log_forgets_nothing_that_it_says")
BY_HALVES = asking("halves_of_a_rocketmq_master_are_sent_on")
STOPS = asking("a_half_that_nobody_takes_stops_those_behind_it")
NEXT_PROCESS = asking("the_next_process_of_the_slave_goes_on")
ELSEWHERE = elsewhere("a_timer_that_only_the_lost_master_had_comes_late_and_no_other_comes_twice")
BACK = popped("what_is_not_acknowledged_comes_back_while_the_master_is_away")
BACK_AGAIN = popped("a_master_that_comes_back_brings_back_none_of_them_again")
NOWHERE = popped("who_cannot_be_popped_from_gets_nothing_and_others_go_on", "no_other_master_is_there_for_a_while")
LENT = lending("what_is_given_and_not_acknowledged_comes_back_at_the_other_master")
RECEIPTS = lending("receipts_of_the_master_hold_at_the_slave_and_at_the_master_again")
NEXT_SLAVE = lending("the_next_slave_takes_receipts_and_goes_on_behind_them")
REFUSED = lending("what_is_refused_in_words")
FULL = lending("what_the_ledger_does_not_take")
ALONE = lending("no_other_master_is_there")
TICKET = tests_of("broker/abroad", "tickets", "a_ticket_is_a_number_that_clients_take",
                  "numbers_of_queues_are_none", "the_number_is_that_of_the_manual")
GUESTS = tests_of("broker/pop", "guests", "which_checkpoints_of_others_are_taken")
TOLD = standin("each_number_of_the_manual_is_on_the_page_of_metrics")

KEYS = (
    apart("Slaves have `enableRemoteEscape", APART, siblings("what_no_sibling_takes_waits_without_remote_escape")),
    answer("`compatibleWithOldNameSrv`", both(BY_CODE, older(
        "without_compatibility_older_ones_count_as_lost",
        "before_a_master_is_found_older_ones_are_asked_for_its_group")),
        both(MIXED, ("interop a_name_server_4_9_and_ours_say_that_our_master_is_away",))),
    answer("`brokerHeartbeatInterval`", SIGNS), answer("`brokerNotActiveTimeoutMillis` | `10000`", SIGNS),
    kept("`syncBrokerMemberGroupPeriod`", "B55 B56", standin("a_notice_has_the_name_servers_asked_at_once")),
    answer("`actingRightMs` | `3000`", standin("a_right_that_would_not_do")),
    kept("A broker that a name server no longer", "B55 B56", both(LISTED, older(
        "it_is_registered_again_at_once_where_it_is_no_longer_listed"))),
    apart("With `enableControllerMode`", WORDS, SAID),
)

WHO = (
    kept("While that is away, the slave", "B55", ESCAPES, AWAY),
    kept("Nothing is written to the slave", "B60", ESCAPES),
    kept("The slave whose id is the smallest", "B55 B56", both(ACTS, tests_of(
        "broker/acting", "members", "half_of_those_that_answered_lately_say_who_is_one",
        "a_master_and_another_slave_act_for_nobody")), AWAY),
    answer("It serves pulls whatever", ACTS, AWAY),
    answer("Name servers show it as id 0", tests_of(
        "controller/namesrv", "routes", "the_smallest_slave_stands_in_where_group_and_configuration_allow_it"), AWAY),
    kept("pulls (11, 361)", "B58 B61", both(ACTS, POSITIONS, tests_of(
        "broker/locks", "part", "a_former_holder_keeps_its_queue_where_its_grant_was_copied")), READ),
    kept("sends (10, 310", "B60", standin("the_slave_that_acts_takes_no_message_by_whatever_code")),
    pop("POP (200050", both(LENT, REFUSED), both(POP_KILLED, POPPED)),
    answer("222 | refused", tests_of(
        "broker/offsets", "resets", "a_reset_holds_where_a_slave_acts_and_when_its_master_is_back")),
    kept("commit | the final", "B59 B63", DECIDES, DECIDED),
    kept("anything while it has no", "B59", SLAVE_RIGHTLESS),
    kept("rollback | the ledger", "B59 B63", DECIDES), kept("the same again; the opposite", "B59", DECIDES),
    answer("commit of a message with a delay", deciding("what_is_delayed_waits_at_another_master")),
    kept("Nobody is asked for such a half", "B58 B59", DECIDES),
    kept("The master that comes back writes a mark", "B58 B59", DECIDES),
    kept("A master answers 37 with 14", "B59", RIGHTLESS),
    kept("That is so for `actingRightMs`", "B56 B59", both(RIGHTLESS, right(
        "a_master_is_none_where_a_name_server_lists_another"), HALF_OR_MORE)),
    kept("With all of them gone no transaction", "B59", RIGHTLESS),
    kept("Messages that are no halves", "B60", RIGHTLESS),
    kept("**Who begins to have the right", "B59", KNOWS),
    kept("Until then 37 is answered", "B59", both(KNOWS, WAITED)),
    kept("A slave that is asked answers when", "B59", ledger("what_is_in_flight_is_decided_before_others_read")),
    kept("One that does not answer is asked again", "B59", WAITED),
    kept("otherwise | no", "B58 B59", both(DECIDES, KNOWS)),
)

ONE = (
    kept("Delay levels, timers, checks", "B56", both(ACTS, ESCAPES, RIGHTLESS), AWAY),
    kept("A master has it while", "B56", both(HALF_OR_MORE, LATE)),
    kept("A slave has it while", "B56", both(HALF_OR_MORE, ONE_AT_A_TIME), MIXED),
    kept("A name server counts from", "B56", both(SOON, right("a_master_is_none_where_a_name_server_lists_another"))),
    kept("So a master that comes back delivers", "B55 B56", both(ACTS, SOON), AWAY),
    kept("A slave that still hears", "B56", both(HEARS, LISTED, right(
        "a_slave_that_hears_its_master_looks_again_and_again"))),
    kept("The right is asked for again at each put", "B56", ONE_AT_A_TIME, not_real=ORDERS),
    kept("brokers die, stop for a while", "B56", both(ONE_AT_A_TIME, OVERLAPS)),
    kept("a name server loses its table", "B56", both(HEARS, LISTED, OVERLAPS)),
    kept("a connection of the master to its name server", "B56", both(CLOSED, OVERLAPS)),
    kept("the same of a slave that acts", "B56", OVERLAPS),
    kept("one name server alone, which", "B56", OVERLAPS),
    kept("The times of the table are measured", "B56", OVERLAPS), kept("Where one is longer than its row", "B56",
        OVERLAPS),
    kept("With all name servers gone nobody", "B56", LATE),
    apart("`deliveryWaitsFor` in the answer to 28, and", WORDS, both(LATE, ACTS, TOLD)),
)

PREONLINE = (
    kept("A member with `enableSlaveActingMaster`", "B60 B57", both(LINKED, NOT_LOST), KILLED),
    answer("Its ports are open", NOT_LOST),
    kept("14 | nothing, but the answer", "B57", ISOLATED), kept("15, 314 | 1 and the reason", "B57", ISOLATED),
    answer("pulls | 2; with", ISOLATED), kept("sends, 36, 37; POP |", "B60", ISOLATED),
    answer("41, without `lockInStrictMode` | none", NO_LOCKS),
    kept("It stays so until it is level", "B57 B60", both(NOT_LOST, EARLY_END), KILLED),
    kept("asking | asks", "B60", both(OTHERS, LONE, NEWLY_STARTED)),
    kept("copying | asks each", "B60", both(LONGEST, EARLY_END)),
    kept("exchanging | tells", "B57", both(LINKED, steps("each_member_needs_a_connection_of_its_own")), RETURNS),
    kept("online | registers", "B57 B60", NOT_LOST, KILLED),
    apart("What fails is logged", WORDS, LINKED), apart("Code 28 says both", WORDS, LINKED),
    kept("It also begins anew when other members", "B57", LINKED),
    answer("21, 201 | topics", both(NOT_LOST, tests_of(
        "broker/topics", "table", "a_master_that_comes_back_takes_what_is_new_and_loses_no_topic"), tests_of(
        "broker/groups", "table", "a_master_that_comes_back_takes_what_is_new_and_loses_no_group"))),
    answer("402 | modes", WAITING),
    answer("61021 | data", levelling("a_code_of_our_own_is_asked_of_a_member_that_offers_it")),
    kept("43 | consumers", "B57", both(NOT_LOST, tests_of(
        "broker/offsets", "table", "a_master_that_comes_back_loses_no_progress_and_takes_none_beyond_its_queues")),
        both(KILLED, RETURNS)),
    kept("45 | delay levels", "B57", both(WAITING, tests_of(
        "broker/schedule", "machine",
            "a_master_that_comes_back_goes_on_where_a_member_is_and_never_beyond_its_queue"))),
    kept("60 | timers", "B57", both(WAITING, ELSEWHERE, tests_of(
        "broker/timer", "elsewhere", "a_clock_that_was_ahead_at_the_slave_keeps_no_master_away")), AWAY),
    kept("No offset beyond the end of the queue", "B57", both(NOT_LOST,
        ledger("offsets_beyond_the_queue_are_not_taken"))),
    answer("Versions are compared as", both(TIMERLESS, tests_of(
        "broker/offsets", "table", "a_master_that_comes_back_loses_no_progress_and_takes_none_beyond_its_queues"))),
    apart("Codes, headers and bodies are Java", JAVA, TIMERLESS, RETURNS),
    answer("A master of RocketMQ's takes 43 and 45", KNOWN_BETTER, MIXED_READ),
    answer("So a slave that took offsets", KNOWN_BETTER, MIXED_READ),
)

LOG_END = (
    kept("It then connects to the `haListenPort`", "B60", both(EARLY_END, ANY_TAIL)),
    kept("Slaves with `enableSlaveActingMaster` serve", "B60", EARLY_END, RETURNS),
    kept("Up to 64 KiB in front", "B60", COMPARED),
    kept("Where they differ, this master", "B60", both(COMPARED, DIFFERENT)),
    kept("An empty log begins where", "B60", EMPTY_LOG),
    answer("Who asks for offset 0", EMPTY_LOG),
    kept("Where the log here ends before", "B60", LONGEST),
    kept("With an empty store all of it", "B60", both(EARLY_END, ANY_TAIL)),
    kept("What was not synced before the machine", "B60", tests_of(
        "broker/plain", "cores", "what_was_not_synced_before_a_power_cut_is_copied_again_once_there_is_a_master",
        "a_log_of_which_nothing_is_sure_is_not_emptied")),
    kept("From then on the two logs differ", "B60", both(DIFFERENT, tests_of(
        "broker/plain", "cores", "a_slave_does_not_go_back_and_does_not_ask_for_what_is_gone"))),
)

LEDGER = (
    kept("What a slave learns while its master", "B63", COMMITTED),
    kept("Members whose key `enableSlaveActingMaster`", "B63", ledger("a_master_that_has_no_ledger_asks_for_nothing")),
    kept("the offset of a group in a queue", "B58 B63", COMMITTED),
    kept("the position of a delay level", "B57", both(TIMES, elsewhere(
        "a_slave_says_what_it_delivered_and_never_that_it_delivered_less"))),
    kept("a decided transaction", "B59 B63", DECIDES),
    pop("a message that the master gave out by POP is done", RECEIPTS),
    kept("Of each thing the last entry", "B63",
        entries("the_last_entry_of_each_thing_counts_in_whatever_order_they_come")),
    apart("Much of the file may be", LAYOUT, file(
        "it_is_written_anew_when_most_counts_no_more", "it_is_written_anew_off_the_loop_and_not_for_each_that_goes")),
    kept("What a crash tore off", "B63", file("what_is_kept_outlives_any_crash", "what_is_damaged_is_said_and_cut")),
    kept("A start writes the file anew", "B63", file(
        "what_a_killed_process_left_in_memory_is_written_before_it_counts_as_kept",
        "what_a_killed_process_forgot_does_not_come_back_after_it_counts_as_gone")),
    kept("**Other slaves.**", "B63", both(COPIED, ledger("pages_that_were_read_before_a_failure_are_kept"))),
    kept("**The master that comes back** reads", "B57 B63", LAST_WORD),
    kept("The master takes the entries in their order", "B57 B58", both(COMMITTED, ledger(
        "offsets_beyond_the_queue_are_not_taken"))),
    kept("When its tables are on disk", "B58 B63", both(COMMITTED, IN_LOG)),
    kept("A slave that was not told still has", "B57 B58", FORGOT),
    kept("So until all are told the master", "B57 B58", FORGOT),
    kept("Once all are told it takes no offset", "B57", OLDER),
    kept("That place is on the master", "B57", both(OLDER, entries(
        "what_was_kept_is_not_taken_again_and_later_entries_are_behind_it"), ledger(
            "what_a_master_has_is_not_taken_by_a_slave_that_is_started_again"))),
    answer("A slave that hears nothing more", both(LAST_WORD, ledger(
        "a_slave_goes_on_when_the_master_that_came_back_is_lost_again"), ledger(
            "what_a_slave_learns_while_its_master_saves_for_long_is_read_too"))),
    answer("While the ledger of either cannot be written", ledger(
        "a_disk_that_is_full_keeps_the_master_away_in_words")),
    apart("Free that disk, or stop", WORDS, ledger("a_disk_that_is_full_keeps_the_master_away_in_words")),
    pop("where a group was that is sent on", BOTH_GAPS),
    pop("A slave that copied its master", both(GAP, POP_GAP)),
    pop("Who pulls there hears 20", both(BOTH_GAPS, NO_GAP)),
    pop("What the group commits from then on", GAP),
    pop("Beside it the ledger says", GAP),
    pop("A member that takes such an entry", both(BOTH_GAPS, SET_BACK)),
    pop("They get again what the slave gave", BOTH_GAPS),
    pop("the master deleted what lies between", SET_BACK),
    pop("a new group, that never committed", GAP),
    apart("a Java master, or one of a former version", JAVA, SET_BACK),
    apart("with controllers, a replica whose log", ORDERS, SET_BACK),
    kept("an offset, a level", "B63", both(COMMITTED, UNREAD, ledger(
        "a_master_that_leads_before_all_have_heard_takes_nothing_from_its_own_ledger_later"))),
    kept("the time of the timers", "B63", both(TIMES, elsewhere(
        "of_slaves_that_acted_in_turn_each_one_counts_until_the_disk_is_past_it"))),
    kept("decided, acknowledged: at the master", "B58 B63", both(IN_LOG, deciding(
        "a_decision_stays_in_the_masters_ledger_until_its_mark_is_on_disk"))),
    kept("the same, at a slave", "B58 B63", IN_LOG),
    apart("the same, under a Java master", JAVA, ledger("a_master_that_has_no_ledger_asks_for_nothing")),
    kept("A master that leads asks its slaves", "B59", ledger("what_a_slave_decided_late_is_read_late")),
    apart("The gauge `broker_ledger_entries`", WORDS, both(COMMITTED, TOLD)),
    apart("Java's members answer 61041", JAVA, elsewhere(
        "of_a_member_without_a_ledger_its_place_in_the_queue_says_what_it_lacked"), RETURNS),
    *(apart(start, LAYOUT, entries("the_bytes_are_those_of_the_manual")) for start in (
        "One behind the other, in", "Big-endian", "0 | 4 |", "4 | 4 |", "8 | 8 |", "16 | 8 |", "24 | 1 |", "25 | 4 |",
        "29 | 8 |", "37 | name", "0, end |", "1, offset |", "2, level |", "3, timers |", "4, decided |",
        "6, timers |", "5, acknowledged |")),
    apart("8, gap |", LAYOUT, SET_BACK),
    apart("7, kept |", LAYOUT, entries("what_was_kept_is_not_taken_again_and_later_entries_are_behind_it")),
    kept("Entries are ordered by term", "B63", entries(
        "a_mark_that_nobody_writes_ends_what_is_read",
            "the_last_entry_of_each_thing_counts_in_whatever_order_they_come")),
    kept("Who writes one has it behind", "B63", entries("a_clock_that_is_set_back_puts_nothing_before_what_was_noted")),
    kept("So of two slaves that acted in turn", "B57 B58", entries("of_slaves_that_act_in_turn_the_later_one_counts")),
    kept("So it is with two that clients commit to", "B58", ledger(
        "an_offset_that_is_committed_again_counts_after_what_another_slave_was_told")),
    kept("Of two entries of one term", "B57", entries("of_two_entries_of_one_mark_all_members_take_the_same")),
    apart("Kinds that a broker does not know", LAYOUT, entries("entries_of_a_kind_and_what_counts_no_more_is_let_go")),
    kept("61041, read", "B59 B63", both(LAST_WORD, ledger("what_is_in_flight_is_decided_before_others_read"))),
    kept("61042, kept", "B63", IN_LOG),
    apart("a member without timers answers 60", JAVA, TIMERLESS),
    answer("a member is recognized by the address", steps("each_member_needs_a_connection_of_its_own")),
    kept("the place in the list of members", "B57 B60", LINKED),
    kept("an old registration of its own", "B60", OTHERS),
    kept("a slave whose log goes further", "B60", EARLY_END),
    kept("an older version is not looked at", "B57", tests_of(
        "broker/offsets", "table", "a_master_that_comes_back_loses_no_progress_and_takes_none_beyond_its_queues")),
    answer("topics and groups of the slave are deleted", NOT_LOST),
    answer("a slave copies the tables of a master", NOT_LOST),
    kept("what an acting slave learned lives", "B63 B58", both(COMMITTED, COPIED)),
    kept("between the question of a master", "B57 B63", LAST_WORD),
)

TELLS = (
    *(apart(start, WORDS, tests) for start, tests in (
        ("`groupMembers`", ACTS), ("`actsForMaster`", TOLD), ("`deliveryWaitsFor` |", LATE), ("`escapeWaitsFor` |",
            WAITS),
        ("`broker_group_members`", TOLD), ("`broker_acts`", TOLD), ("`broker_may_deliver`", TOLD),
        ("`broker_min_id_notices`", TOLD), ("`broker_escape_sent`", TOLD), ("`broker_escape_again`", TOLD),
        ("`broker_siblings_sent`", both(AS_IT_IS, TOLD)), ("`broker_siblings_taken`", both(AS_IT_IS, TOLD)),
        ("`broker_escape_kept`", TOLD))),
)

ESCAPE = (
    kept("A message that comes due is sent (310)", "B55", both(ESCAPES, PLACES), AWAY),
    pop("A retry topic goes to any of them", BACK),
    answer("Messages of one queue go to one", ONE_QUEUE),
    answer("The id of the message", ESCAPES),
    kept("a broker refuses it, or cannot", "B55", ONE_QUEUE),
    answer("nobody answers in 3 s, or the connection ends | it is sent again, and", escape(
        "an_answer_that_is_lost_is_asked_for_again_and_counted")),
    kept("no other group has the topic", "B36 B55", both(WAITS, escape(
        "what_nobody_takes_comes_from_its_master_when_that_is_back"), tests_of(
        "broker/schedule", "machine", "what_nobody_takes_is_passed_by_and_the_position_stays",
        "one_that_was_passed_by_goes_with_its_queue_and_a_new_run_begins_at_it"))),
    answer("some messages of one put were stored", both(letters(
        "a_key_tells_messages_apart_and_is_the_same_for_one"), escape(
        "what_was_stored_of_a_put_is_not_sent_again_with_the_rest"))),
    kept("the master took a timer that the slave", "B36 B57", ELSEWHERE),
    kept("the slave's log begins behind timers", "B36", elsewhere(
        "a_slave_that_copied_the_last_file_alone_does_not_say_that_it_delivered_what_it_never_had")),
    kept("the slave's queue of a level begins", "B36", tests_of(
        "broker/schedule", "machine", "a_slave_that_lacks_the_first_messages_does_not_say_that_they_are_delivered",
        "a_slave_that_gets_the_last_messages_while_it_acts_does_not_say_that_those_before_are_delivered",
        "a_slave_does_not_say_that_what_it_deleted_as_old_while_it_acts_is_delivered")),
    answer("10, 11, 12: stored, and not held", escape("what_is_stored_and_not_held_as_its_group_is_to_is_counted")),
    kept("A slave that acts asks producers", "B44 B59", asking("an_acting_slave_asks_as_often_as_its_master_would")),
    apart("It gives none up", ONE_ANSWER, asking("an_acting_slave_asks_as_often_as_its_master_would")),
    apart("So its halves **escape as halves**", JAVA, both(BY_HALVES, letters("a_half_escapes_as_a_half")), HALVES),
    apart("The slave answers 37 with 11", JAVA, BY_HALVES),
    apart("A master that offers none of our codes", JAVA, NEXT_PROCESS),
    apart("So halves go one at a time", JAVA, STOPS),
    apart("no other group takes a half", JAVA, STOPS),
    apart("the slave copied the log from behind the place on", JAVA, asking(
        "a_half_that_the_slave_never_had_stops_those_behind_it")),
    apart("the master comes back (906)", JAVA, STOPS),
    answer("A timer of several days", letters("a_timer_that_would_wait_on_here_waits_there")),
    kept("The state of a level, or of the wheel", "B57", elsewhere(
        "a_slave_says_what_it_delivered_and_never_that_it_delivered_less")),
)

SIBLINGS = (
    apart("A slave in a [container](container.md#siblings) first", APART, both(AT_SIBLING, AS_IT_IS), HOUSED),
    apart("A sibling of another group of the same cluster", APART, both(AS_IT_IS, handover(
        "the_record_stays_as_it_is_but_for_places_of_its_old_log")), HOUSED),
    apart("A timer that waits on is put", APART, siblings(
        "a_timer_that_waits_on_waits_at_the_sibling", "a_commit_at_the_acting_slave_goes_to_the_sibling")),
    apart("`__QUORATE_…` properties", APART, handover("the_record_stays_as_it_is_but_for_places_of_its_old_log")),
    apart("the store host |", APART, AS_IT_IS),
    apart("the queue | the same", APART, handover("the_master_stores_it_in_a_queue_that_the_topic_has_there")),
    apart("the topic is not there, or takes no sends", APART, both(AT_SIBLING, handover(
        "where_no_consumer_would_find_it_it_is_refused"))),
    apart("the retry topic is not there", APART, both(siblings(
        "what_pop_brings_back_goes_where_its_topic_can_be_popped"), handover(
        "a_retry_topic_is_made_where_its_messages_can_be_consumed"))),
    apart("the sibling is no master, may not write", APART, both(siblings(
        "a_master_that_may_not_write_is_passed_over"),
            handover("siblings_are_asked_in_one_order_and_not_at_once_again"))),
    apart("no answer, or the connection ends", APART, UNSURE_SIBLING),
    apart("10, 11, 12 | it counts as stored", APART, siblings("what_is_stored_and_not_held_is_counted_as_unsure")),
    apart("halves, marks, records of POP", APART, handover("records_of_a_groups_own_are_for_its_master",
        "others_may_go")),
    pop("POP by a slave that acts needs", REFUSED),
    pop("A receipt names the master that keeps", both(NEXT_SLAVE, lending(
        "a_receipt_holds_at_the_master_that_came_back"))),
)

GIVEN_OUT = (
    pop("What the master [gave out by POP]", BACK, POP_KILLED),
    pop("The slave takes them out of the hands", both(BACK, popped("records_that_were_in_the_revive_queue_already"),
        loose(
        "an_acknowledgement_may_come_first_from_either_side", "the_same_checkpoint_in_the_queue_and_loose"))),
    pop("**Their timers wait** until", both(loose(
        "a_checkpoint_is_needed_until_its_messages_are_done_with_and_its_acknowledgements_as_long"), BACK_AGAIN)),
    pop("a checkpoint | each of its messages", loose(
        "a_checkpoint_is_needed_until_its_messages_are_done_with_and_its_acknowledgements_as_long")),
    pop("an acknowledgement | its checkpoint", loose(
        "an_acknowledgement_of_a_record_in_the_queue_is_needed_until_that_is_passed")),
    pop("an acknowledgement without a checkpoint", loose("an_acknowledgement_of_nothing_is_let_go")),
    pop("A message goes to queue 0", both(BACK, NOWHERE), POP_KILLED),
    pop("It is not counted there", popped("what_came_back_often_is_no_dead_letter_elsewhere")),
    pop("no such master, or all of them refuse", NOWHERE),
    pop("this slave does not find the message", popped("what_the_slave_does_not_find_is_left_to_its_master")),
    pop("the slave's revive queue begins behind", popped("records_that_a_slave_never_had_are_left_to_its_master")),
    pop("a record cannot be understood", popped("what_is_no_record_holds_nothing_up")),
    pop("the master comes back | it brings back", BACK_AGAIN),
    pop("the slave dies | the next one begins", popped("the_next_slave_goes_on_when_the_first_is_lost")),
)

IN_ITS_PLACE = (
    pop("A slave that acts gives messages by POP", both(LENT, lending("who_waits_and_what_is_told"), REFUSED)),
    pop("Nothing is given in order", REFUSED),
    pop("A checkpoint goes, with this group's name", lending("who_waits_and_what_is_told")),
    pop("All checkpoints of one POP", errands("all_records_go_to_one_queue_of_one_master")),
    pop("`reviveQid` in the answer", TICKET), pop("Clients send it back", both(TICKET, LENT)),
    pop("POP | that master answered 0", both(LENT, ALONE)),
    pop("an acknowledgement, its ticket names", both(LENT, lending(
        "a_receipt_is_acknowledged_where_its_checkpoint_is_when_the_route_is_another"), errands(
        "a_ticket_finds_its_broker_and_says_what_is_known"))),
    pop("an acknowledgement of what the own master", RECEIPTS),
    pop("another time (200053) | the new", both(lending("another_time"), errands(
        "where_the_first_ticket_is_of_is_tried_first"))),
    pop("Whoever is asked by such a receipt", both(NEXT_SLAVE,
        lending("a_receipt_holds_at_the_master_that_came_back"))),
    pop("Where two brokers have the same", errands("of_two_brokers_with_the_same_mark_both_are_told")),
    pop("The other master brings back", both(LENT, GUESTS)),
    pop("It reads the message (11", errands("messages_are_read_and_others_left")),
    pop("a master refuses: it lacks", both(lending("who_lacks_the_group_is_passed_over"), errands(
        "who_refused_is_the_last_for_a_while", "three_masters_are_tried_and_no_more"))),
    pop("it answers 10, 11 or 12", errands("stored_but_not_held_as_its_group_is_to")),
    pop("nobody answers in 3 s, or the connection ends | it is sent again there", both(lending(
        "an_unknown_outcome_is_asked_again_there"),
            errands("an_unknown_outcome_is_asked_again_there_and_then_left_over"))),
    pop("a checkpoint may be stored, and its POP", both(lending(
        "what_is_under_way_when_the_master_comes_back_is_given_once",
        "a_queue_whose_offset_has_moved_is_not_taken_back_with_another"))),
    pop("another time (200053): nobody knows", lending(
        "a_new_time_is_taken_back_only_if_the_old_one_surely_stays",
        "a_new_time_is_taken_back_when_the_ledger_has_no_room_for_the_old")),
    pop("no master takes it |", ALONE), pop("the slave may not deliver any more", FULL),
    pop("a message cannot be read | the other", both(lending(
        "what_was_read_from_a_slave_that_is_gone_too_waits_for_it"), errands(
        "who_could_not_be_read_from_is_not_asked_for_a_while"))),
    pop("it was deleted as old", both(lending("only_the_master_says_that_a_message_is_gone"), errands(
        "what_is_gone_only_a_master_says"))),
    pop("the master comes back while a POP", lending("what_is_under_way_when_the_master_comes_back_is_given_once")),
    pop("the slave dies | the next one knows", NEXT_SLAVE),
    *(apart(start, WORDS, tests) for start, tests in (
        ("`broker_errands_stored`", TOLD), ("`broker_errands_again`", both(lending(
            "an_unknown_outcome_is_asked_again_there"), TOLD)), ("`broker_errands_failed`", TOLD),
        ("`broker_errands_read`", both(errands("messages_are_read_and_others_left"), TOLD)))),
)

PAGE = Page("docs/reference/acting.md", (
    *KEYS, *WHO, *ONE, *PREONLINE, *LOG_END, *LEDGER, *TELLS, *ESCAPE, *SIBLINGS, *GIVEN_OUT, *IN_ITS_PLACE,
), others=(
    "A group without controllers keeps", "A client that still takes an isolated master",
    "RocketMQ's isolated master does all of that", "[Acting masters or controllers]", "Every broker of the group has",
    "Name servers have", "`enableSlaveActingMaster` | `false`", "`enableRemoteEscape` | `false`",
    "37 | the table below", "A decision of a transaction (37) at", "That is so for a master of ours",
    "by a slave that no name server lists", "by a slave that died before", "by the master, and the slave's copy",
    "They are no times of real", "From `kill -9` of a master to",
    "`false` | 613", "`true` | 421", "The connection of a killed master closes", "Without the notice a slave hears",
    "What heartbeats and these questions cost", "a Java broker in the group",
    "A master may come back with less", "A member that no name server lists is not", "If it alone holds what",
    "Empty the store of that member", "If the slave that acts dies", "What a consumer committed there",
    "How often it asked", "A Java master reads no", "All that a Java master reads",
    "nobody knows whether one is stored", "the slave was started when", "the Java master comes back with",
    "`enableRemoteEscape=false` |", "No socket of the container",
    "Checkpoints and acknowledgements that come due", "What comes twice", "That is what was under way",
    "The log of the group is not kept", "A Java master that comes back does not",
))
