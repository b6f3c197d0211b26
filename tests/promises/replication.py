"""The promises of ``docs/reference/replication.md``."""

from __future__ import annotations

from tests.promises.table import (
    IN_PROCESS,
    JAVA,
    ONE_RULE,
    ORDERS,
    PLAIN,
    TIMING,
    Page,
    Promise,
    both,
    tests_of,
)

OURS_LEADS = ("interop a_java_slave_copies_our_master_and_takes_over",)
JAVA_LEADS = ("interop our_slave_copies_a_java_master_and_takes_over",)
HANGS = ("interop our_slave_that_hangs_leaves_and_an_idle_java_slave_stays",)
PLAIN_OURS = ("interop a_java_slave_copies_our_plain_master",)
PLAIN_JAVA = ("interop our_slave_copies_a_java_plain_master",)
HA = "broker/ha"
DOUBT = tests_of(HA, "autoswitch", "a_master_whose_machine_went_down_does_not_go_on_with_its_epoch")
RESIGNS = tests_of("broker/replicas", "manager", "a_master_that_lost_what_others_hold_resigns")
POWER = ("interop our_master_whose_machine_went_down_resigns_under_java_controllers",)


def ha(start: str, asks: str, file: str, *names: str, real: tuple[str, ...] = (), why: str = IN_PROCESS) -> Promise:
    return Promise(start, asks, tests=tests_of(HA, file, *names), real=real, not_real="" if real else why)


def probe(start: str, *names: str) -> Promise:
    return Promise(start, "C17", tests=tests_of("broker/replicas", "probing", *names), not_real=IN_PROCESS)


def yielded(start: str, *names: str, why: str = IN_PROCESS, asks: str = "C17") -> Promise:
    return Promise(start, asks, tests=tests_of("broker/replicas", "yielding", *names), not_real=why)


PAGE = Page("docs/reference/replication.md", (
    Promise("Both of RocketMQ's protocols", not_simulated=JAVA, tests=tests_of(HA, "wire", "bytes_are_javas"),
            real=(*OURS_LEADS, *JAVA_LEADS, *PLAIN_OURS, *PLAIN_JAVA)),
    ha("a slave connects", "B7", "wire", "bytes_are_javas", real=JAVA_LEADS),
    ha("the logs differ", "B2 B7 B9 B10", "epochs", "logs_agree_below_the_consistent_point", real=("failovers LOST",)),
    ha("the first acknowledgement | leaves", "B12", "autoswitch", "the_first_acknowledgement_leaves_at_once"),
    Promise("the copy begins behind messages that are not copied", "B18 B20 B22", not_real=IN_PROCESS, tests=(
        *tests_of("broker/queueends", "part", "a_new_master_goes_on_with_the_numbers_of_what_it_never_had",
                  "a_slave_that_was_not_told_where_queues_end_is_not_in_sync",
                  "an_empty_log_begins_when_it_is_on_disk_where_queues_end",
                  "a_log_begins_at_once_at_a_master_that_does_not_offer_the_answer"),
        *tests_of("broker/queueends", "ends", "queues_end_before_their_first_message_from_there_on",
                  "a_replica_gives_the_numbers_that_its_master_gave_however_little_it_copied"),
        *tests_of(HA, "replication", "a_slave_that_comes_again_without_a_log_is_offered_the_same_file",
                  "an_empty_slave_whose_offered_file_goes_each_time_is_offered_a_later_one"))),
    ha("the log grows", "B8 B11", "replication", "the_last_bytes_of_an_epoch_carry_that_epoch", "flow_control",
       real=OURS_LEADS),
    ha("bytes come", "B11 B12", "autoswitch", "under_sync_flush_a_slave_acknowledges_what_is_on_its_disk",
       real=("failovers LOST",)),
    ha("the confirm offset moves", "B3 B4 B22", "autoswitch",
       "a_slave_hears_what_is_confirmed_though_nothing_more_is_written"),
    ha("nothing happens", "B22", "replication", "heartbeats_and_silence"),
    ha("both ends are ours", "B22", "silence", "both_of_ours_repeat_themselves_each_half_second",
       "a_master_beats_to_those_alone_who_beat", "a_slave_that_reports_each_five_seconds_is_never_silent",
       real=(*HANGS, "interop a_java_master_bears_the_beats_of_our_slave")),
    Promise("a slave that beats says nothing", "B15 B22", real=HANGS, tests=(
        *tests_of(HA, "silence", "a_silent_slave_of_ours_leaves_the_set_in_ha_silence_ms",
                  "a_slave_that_speaks_again_is_not_silent_and_shows_anew_that_it_beats"),
        *tests_of("broker", "silent_replica", "a_slave_that_hangs_stops_writes_for_no_longer_than_its_silence"))),
    ha("several slaves fall silent within", "B22", "silence", "members_that_are_lost_together_leave_together",
       "who_is_only_about_to_fall_silent_holds_nobody_up_for_longer_than_a_beat", why=TIMING),
    ha("a master that beats says nothing", "B22", "silence", "a_silent_master_of_ours_is_noticed",
       "a_master_that_does_not_beat_is_silent_only_without_a_connection", why=TIMING),
    ha("the judge was stopped itself", "B32", "silence", "a_master_that_was_stopped_accuses_nobody",
       "a_slave_that_was_stopped_accuses_nobody", why=TIMING),
    ha("a member that hangs is waited for", "B22", "silence",
       "a_silent_slave_of_ours_leaves_the_set_in_ha_silence_ms", why=TIMING),
    ha("a connection ends", "B22", "replication", "a_slaves_timers_and_a_new_address", real=("failovers LOST",)),
    ha("Roles are taken one at a time", "C15 C17", "autoswitch", "an_older_role_is_refused", why=ORDERS),
    ha("A new master cuts off", "B10 B18", "autoswitch", "a_new_master_cuts_the_part_of_a_message",
       "a_new_master_does_not_wait_for_ever_for_its_queues", real=("failovers LOST",)),
    Promise("A broker that controllers rule is in one of these states", "C16 C17", not_real=ONE_RULE, tests=tests_of(
        "broker/replicas", "machine", "every_state_has_a_row_and_is_reached",
        "whatever_comes_the_role_is_what_replication_is_in", "nothing_moves_what_has_stopped")),
    Promise("Beside its state a broker may be about to give mastership up", "C17", not_real=ONE_RULE, tests=(
        *RESIGNS, *tests_of("broker/replicas", "manager", "a_master_that_hands_over_writes_nothing_again"))),
    ha("A slave that connects before its master", "B22", "autoswitch", "a_slave_may_come_before_its_master_knows",
       why=ORDERS),
    ha("`epochFileCheckpoint` is Java's", "B6", "epochfile",
       "a_crash_at_any_operation_leaves_the_old_or_the_new_list", real=JAVA_LEADS),
    ha("Entries whose bytes a crash took", "B6 B10", "autoswitch",
       "what_the_epoch_file_tells_beyond_the_log_does_not_come_back"),
    ha("The entry that ends where the log begins", "B22", "epochs",
       "a_log_that_begins_where_an_epoch_ended_is_the_same_up_to_there", why=ORDERS),
    Promise("So an epoch is led once per boot", "B2 C15", tests=DOUBT, real=POWER),
    Promise("After a kill or a crash of the process alone", "B21 C17", not_real=ONE_RULE,
            tests=tests_of(HA, "autoswitch", "a_master_that_restarts_within_its_epoch_keeps_the_entry")),
    ha("Members that it had asked controllers to take in", "B3 B13", "asked",
       "a_member_that_was_asked_for_counts_after_a_kill", why=ORDERS),
    ha("While controllers stand still it keeps", "B54", "insync",
        "a_set_that_is_asked_for_in_vain_for_hours_is_kept_once"),
    Promise("After a crash of the machine", "B1 C17", tests=(*DOUBT, *RESIGNS), real=POWER),
    Promise("Our controllers hold it at once", "C17", real=POWER, tests=tests_of(
        "broker/replicas", "manager", "a_controller_that_knows_no_resigning_is_asked_for_the_others",
        "a_master_that_resigns_is_silent_until_a_java_controller_gives_it_up")),
    Promise("Its new epoch begins where its log ends", "B2 B9", real=POWER, tests=tests_of(
        HA, "replication", "what_a_power_cut_took_from_a_master_is_cut_from_its_slaves")),
    Promise("`checkpoint.boot` in the store says", "B30", not_real=ORDERS, tests=tests_of(
        "broker/store", "trust", "doubt_outlives_restarts_and_checkpoints")),
    Promise("What follows is [said with the modes]", "B29 B30", not_real=ORDERS, tests=tests_of(
        HA, "trust", "what_is_not_trusted_is_copied_again_and_then_the_log_is_level")),
    Promise("what a power cut left of a slave's log", "B29 B30", not_real=ORDERS, tests=tests_of(
        HA, "trust", "what_is_not_trusted_is_copied_again_and_then_the_log_is_level")),
    probe("a slave's master is silent", "a_slave_of_a_silent_master_says_whom_it_reaches_at_once",
          "probes_are_repeated_while_the_silence_lasts"),
    probe("61011 comes", "who_does_not_know_the_question_is_not_reached",
          "only_the_member_that_is_named_answers"),
    probe("whom it reaches changes", "who_answers_no_more_is_reached_no_more",
          "the_silence_is_told_before_anybody_answers"),
    yielded("a full or stalled disk", "the_disk_is_told_by_the_next_heartbeat_which_leaves_at_once"),
    yielded("a SyncStateSet is about to shrink", "where_nobody_follows_the_set_shrinks_at_once",
            "members_have_their_time_to_say_whom_they_reach", "before_each_shrink_members_are_asked", asks="B34 C17"),
    yielded("the set stays too small", "a_master_that_is_left_alone_asks_again_ever_more_seldom",
            "the_rest_doubles_and_is_forgotten_after_a_quiet_time"),
    yielded("a master's disk is full or stalled", "a_master_with_a_bad_disk_asks_for_one_that_has_room",
            "who_finds_no_successor_serves_and_asks_again_ever_more_seldom"),
    yielded("it acknowledges what all members hold", "a_master_that_waits_for_its_members_serves"),
    yielded("it acknowledges more than that", "a_master_that_acknowledges_alone_asks_until_its_lease_is_over",
            "members_of_a_master_that_acknowledges_alone_have_their_time_behind_the_lease",
            "who_acknowledges_alone_waits_for_a_member_that_holds_its_whole_log",
            "who_has_no_lease_is_not_judged_by_silence"),
    yielded("an answer is lost there", "while_another_one_may_have_been_elected_it_writes_nothing", why=ORDERS),
    yielded("a master whose slaves cannot reach it stays master",
            "a_master_whose_members_reach_each_other_is_replaced",
            "a_master_with_a_bad_disk_asks_for_one_that_has_room"),
    yielded("RocketMQ's keep a master", "java_controllers_are_asked_nothing_new", why=IN_PROCESS),
    Promise("A slave says where its log ends", not_simulated=PLAIN, real=(*PLAIN_OURS, *PLAIN_JAVA), tests=tests_of(
        "broker/plain", "cores", "nothing_is_sent_before_the_first_report",
        "a_copy_goes_on_where_the_slave_ends_and_an_empty_one_begins_with_the_last_file")),
    Promise("What the master sends must begin", not_simulated=PLAIN, not_real=ORDERS, tests=tests_of(
        "broker/plain", "cores", "a_slave_does_not_go_back_and_does_not_ask_for_what_is_gone")),
    Promise("Slaves do not say who they are", not_simulated=PLAIN, not_real=ORDERS,
            tests=tests_of("broker/plain", "cores", "two_connections_of_one_slave_are_one_holder")),
    Promise("The master then sends where its log begins", not_simulated=PLAIN, not_real=ORDERS, tests=tests_of(
        "broker/plain", "cores", "a_slave_does_not_go_back_and_does_not_ask_for_what_is_gone")),
    Promise("The slave keeps what it has, tries again", not_simulated=PLAIN, not_real=ORDERS, tests=both(
        tests_of("broker/plain", "cores", "a_slave_whose_next_bytes_are_deleted_at_its_master_says_what_to_do"),
        tests_of("broker/plain", "roles", "a_slave_that_is_behind_the_begin_of_its_masters_log_says_so_once"))),
    Promise("Such a group moves under controllers", not_simulated=PLAIN, not_real=IN_PROCESS, tests=tests_of(
        "broker", "modes", "a_pair_goes_on_alone_and_then_under_controllers")),
    Promise("Nothing is copied anew", not_simulated=PLAIN, not_real=IN_PROCESS,
            tests=tests_of(HA, "replication", "a_plain_groups_log_moves_in_place")),
    ha("the first acknowledgement of a slave waits", "B12", "autoswitch", "the_first_acknowledgement_leaves_at_once",
       why=TIMING),
    ha("the last bytes of an epoch carry", "B8 B2", "replication", "the_last_bytes_of_an_epoch_carry_that_epoch",
       "a_new_epoch_of_the_same_master_reaches_connections_that_live_on",
       "a_mis_tagged_last_frame_leaves_no_hole_in_the_epochs", real=JAVA_LEADS),
    ha("an epoch that begins where the last one did", "B6 B7", "epochs", "equal_starts_are_overwritten", why=ORDERS),
    ha("a replica that has such an epoch alone", "B22", "replication",
       "a_replica_of_which_the_next_master_had_nothing_is_copied_anew", why=ORDERS),
    ha("an empty epoch list is not written", "B6", "epochfile", "an_empty_list_stays_empty"),
    ha("a log without epochs is trusted", "B22", "replication", "h8_a_log_without_epochs_is_copied_anew"),
    ha("a slave that does not join in an instant", "B22", "insync",
       "a_busy_master_waits_a_moment_for_who_is_about_to_join", real=("failovers LOST",)),
    ha("connections are counted", "B15 B54", "replication", "h7_two_connections_of_one_slave_are_one_holder",
        why=ORDERS),
    ha("an offset beyond the master's end", "B2", "replication", "what_a_slave_may_not_do", why=ORDERS),
    Promise("who connects and says nothing stays", not_simulated="simulated peers are brokers", not_real=IN_PROCESS,
            tests=tests_of(HA, "bad_peers", "only_so_many_connections")),
    Promise("an unknown state ends a thread", not_simulated="simulated peers are brokers", not_real=IN_PROCESS,
            tests=tests_of(HA, "wire", "what_a_slave_refuses", "what_a_master_refuses")),
    ha("a new confirm offset waits for bytes", "B22", "autoswitch",
       "a_slave_hears_what_is_confirmed_though_nothing_more_is_written", why=TIMING),
    Promise("a role that replication refuses", "C17", not_real=ORDERS,
            tests=tests_of("broker/replicas", "manager", "a_role_that_replication_refuses_is_no_role")),
    Promise("whoever sends a notification", "C15", not_real=IN_PROCESS, tests=tests_of(
        "broker/replicas", "manager", "an_epoch_from_where_no_controller_runs_makes_the_broker_ask")),
    Promise("a master that restarts goes on with its epoch", "B2 C15", tests=DOUBT, real=POWER),
    ha("a new master begins", "B24", "mark", real=("failovers UNSEEN",)),
    Promise("any number of connections is taken", not_simulated="simulated peers are brokers", not_real=IN_PROCESS,
            tests=tests_of(HA, "bad_peers", "only_so_many_connections")),
    ha("a slave stores what comes", "B28", "whole", "a_slave_holds_and_acknowledges_whole_records", why=ORDERS),
    ha("a new master confirms and shows all", "B24", "mark", real=("failovers UNSEEN",)),
    Promise("A slave of the default protocol that is ahead", not_simulated=PLAIN, not_real=ORDERS,
            tests=tests_of("broker/plain", "cores", "a_slave_that_is_ahead_is_closed_and_counts_for_nothing")),
), others=(
    "Two tables, because", "The states above say", "[`STEPS`]", "Meanwhile news may come", "One table would need",
    "[`Switching.taking`]",
    "A slave can be so far behind, or copy so slowly",
    "How the commit log of a master", "**A replica whose machine went down**",
    "`python -m harness.scenarios.interop -k slave", "**A master whose machine went down**",
    "If it went on in the same epoch", "A Java master that loses power", "That the machine did not go down",
    "With controllers of ours", "It is none on file systems", "The streams are neither encrypted",
))
