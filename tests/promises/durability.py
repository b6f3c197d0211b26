"""The promises of ``docs/explanation/durability.md``."""

from __future__ import annotations

from tests.promises.table import (
    FILES,
    IN_PROCESS,
    JAVA,
    MASTERS_KILLED,
    ONE_ANSWER,
    ORDERS,
    PLAIN,
    POWERLESS,
    SHELL,
    TABLES,
    Page,
    Promise,
    both,
    tests_of,
)

ALONE = tests_of("broker/ha", "acks", "table", "every_combination")
LEASE = tests_of("broker/replicas", "manager", "a_master_without_a_controller_fences_itself_and_comes_back")
SENDING = tests_of("broker/client", "sending", "no_answer_in_time_is_unknown", "stored_without_its_replicas_is_unknown")
DEMO = tests_of("harness/demo", "demo", "masters_and_controllers_die_and_nothing_acknowledged_is_lost")
AWAY = tests_of("broker", "disk_health", "a_slave_in_trouble_leaves_its_master_in_words_and_comes_back_by_itself")
MOVES = tests_of("broker", "disk_moves", "a_full_master_gives_way_to_a_member_with_room",
                 "a_stalled_master_gives_way_within_a_second_of_its_key")
DISK_CAMPAIGN = tests_of("harness/scenarios/failovers", "campaign", "a_master_whose_disk_is_no_use_is_replaced")
WAITING_KILLED = tests_of("broker", "waiting_killed",
                          "masters_are_killed_under_timers_and_transactions_and_nothing_is_lost_or_doubled")
TIMERS_KILLED = tests_of("broker/timer", "killed", "timers_due_right_behind_a_kill_come_from_the_next_master")
MODE_BY_MODE = tests_of("broker", "waiting_modes", "what_a_lost_master_takes_with_it")
MODES = "simulated brokers keep what waits in the modes that promise it"
DISKS = "of troubled disks simulations ask what is lost and who is accused, and not how soon"

PAGE = Page("docs/explanation/durability.md", (
    Promise("`allAckInSyncStateSet` | false", "B15 B14", tests=ALONE, real=("failovers LOST", "failovers TWICE")),
    Promise("`minInSyncReplicas` | 1", "B17", tests=ALONE, real=("failovers LOST",)),
    Promise("`flushDiskType`", "B12", real=tests_of("broker/store", "killed",
        "what_a_killed_process_acknowledged_is_there")),
    Promise("`masterLeaseMs`", "C16", tests=LEASE, real=("failovers LOST",)),
    Promise("default mode | no", "B1 B12 C16", real=("failovers DENIED",)),
    Promise("`allAckInSyncStateSet` | yes, while", "B1 B15 C14", real=("failovers DENIED",)),
    Promise("and `minInSyncReplicas = 2` | yes", "B1 B15 B17", real=both(MASTERS_KILLED, DEMO, ("failovers LOST",))),
    Promise("and `SYNC_FLUSH` | yes", "B1 B12 B15 B21", real=("failovers LOST",)),
    Promise("That is the choice between", "B17", tests=ALONE, real=("failovers LOST",)),
    Promise("It is asked as a message comes", "B17 B23 B54", real=("failovers LOST",), tests=tests_of(
        "broker", "acknowledged", "a_send_that_the_master_alone_holds_is_not_answered_as_held",
        "a_send_waits_for_members_that_come_back_in_time")),
    Promise("Consumers do not see it before", "B3 B23", real=("failovers UNSEEN",)),
    Promise("A controller elects at once when", "C20 C21", real=("interop a_master_falls_silent",)),
    Promise("With `allAckInSyncStateSet` it needs", "B15 B14", real=("failovers TWICE",)),
    Promise("The new master is one of them", "C14", real=("failovers TWICE",)),
    Promise("In the other modes it stops", "C16 LEASE", tests=LEASE, not_real=ORDERS),
    Promise("The lease is shorter", "C16 LEASE", not_real=ORDERS,
            tests=tests_of("broker", "config", "relations_between_keys")),
    Promise("When its *connection closed*", "LEASE", not_real=ORDERS,
            tests=tests_of("controller", "active", "BUG_A14_a_close_can_wait_for_the_masters_lease")),
    Promise("A master gives it up a tenth earlier", "LEASE C16", not_real=ORDERS, tests=tests_of(
        "broker/replicas", "lease", "it_is_over_by_the_masters_clock_before_it_is_by_the_controllers")),
    Promise("A new master has no lease", "C16", not_real=ORDERS, tests=tests_of(
        "broker/replicas", "manager", "a_new_master_serves_nobody_before_its_lease_is_granted")),
    Promise("Under a Java controller there is no lease", not_simulated=JAVA, tests=tests_of(
        "broker/replicas", "manager", "no_lease_under_a_java_controller_nor_where_it_is_off"),
            real=("interop our_broker_under_a_java_name_server_and_java_controllers",)),
    Promise("After a power cut a log is taken", "B21", not_real=FILES,
            tests=tests_of("broker/store", "crashes", "the_machine_stops_before_any_operation")),
    Promise("Masters and slaves write a record at once", "B12 B28", not_real=ORDERS,
            tests=tests_of("broker/ha", "whole", "a_slave_holds_and_acknowledges_whole_records")),
    Promise("So what a power cut takes", "B21 B28", not_real=FILES,
            tests=tests_of("broker/ha", "whole", "no_power_cut_takes_a_part_of_a_record_that_no_checksum_covers")),
    Promise("With `SYNC_FLUSH` nothing of that sort", "B12 B21", not_real=FILES),
    Promise("A process that was killed has lost nothing", "B12 B21",
            real=tests_of("broker/store", "killed", "what_a_killed_process_acknowledged_is_there")),
    Promise("So a replica whose store was not closed", "B30", not_real=POWERLESS,
            tests=tests_of("broker/store", "trust", "what_was_not_flushed_is_not_trusted_in_another_boot")),
    Promise("It trusts its log as far as", "B30", not_real=POWERLESS, tests=tests_of(
        "broker/store", "trust", "the_mark_may_trail_what_was_synced_and_never_leads",
        "doubt_outlives_restarts_and_checkpoints")),
    Promise("**It acknowledges nothing behind that**", "B30", not_real=POWERLESS,
            tests=tests_of("broker/ha", "trust", "no_damage_behind_what_was_synced_is_acknowledged")),
    Promise("Before there is a master it cuts nothing", "B30 B1", not_real=POWERLESS, tests=tests_of(
        "broker/ha", "trust", "the_tail_is_kept_until_there_is_a_master_and_copied_again_then")),
    Promise("**With `allAckInSyncStateSet` it is not elected**", "B29", not_real=POWERLESS, tests=tests_of(
        "broker/replicas", "doubt", "a_log_in_doubt_is_told_until_it_is_not") + tests_of(
        "controller", "active", "who_may_have_lost_something_waits_for_who_may_have_not")),
    Promise("It is as good as any when", "B29 B30", not_real=POWERLESS, tests=tests_of(
        "broker/ha", "trust", "a_log_that_came_back_shorter_is_level_when_it_is_as_long")),
    Promise("It tells controllers at once that it is in doubt no longer", "C20", not_real=POWERLESS, tests=tests_of(
        "broker/replicas", "doubt", "that_a_log_is_in_doubt_no_longer_is_told_at_once")),
    Promise("**When all who may be elected are here", "B29", not_real=POWERLESS, tests=tests_of(
        "controller", "active", "where_all_who_may_be_elected_are_in_doubt_the_longest_log_leads")),
    Promise("Each of them has said so since the group has no master", "B29", not_real=POWERLESS, tests=tests_of(
        "controller", "active", "a_doubt_of_before_the_master_was_lost_may_be_over",
        "those_in_doubt_do_not_choose_while_the_lost_master_is_on_record")),
    Promise("**When one of them never comes back**", "B29", not_real=POWERLESS, tests=tests_of(
        "controller", "active", "who_may_have_lost_something_waits_for_who_may_have_not",
        "those_in_doubt_do_not_choose_while_the_lost_master_is_on_record")),
    Promise("**What was heard of it before counts no more**", "B29 C24", not_real=POWERLESS, tests=tests_of(
        "controller", "lives", "what_was_heard_before_a_power_cut_counts_for_no_later_life")),
    Promise("With 2 or more the others stay eligible", "B29", not_real=POWERLESS, tests=tests_of(
        "controller", "lives", "who_was_elected_while_its_machine_was_down_waits_for_who_lost_nothing")),
    Promise("`electPolicy` has no say then", "B29", not_real=POWERLESS, tests=tests_of(
        "controller", "active", "no_preference_counts_among_those_in_doubt")),
    Promise("An operator who knows that names", not_simulated=ONE_ANSWER, not_real=POWERLESS,
            tests=tests_of("controller", "active", "an_operator_may_name_one_that_is_in_doubt",
                           "with_unclean_elections_nobody_is_waited_for")),
    Promise("Once `mqadmin cleanBrokerMetadata` has", "C17", not_real=POWERLESS, tests=tests_of(
        "harness/simulation/controllers", "scene",
        "what_waits_for_a_lost_disk_waits_for_its_operator_who_gives_that_up")),
    Promise("A store that turns out to be", "B29", not_real=POWERLESS, tests=both(
        tests_of("broker", "lives", "an_older_copy_that_is_put_back_costs_nothing_that_others_hold"),
        tests_of("broker/store", "lives", "an_older_copy_is_in_doubt_until_it_is_level"))),
    Promise("A slave of the default protocol copies again", not_simulated=PLAIN, not_real=POWERLESS, tests=both(
        tests_of("broker/plain", "cores", "a_log_of_which_nothing_is_sure_is_not_emptied"),
        tests_of("broker/plain", "roles",
                 "a_slave_whose_machine_went_down_copies_again_what_it_had_not_synced"))),
    Promise("A slave copies such a record again", "B30", not_real=POWERLESS,
            tests=tests_of("broker/ha", "trust", "no_damage_behind_what_was_synced_is_acknowledged")),
    Promise("Java's controllers, and ours of before", not_simulated=JAVA, real=(
        "interop our_master_whose_machine_went_down_resigns_under_java_controllers",), tests=tests_of(
        "broker/replicas", "doubt", "java_controllers_are_asked_once_for_somebody_better",
        "controllers_of_an_earlier_release_are_asked_once_for_somebody_better")),
    Promise("It is *stalled* when one write", not_simulated=DISKS, not_real=ORDERS, tests=both(
        tests_of("broker", "disk_health", "a_sync_that_hangs_is_told_in_time_and_over_after_a_calm_while",
                 "a_disk_that_others_fill_is_told_within_a_second", "queues_without_room_say_it_too"),
        tests_of("broker/store", "diagnosis", "of_any_disk_trouble_is_seen_in_time_and_ends_late"))),
    Promise("While that lasts it tries the disk", not_simulated=DISKS, not_real=ORDERS, tests=both(
        tests_of("broker", "disk_health", "a_try_asks_for_room_a_write_and_a_sync",
                 "a_disk_that_stalls_each_time_that_it_is_used_is_not_well"),
        tests_of("broker/store", "diagnosis",
                 "a_full_disk_is_full_at_once_and_well_after_good_tries_in_a_row"))),
    Promise("A process that stood still itself", "B33", real=("failovers LOST",),
            tests=tests_of("broker/store", "diagnosis", "a_pause_of_the_process_itself_accuses_no_disk")),
    Promise("Whoever fills the disk, a file `spare`", not_simulated=DISKS, real=("failovers LOST",), tests=tests_of(
        "broker", "disk_health", "a_full_disk_has_room_for_what_says_who_a_replica_is_and_what_its_log_is_worth")),
    Promise("**A slave in trouble leaves its master**", not_simulated=DISKS, real=("failovers LOST",), tests=AWAY),
    Promise("So it leaves the SyncStateSet at once", not_simulated=DISKS, real=("failovers LOST",), tests=AWAY),
    Promise("**A master in trouble gives way**", not_simulated=DISKS, real=DISK_CAMPAIGN, tests=MOVES),
    Promise("In the other modes it writes nothing", not_simulated=DISKS, real=DISK_CAMPAIGN, tests=MOVES),
    Promise("**Where no disk is well**", not_simulated=DISKS, not_real=ORDERS,
            tests=tests_of("broker", "disk_moves", "a_disk_that_all_share_elects_nobody_in_circles")),
    Promise("What a broker appends it writes on its own loop", not_simulated=DISKS, real=DISK_CAMPAIGN, tests=tests_of(
        "broker", "yields", "a_master_cut_off_from_its_slaves_is_replaced")),
    Promise("Every folder that a broker or a controller makes", not_simulated=FILES, not_real=FILES,
            tests=both(tests_of("broker/store", "directory", "every_new_folder_of_a_store_is_on_disk"),
                       tests_of("raft/storage", "directory", "every_new_folder_above_a_data_directory_is_on_disk"))),
    Promise("Our client raises `SendUnknown`", not_simulated=SHELL, tests=SENDING, real=("failovers DENIED",)),
    Promise("What one producer sends to a queue", "B18 B19", not_real=ORDERS),
    Promise("A delayed message or a timer is a message from", "B36", real=WAITING_KILLED, tests=tests_of(
        "broker/schedule", "delivery", "killed_and_started_again", "the_position_waits_for_replicas")),
    Promise("It is never delivered before", "B37", real=both(WAITING_KILLED, TIMERS_KILLED),
            tests=tests_of("broker/schedule", "delivery", "a_message_comes_when_it_is_due")),
    Promise("It comes as it was sent", "B38", not_real=IN_PROCESS,
            tests=tests_of("broker/schedule", "delivery", "a_message_comes_when_it_is_due")),
    Promise("A master whose delivery was stored", "B39", not_real=IN_PROCESS),
    Promise("After a failover it may come once more", "B39", real=both(WAITING_KILLED, TIMERS_KILLED),
            tests=tests_of("broker/schedule", "machine", "a_slave_follows_and_a_master_does_not")),
    Promise("What waits in one level", "B40", not_real=IN_PROCESS,
            tests=tests_of("broker/schedule", "machine", "at_least_once_and_in_order_whatever_happens")),
    Promise("A timer that was taken back ahead", "B41", not_real=IN_PROCESS,
            tests=both(tests_of("broker/timer", "timers", "a_recalled_message_never_comes"),
                       tests_of("broker/timer", "markers", "who_rolls_behind_its_marker_is_taken_back"))),
    Promise("A half that is acknowledged ends as", "B44", real=WAITING_KILLED),
    Promise("A transaction has one final message", "B42", real=WAITING_KILLED),
    Promise("It is decided once", "B43 B53", not_real=IN_PROCESS),
    Promise("default mode | gone", not_simulated=MODES, not_real=ORDERS, tests=MODE_BY_MODE),
    Promise("`allAckInSyncStateSet` | kept, while", "B36 B39 B44", not_real=ORDERS, tests=MODE_BY_MODE),
    Promise("and `minInSyncReplicas = 2` | kept", "B36 B39 B44", real=WAITING_KILLED, tests=MODE_BY_MODE),
    Promise("and `SYNC_FLUSH` | kept, also", "B36 B12 B44", not_real=POWERLESS),
    Promise("`ASYNC_MASTER` or `SYNC_MASTER` | kept", not_simulated=PLAIN, not_real=ORDERS, tests=both(
        tests_of("broker/schedule", "delivery", "killed_and_started_again"),
        tests_of("broker/timer", "killed", "a_thousand_timers_outlive_their_only_broker_twice"),
        tests_of("broker/transactions", "killed",
                 "a_half_that_nobody_answers_for_is_given_up_and_323_brings_it_back"))),
    Promise("the same, with `SYNC_FLUSH` | kept", not_simulated=PLAIN, not_real=POWERLESS, tests=tests_of(
        "broker/store", "trust", "of_a_synced_log_nothing_was_acknowledged_before")),
    Promise("a slave acts meanwhile", "B55 B56 B57 B58 B59 B63", not_real=IN_PROCESS, tests=both(
        tests_of("broker/transactions", "standing_in", "decisions_at_a_slave_are_the_masters",
                 "a_decision_stays_in_the_masters_ledger_until_its_mark_is_on_disk"),
        tests_of("broker/standin", "part", "the_smallest_slave_acts_until_the_master_is_back"))),
    Promise("With `allAckInSyncStateSet` consumers see", "B3 B4 B5", real=("failovers UNSEEN",)),
    Promise("With `allAckInSyncStateSet` and `minInSyncReplicas` of 2", "B24", real=("failovers UNSEEN",),
        tests=tests_of(
        "broker", "young_master", "a_young_master_shows_all_when_as_many_as_demanded_are_in_sync")),
    Promise("With `minInSyncReplicas=1` a new master", not_simulated="it says what nobody is kept from",
            not_real=ORDERS, tests=both(
            tests_of("broker/ha", "insync",
                     "a_new_master_confirms_what_it_was_told_until_as_many_as_demanded_are_in_sync"),
            tests_of("broker", "young_master", "a_key_has_a_new_master_show_all_at_once_as_javas_do"))),
    Promise("A consumer that has read more waits", "B24", real=("failovers UNSEEN",), tests=tests_of(
        "broker", "young_master", "what_was_read_of_the_lost_master_is_neither_shown_early_nor_moved")),
    Promise("A replica keeps in the file `confirmed`", "B25", not_real=ORDERS,
            tests=tests_of("broker", "young_master", "a_replica_that_was_killed_shows_what_it_showed")),
    Promise("A topic is made by its master alone", not_simulated=TABLES, not_real=IN_PROCESS,
            tests=tests_of("broker", "server", "slaves_ask_for_a_topic_as_soon_as_they_have_messages_of_it")),
    Promise("A new master that has messages of a topic", not_simulated=TABLES,
            tests=tests_of("broker", "server", "a_topic_that_only_the_lost_master_knew_is_read_at_the_next_one",
                           "a_topic_of_which_all_messages_wait_is_known_to_the_next_master"),
            real=("interop a_java_slave_is_elected_before_it_has_a_topic",)),
    Promise("The numbers of its queues go on all the same", "B18 B20", not_real=IN_PROCESS, tests=tests_of(
        "broker/queueends", "part", "a_new_master_goes_on_with_the_numbers_of_what_it_never_had")),
    Promise("After a failover a consumer group's positions", "B20",
            real=("interop untouched_java_clients_across_a_failover_of_our_brokers",)),
), others=(
    "Of a machine that went down", "What it lacks of what was acknowledged",
    "**One window is open**", "In the other modes a master acknowledges alone", "A Java broker doubts nothing",
    "A master without others",
    "A producer that gets", "That depends on four keys", "This page says", "*While two are in sync*", "The demo shows",
    "Two machines measure one lease", "A clock that stands still, as that",
    "A master that was merely cut off", "Two things stop it", "RocketMQ's CRC", "One thing can go unseen",
    "Java's slaves write records in pieces", "A new master does not know which", "Excepted is what all replicas lost",
    "A file is only as durable", "`SEND_OK` is a promise",
    "`FLUSH_SLAVE_TIMEOUT`, `FLUSH_DISK_TIMEOUT`", "A producer that sends again", "In the default mode they see",
    "In the other modes what a new master lacks", "In the other modes a new master may lack a half",
    "What is lost when the process of a master dies", "With `syncFromLastFile` a replica lacks",
    "A topic without messages", "default mode with `SYNC_FLUSH` alone", "`youngMasterShowsAll=true`, with any of them",
    "an unclean election (`enableElectUncleanMaster`", "Without controllers nobody is elected",
    "What is lost when the process of a plain master", "the same, and its machine loses power",
    "the same, and its disk is lost",
    "A replica watches its own disk", "With `allAckInSyncStateSet` that takes a moment",
))
