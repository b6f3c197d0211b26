"""The promises of ``docs/explanation/controller.md``."""

from __future__ import annotations

from tests.promises.table import (
    COPIED,
    IN_PROCESS,
    JAVA,
    ONE_ANSWER,
    ONE_RULE,
    ORDERS,
    TIMING,
    Page,
    Promise,
    both,
    tests_of,
)

ACTIVE, SERVER, NOTIFICATIONS, YIELDING = "active", "server", "notifications", "yielding"

PAGE = Page("docs/explanation/controller.md", (
    Promise("They decide one thing", "C1 C7 B1", real=("failovers LOST", "failovers TWICE")),
    Promise("Each controller decides while it applies", "C13", real=(
        "interop everything_from_disk_again",)),
    Promise("A command carries the term", "C13 C1", not_real=ORDERS,
            tests=tests_of("controller/metadata", "machine", "a_command_of_another_term_does_nothing")),
    Promise("The leader of the Raft group is the *active", "C18", not_real=ORDERS),
    Promise("Reads that decide something", "C18", not_real=ORDERS,
            tests=tests_of("controller", SERVER, "BUG_S3_who_was_cut_off_answers_no_read")),
    Promise("A request that would change nothing",
        not_simulated="simulated brokers ask for what would change something",
            tests=tests_of("controller/metadata", "machine", "preview_tells_the_outcome_and_changes_nothing"),
            not_real=ONE_RULE),
    Promise("Each controller keeps what it heard", not_simulated="it is about the log's length",
            tests=tests_of("controller", SERVER, "BUG_S1_heartbeats_leave_no_entry"), not_real=IN_PROCESS),
    Promise("**A connection that closed**", "C20", real=("failovers LOST",)),
    Promise("Since followers see it too", "C20",
            real=("interop master_and_active_controller_killed_together",)),
    Promise("**Silence** proves nothing", "C21", not_real=ORDERS),
    Promise("The active controller judges it", "C20 C21", real=("interop a_master_falls_silent",), tests=tests_of(
        "controller", "liveness", "a_pause_of_the_judge_itself_is_nobodys_silence")),
    Promise("So losing the active controller", "C21", real=("interop a_new_active_controller_deposes_nobody",)),
    Promise("A deadline is a deadline", "C20", not_real=TIMING,
            tests=tests_of("controller", "liveness", "BUG_A5_silence_is_judged_at_its_deadline")),
    Promise("Electable are the members", "C7", real=("failovers LOST",)),
    Promise("Among them the policy chooses", "C7", not_real=ONE_RULE, tests=tests_of(
        "controller/metadata", "policy", "default_takes_epoch_then_offset_then_priority",
        "preferred_wins_if_its_log_holds_what_is_confirmed",
        "priority_comes_before_length_among_those_that_hold_what_is_confirmed")),
    Promise("A learner is never elected", "C7", not_real=ONE_RULE,
            tests=tests_of("controller/metadata", "bugs", "BUG_K14_learners_are_never_master")),
    Promise("Nobody electable: the group is recorded", "C3 C22",
            real=("failovers LOST",)),
    Promise("A master that lives is left in its place", "C8", not_real=ONE_RULE, tests=tests_of(
        "controller/metadata", "elect", "5_a_living_master_stays", "6_a_designated_one_replaces_a_living_master")),
    Promise("Only replicas of the group are in the set", "C4", not_real=ONE_RULE, tests=tests_of(
        "controller/metadata", "scenarios", "all_replicas_go_and_the_one_in_sync_returns")),
    Promise("A master goes by a set only when", "B14 B16", real=("failovers LOST",)),
    Promise("The format rises by one", "C27", not_real=ORDERS, tests=tests_of(
        "controller", "formats", "a_raise_to_any_other_format_is_refused_by_all_alike")),
    Promise("`mqadmin cleanBrokerMetadata` makes controllers forget", "C19",
            real=("interop both_tools_say_the_same_of_our_controllers",), tests=both(
                tests_of("controller/metadata", "scenarios", "cleaning"),
                tests_of("controller/metadata", "clean", "living_brokers_are_refused_unless_forced"))),
    Promise("The new master is alone in its SyncStateSet", "C2 C6", real=("failovers LOST",)),
    Promise("Each report is checked", "C5", not_real=ORDERS),
    Promise("Where the master announces that it acknowledges", "ELIGIBLE B1", real=("failovers LOST",)),
    Promise("What was acknowledged is held by every member", "C25 B23", real=("failovers LOST",)),
    Promise("So these members stay eligible", "C25 ELIGIBLE", real=("failovers LOST",), tests=tests_of(
        "broker", "acknowledged", "a_master_that_is_left_alone_and_dies_is_replaced_at_once")),
    Promise("It ends when the controllers accept", "C25 ELIGIBLE B31", not_real=ORDERS),
    Promise("A group whose controllers are upgraded", "ELIGIBLE", not_real=ORDERS, tests=tests_of(
        "controller/metadata", "eligible", "what_format_1_cannot_carry_counts_for_nothing_in_a_preview",
        "in_format_1_a_shrinking_set_leaves_nobody_eligible")),
    Promise("A new mastership begins with the highest minimum", "B31", not_real=ORDERS, tests=tests_of(
        "broker", "server", "a_master_that_is_elected_again_demands_what_it_did")),
    Promise("A process that controllers do not tell from", "B31", not_real=ORDERS, tests=tests_of(
        "broker/replicas", "demand",
        "a_process_that_passes_for_the_one_before_serves_when_it_was_heard_as_master")),
    Promise("Such a master shows to consumers", "B24", real=("failovers UNSEEN",)),
    Promise("RocketMQ's brokers do not announce it", not_simulated=JAVA, not_real=ONE_RULE,
            tests=tests_of("controller/metadata", "eligible", "without_the_announcement_nobody_is_eligible")),
    Promise("Binding is compare-and-set", "C10 C11", not_real=ORDERS,
            tests=tests_of("controller/metadata", "bugs", "BUG_K26_a_lost_answer_costs_no_id")),
    Promise("An id is never given twice", "C12", real=("interop everything_from_disk_again",)),
    Promise("Heartbeats of any other process keep", "C24 B27", not_real=COPIED, tests=tests_of(
        "broker", "lives", "a_copied_directory_started_elsewhere_has_no_role_while_its_original_lives")),
    Promise("The process on record is the one that is elected", "C24 C9", not_real=COPIED, tests=tests_of(
        "broker", "lives", "a_copied_directory_started_elsewhere_has_no_role_while_its_original_lives")),
    Promise("A second process is refused (2014)", "C23 B27", not_real=COPIED, tests=tests_of(
        "broker", "lives", "a_copied_directory_started_elsewhere_has_no_role_while_its_original_lives")),
    Promise("It asks again each second and comes in", "C17", not_real=COPIED, tests=both(
        tests_of("broker", "lives", "a_master_with_a_new_address_needs_no_operator"),
        tests_of("controller", SERVER, "who_moved_while_all_were_down_comes_in_although_nobody_beats"))),
    Promise("After `kill -9` that is at once", "C17 C20", not_real=COPIED, tests=tests_of(
        "broker", "lives", "a_copy_comes_in_by_itself_when_its_original_is_killed",
        "a_broker_that_fell_silent_is_replaced_at_a_new_address_after_its_timeout")),
    Promise("A controller that has never heard the one on record", "C17", not_real=COPIED,
            tests=tests_of("broker", "lives", "all_restarted_at_once_wait_for_no_timeout")),
    Promise("A master whose lease is waited for", "LEASE", not_real=ORDERS),
    Promise("Where it comes in the master's place", "C23", not_real=ORDERS),
    Promise("The next master, as a rule", "C17 C23", not_real=ORDERS),
    Promise("A process that learns from the active", "B27 C23", not_real=COPIED, tests=tests_of(
        "broker", "lives", "a_copied_directory_started_elsewhere_has_no_role_while_its_original_lives")),
    Promise("A notification (1008) that says so", "B27", not_real=ORDERS),
    Promise("A broker that tells no life", "C24", real=("interop two_java_brokers_lose_their_master",)),
    Promise("So is a member on record without", "C24", not_real=ORDERS, tests=tests_of(
        "controller", "lives", "without_a_life_on_record_the_address_says_whose_heartbeat_it_is")),
    Promise("The controllers tell running brokers", "C24", not_real=ORDERS, tests=tests_of(
        "broker", "lives", "running_brokers_tell_their_lives_when_controllers_know_them")),
    Promise("While older controllers are in the group the old", "B27", not_real=COPIED, tests=tests_of(
        "controller", "lives", "while_older_controllers_are_there_a_master_is_replaced_before_its_id_moves",
        "while_older_controllers_are_there_no_id_moves_during_an_election")),
    Promise("Where another one is on record the active", "B29", not_real=COPIED, tests=both(
        tests_of("controller", "requests",
                 "a_store_that_does_not_know_the_life_on_record_is_told_that_it_is_older"),
        tests_of("broker/replicas", "older_copy", "a_store_whose_last_life_is_on_record_is_in_no_doubt"))),
    Promise("The broker notes that its log is", "B29", not_real=COPIED, tests=both(
        tests_of("broker", "lives", "an_older_copy_that_is_put_back_costs_nothing_that_others_hold"),
        tests_of("broker/replicas", "older_copy", "an_older_copy_doubts_its_log_before_it_is_registered",
                 "an_older_copy_is_in_doubt_wherever_it_is_killed"))),
    Promise("Nothing of its own is cut", "B9", not_real=COPIED, tests=tests_of(
        "broker/store", "lives", "an_older_copy_is_in_doubt_until_it_is_level")),
    Promise("**A process that is killed on its way doubts nothing.**", "B29", not_real=COPIED, tests=tests_of(
        "broker/replicas", "older_copy", "a_store_that_is_no_copy_is_never_in_doubt_wherever_it_is_killed")),
    Promise("**What was judged holds where", "C23", not_real=ORDERS, tests=tests_of(
        "controller", "requests", "who_was_registered_while_a_store_was_judged_is_not_replaced_by_it")),
    Promise("A lone broker, and a master that", "B22", not_real=COPIED),
    Promise("A store that an earlier release left", not_simulated="all simulated brokers note their lives",
            not_real=ORDERS, tests=tests_of(
                "broker/replicas", "older_copy", "a_store_of_an_earlier_release_is_judged_from_its_next_life_on")),
    Promise("A role change is sent", "C17", not_real=IN_PROCESS,
            tests=tests_of("controller", NOTIFICATIONS, "all_members_are_told_the_master_first",
                       "BUG_A12_told_until_it_answers")),
    Promise("Brokers that are dead are told", "C17", not_real=IN_PROCESS,
            tests=tests_of("controller", NOTIFICATIONS, "who_is_dead_is_told_when_it_comes_back")),
    Promise("An election whose controller died", "C17", not_real=ORDERS,
            tests=tests_of("controller", NOTIFICATIONS, "what_an_active_controller_left_untold_the_next_one_tells")),
    Promise("The leader of the Raft group holds a lease", "C18", not_real=ORDERS),
    Promise("Only while it holds it", "LEASE", not_real=ORDERS,
            tests=tests_of("controller", SERVER, "a_masters_lease_is_renewed_by_the_active_controller_alone")),
    Promise("A master whose lease is not renewed", "LEASE C16", not_real=ORDERS,
            tests=tests_of("controller", SERVER, "a_closed_channel_can_wait_for_the_lease")),
    Promise("It asks for its lease with each message", "C16", not_real=ORDERS, tests=tests_of(
        "broker", "puts", "what_was_put_under_a_lease_is_not_acknowledged_when_that_is_over")),
    Promise("On its own clock the lease ends", "LEASE C16", not_real=ORDERS, tests=tests_of(
        "broker/replicas", "lease", "it_is_over_by_the_masters_clock_before_it_is_by_the_controllers")),
    Promise("A lease is for one mastership", "LEASE", not_real=ORDERS,
            tests=tests_of("controller", "answers", "a_renewed_lease_names_its_mastership")),
    Promise("So a master that was replaced", "LEASE", not_real=ORDERS, tests=tests_of(
        "broker/replicas", "lease", "a_lease_of_a_later_mastership_is_none_of_the_one_before",
        "who_hears_of_a_lease_of_a_later_mastership_asks_who_is_master")),
    Promise("RocketMQ's masters announce none", not_simulated=JAVA, not_real=ONE_RULE,
            tests=tests_of("controller", ACTIVE, "without_a_lease_that_matters_nobody_waits")),
    Promise("**When it asks, as its members do not hear it**", "C28", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "a_master_that_its_members_do_not_hear_is_replaced_when_it_asks")),
    Promise("As many members must have said", "C28", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "it_waits_until_they_reach_each_other_both_ways")),
    Promise("One of them must be electable", "C28 B64", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "who_is_not_in_sync_may_go_on_too_and_does_not_lead")),
    Promise("While others live that may still say so", not_simulated=ONE_ANSWER, not_real=ONE_RULE, tests=tests_of(
        "controller", YIELDING, "it_waits_until_enough_members_said_so", "where_too_few_live_it_is_refused_at_once")),
    Promise("**When it asks, as its disk is in trouble**", "C28", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "a_master_with_a_bad_disk_is_followed_by_a_holder_with_a_good_one")),
    Promise("A disk that all share", "C28", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "a_disk_that_all_share_elects_nobody")),
    Promise("**Unasked**, on the same word", "C28 C30", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "a_silent_master_is_replaced_unasked", "who_hear_it_are_not_outvoted_by_as_many")),
    Promise("Where a member that lives is Java's", not_simulated=JAVA, not_real=ONE_RULE, tests=tests_of(
        "controller", YIELDING, "where_a_member_does_not_tell_of_silence_its_timeout_is_waited_for")),
    Promise("Each needs the controller's own attention", "C28", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "who_stood_still_accuses_nobody_by_what_it_reads_first",
        "a_new_active_controller_gives_the_master_time")),
    Promise("With `allAckInSyncStateSet` the election is at once", "C28 B1 B15", not_real=ORDERS),
    Promise("In other modes the former master's lease", "C28 LEASE", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "in_other_modes_its_lease_ends_as_it_asks_and_is_over_before_the_election",
        "without_a_lease_other_modes_wait_for_its_timeout")),
    Promise("Of one group an active controller", "B35 C29", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "elections_per_minute_are_bounded_when_nobody_can_do_better",
        "what_was_long_ago_is_forgotten")),
    Promise("So members that hear each other", "C29", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "elections_per_minute_are_bounded_when_nobody_can_do_better")),
    Promise("Where such an election fails", "C22", not_real=ORDERS, tests=tests_of(
        "controller", YIELDING, "an_election_that_comes_too_late_leaves_the_master")),
    Promise("Any election passes over brokers whose disks", not_simulated=ONE_ANSWER, not_real=ONE_RULE, tests=tests_of(
        "controller", YIELDING, "any_election_prefers_a_good_disk", "nobody_waits_for_a_good_disk",
        "in_other_modes_a_good_disk_that_holds_less_is_not_preferred")),
    Promise("each controller reads the end", "C20", not_real=TIMING,
            tests=tests_of("controller", ACTIVE, "BUG_A4_a_closed_channel_elects_at_once")),
    Promise("1008 is sent", "C17", not_real=IN_PROCESS,
            tests=tests_of("controller", NOTIFICATIONS, "all_members_are_told_the_master_first")),
    Promise("the new master takes its role", "B9", real=("failovers LOST",)),
    Promise("The new master does not have to look", "C17 B22", real=(
        "interop master_and_active_controller_killed_together",),
            tests=tests_of("broker/replicas", "leader", "who_renews_the_lease_leads_and_is_asked_for_what_waits")),
    Promise("A broker that is told of an election", not_simulated="simulated brokers believe every controller",
            not_real=TIMING, tests=tests_of(
                "broker/replicas", "leader", "a_role_told_from_elsewhere_makes_it_look_at_once",
                "a_role_told_from_elsewhere_makes_it_look_but_not_for_ever")),
    Promise("When many masters are lost at once", "C20", not_real=TIMING,
            tests=tests_of("controller", ACTIVE, "BUG_A8_many_groups_are_one_batch")),
), others=(
    "A master that hangs, that its members", "Brokers of this release tell", "The active controller then replaces",
    "`mqadmin explainController` says of which",
    "A store that is copied, with", "Java's controllers take the one", "So each process has a number",
    "It registers id, address",
    "A directory that is put back",
    "Elected, it would have the others", "So each store notes the life", "The answer ends that",
    "A broker or a controller of an earlier", "Who goes back to an earlier release", "It knows that life",
    "**It is the broker that judges", "**One copy goes unseen**",
    "So back up a store when",
    "A RocketMQ broker group is", "The controllers keep", "Three controllers are", "What they replicate",
    "Every broker sends",
    "Two kinds of death", "A process that was killed", "With `enableElectUncleanMaster`", "If a new master dies before",
    "With `allAckInSyncStateSet` the same holds", "Each report says what",
    "This rule is one of format 2", "With `youngMasterShowsAll=true`",
    "The simulation counts such cases",
    "A broker asks for the next id",
    "Brokers ask by themselves", "the master's process dies", "the command is on two disks", "it is applied",
    "it registers with the name servers", "a client asks for the route", "When the active controller is lost too",
    "How long each takes", "`python -m benchmarks.failover_timeline --together`",
    "A *host* that is lost", "With its 10 s, and both stopped", "A Java producer without a guardian",
    "Java's brokers under our controllers", "`controller/metadata/` is", "`liveness`, `active`",
    "`tests/controller/` mirrors",
))
