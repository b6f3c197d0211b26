"""The promises of ``docs/reference/container.md`` and ``locks.md``, and of ``docs/explanation/acting-masters.md``."""

from __future__ import annotations

from typing import Final

from tests.promises.table import (
    FAILOVERS_LOST,
    IN_PROCESS,
    ONE_ANSWER,
    ONE_RULE,
    ORDERS,
    WORDS,
    Page,
    Promise,
    both,
    tests_of,
)

APART: Final = "no container is simulated: it is a process that starts others"

LIVES = tests_of("broker/container", "container", "brokers_come_and_go_and_outlive_their_container")
ONE_FAILS = tests_of("broker/container", "container", "one_that_cannot_run_is_said_and_takes_nobody_along")
CONFIGURED = tests_of("broker/container", "container", "its_keys_change_while_it_runs_and_its_list_at_its_next_start")
GUARDIAN = tests_of("broker/container", "container", "the_container_is_the_guardian_of_brokers_under_controllers")
HANDS_OVER = tests_of("broker/container", "container",
                      "a_slave_without_its_master_hands_what_is_due_to_a_master_of_its_container")
TOOLS = ("interop both_tools_say_the_same_of_our_container",)


def hosting(*names: str) -> tuple[str, ...]:
    return tests_of("broker/container", "hosting", *names)


def sockets(*names: str) -> tuple[str, ...]:
    return tests_of("broker/siblings", "sockets", *names)


def handover(*names: str) -> tuple[str, ...]:
    return tests_of("broker/siblings", "handover", *names)


def siblings(*names: str) -> tuple[str, ...]:
    return tests_of("broker/siblings", "part", *names)


def hosts(start: str, tests: tuple[str, ...] = (), real: tuple[str, ...] = (), why: str = IN_PROCESS) -> Promise:
    """Of the container. What asks real processes is a test as well."""
    return Promise(start, not_simulated=APART, tests=tests or real, real=real, not_real="" if real else why)


STARTED = hosting("what_a_broker_is_started_with")
REFUSED = hosting("who_is_refused_in_the_words_of_the_original")
SHARED = hosting("two_brokers_share_no_name_no_port_and_no_directory")
ROSTER = hosting("the_roster_is_what_was_last_said_of_each")
CLI = tests_of("broker/container", "cli", "what_it_would_use", "what_cannot_be_used_is_said")
BYTES = sockets("a_record_is_stored_and_bad_bytes_harm_nobody")
PRIVATE = sockets("the_directory_is_private_and_names_are_short")
PAUSES = tests_of("broker/relay", "lives", "pauses_double_while_it_dies_young_and_begin_anew_after_a_long_life")
STAYS_DOWN = tests_of("broker/relay", "lives", "who_ended_in_order_or_cannot_be_configured_stays_down")
RECORDS = tests_of("broker/container", "records", "only_the_process_that_began_then_in_this_boot_is_meant",
                   "a_running_process_is_found_and_one_that_was_replaced_is_not", "it_is_read_as_it_was_written")
FORKS = tests_of("harness/processes", "forking")

CONTAINER = Page("docs/reference/container.md", (
    hosts("There they are objects of one JVM", real=LIVES), hosts("A broker that fails takes no other", real=both(
        LIVES, ONE_FAILS)),
    hosts("`mqbrokercontainer --help`", CLI), hosts("Defaults are overruled", CLI), hosts("`-p` prints all", CLI),
    hosts("Exit codes: 0 stopped", CLI), hosts("On `listenPort` (10811)", hosting("the_keys_of_the_original"), LIVES),
    hosts("902 | add", real=both(LIVES, TOOLS)), hosts("903 | remove", real=both(LIVES, TOOLS)),
    hosts("25 | change", real=CONFIGURED), hosts("26 | list", real=CONFIGURED), hosts("28 | the brokers", real=LIVES),
    hosts("All other codes are answered", real=CONFIGURED),
    hosts("`brokerId` is that of the broker's file", STARTED), hosts("Its file (`-c`), and on top", STARTED),
    hosts("`haListenPort` | `listenPort` + 1", STARTED), hosts("`brokerId` | 0 where", STARTED),
    hosts("`namesrvAddr`, `fetchNameSrvAddrByDnsLookup`", both(STARTED, hosting("the_keys_of_the_original"))),
    hosts("Changes by code 25 at the broker", real=CONFIGURED),
    hosts("`addBroker config path is empty`", real=LIVES),
    hosts("`addBroker properties empty`", hosting("a_file_without_a_key_is_no_broker"), LIVES),
    *(hosts(start, REFUSED) for start in (
        "`slave broker id must be > 0`", "`invalid replicas number`", "`Can not add broker to container")),
    hosts("`CLUSTER_NAME_ID has already been", SHARED, LIVES),
    hosts("`listenPort = 20911: is haListenPort", SHARED), hosts("`storePathRootDir = /store: is", SHARED),
    hosts("`start broker failed: `", real=ONE_FAILS),
    hosts("A broker that is listed in `brokerConfigPaths` and", real=CONFIGURED),
    hosts("In `containerStorePath`, by default", hosting("the_keys_of_the_original"), LIVES),
    hosts("`brokers.json`", both(ROSTER, hosting("a_damaged_roster_is_said")), LIVES),
    hosts("`processes/CLUSTER_NAME_ID.json`", RECORDS, LIVES), hosts("`siblings/` |", PRIVATE, HANDS_OVER),
    hosts("`logs/CLUSTER_NAME_ID/broker.log`", real=LIVES),
    hosts("A broker that was removed is not started", ROSTER, LIVES),
    hosts("The metrics page of a broker names", both(hosting("two_pages_of_metrics_need_two_ports"), tests_of(
        "broker", "server", "metrics_show_role_traffic_and_store"))),
    hosts("a broker dies |", PAUSES, LIVES), hosts("a broker ends with exit code", STAYS_DOWN),
    hosts("the container is killed |", RECORDS, LIVES),
    hosts("a broker is listed no more", hosting("what_the_configuration_lists_no_more_is_gone"), CONFIGURED),
    hosts("the container gets SIGTERM", real=LIVES), hosts("The container is the guardian", real=GUARDIAN),
    hosts("One that was found at a start", real=GUARDIAN),
    hosts("A slave that [acts for its master]", siblings("a_sibling_comes_first_and_the_network_next"), HANDS_OVER),
    hosts("Each broker listens at a Unix socket", both(PRIVATE, BYTES), HANDS_OVER),
    hosts("Only the user that runs", both(PRIVATE, sockets("another_user_is_refused")), HANDS_OVER),
    hosts("One that was killed leaves it", sockets("a_socket_that_was_left_behind_answers_at_once")),
    hosts("There is one request, 61061", BYTES),
    hosts("`cluster` of the header", handover("a_slave_of_another_cluster_or_of_the_own_group_is_refused")),
    hosts("`brokerName` | the slave", handover("a_slave_of_another_cluster_or_of_the_own_group_is_refused")),
    hosts("`beside` | of a message", handover("a_retry_topic_is_made_where_its_messages_can_be_consumed")),
    hosts("the body, to the end of the frame", handover("the_record_stays_as_it_is_but_for_places_of_its_old_log")),
    hosts("0, 10, 11, 12 | stored", both(BYTES, siblings("what_is_stored_and_not_held_is_counted_as_unsure"))),
    hosts("13 | the body is no record", both(BYTES, handover("a_body_that_is_no_record_is_told_in_words"))),
    hosts("16, 17 | this record", handover("where_no_consumer_would_find_it_it_is_refused")),
    hosts("14, 1, 2 | this broker", both(handover("a_slave_of_another_cluster_or_of_the_own_group_is_refused"),
                                         siblings("a_master_that_may_not_write_is_passed_over"))),
    hosts("3 | another code", BYTES), hosts("Bytes that are no frame", BYTES),
    hosts("A broker in which nothing is due", tests_of(
        "broker", "idle", "a_broker_with_all_services_sleeps_while_nothing_is_due", "what_waited_long_comes_in_time")),
    hosts("brokers share one JVM", real=LIVES), hosts("what 902 adds and 903", ROSTER, LIVES),
    hosts("a file in `brokerConfigPaths` that", real=CONFIGURED),
    hosts("the container's name servers are", STARTED), hosts("two brokers with one store", SHARED),
    hosts("902 of a broker under controllers", STARTED),
    hosts("an acting slave's messages go to the log", siblings("a_sibling_comes_first_and_the_network_next"),
        HANDS_OVER),
), others=(
    "`mqbrokercontainer` runs many", "mqbrokercontainer -c", "It needs Linux", "With the tool:", "mqadmin addBroker",
    "Two containers cannot", "A process is named after", "A broker that cannot open its socket",
    "Brokers are forked from", "It has no threads", "Should it end by itself",
    "Idle masters with default keys", "64 | ours", "64 | Java's", "8 | ours", "8 | Java's",
    "Taken, and without", "DLedger brokers",
))


def locks(*names: str) -> tuple[str, ...]:
    return tests_of("broker/locks", "part", *names)


def quorum(*names: str) -> tuple[str, ...]:
    return tests_of("broker/locks", "quorum", *names)


def table(*names: str) -> tuple[str, ...]:
    return tests_of("broker/consumers", "locks", *names)


ONE_HOLDER = quorum("one_client_holds_a_queue_whatever_is_late_lost_or_forgotten")
BY_MAJORITY = locks("by_majority_one_holder_whoever_is_asked")
FORGOT = locks("by_majority_who_forgot_what_it_granted_grants_nothing_for_a_minute")
TOO_FEW = locks("of_two_members_one_alone_locks_nothing_and_says_so")
NOT_WON = locks("who_gets_no_majority_keeps_nothing_at_others")
LATE_UNLOCK = locks("by_majority_an_unlock_that_comes_late_takes_no_later_lock")
FORMER = locks("a_former_holder_keeps_its_queue_where_its_grant_was_copied")
NOT_BACK = locks("a_master_that_is_not_back_yet_grants_nothing_by_itself")
GRANTS = locks("one_broker_grants_a_queue_to_one_client")
FIELDS = quorum("grants_are_read_as_they_were_written")
CLIENTS = ("interop untouched_java_clients_across_a_failover_of_our_brokers",)


def strict(start: str, *tests: tuple[str, ...]) -> Promise:
    return Promise(start, "B61", tests=both(*tests), not_real=IN_PROCESS)


def held(start: str, *tests: tuple[str, ...], real: tuple[str, ...] = (), why: str = ONE_ANSWER) -> Promise:
    return Promise(start, not_simulated=why, tests=both(*tests), real=real, not_real="" if real else IN_PROCESS)


LOCKS = Page("docs/reference/locks.md", (
    held("Who consumes a topic in order", GRANTS, real=CLIENTS),
    held("A lock is held for 60 s", table("a_lock_lasts_a_minute_and_as_long_as_its_holder_asks")),
    held("Up to 200,000 queues", table("no_more_are_held_than_may_be")),
    strict("a queue is held where", BY_MAJORITY, FORMER), strict("two clients hold one queue |", ONE_HOLDER),
    strict("a broker starts |", FORGOT), strict("of two replicas one is away", TOO_FEW, FORMER),
    held("a group with `totalReplicas=1`", GRANTS),
    strict("With `lockInStrictMode` the broker that is asked", BY_MAJORITY, tests_of(
        "broker", "fellows", "a_broker_is_no_fellow_of_itself_and_answers_are_used_for_a_second")),
    held("It needs no other key", BY_MAJORITY),
    strict("What lacks a majority is given back", NOT_WON, ONE_HOLDER),
    strict("**For 60 s from its start", FORGOT),
    strict("A group that starts as a whole", FORGOT, ONE_HOLDER),
    strict("A client that gives queues back", BY_MAJORITY, quorum("what_a_client_gives_back")),
    strict("Members are told the numbers", LATE_UNLOCK), strict("What it got through another broker", ONE_HOLDER),
    strict("A broker hears the requests of one client", ONE_HOLDER),
    held("Without `lockInStrictMode`, a broker with", FORMER), held("So a slave that acts for its master refuses",
        FORMER),
    held("A master that is [not level with its members yet]", NOT_BACK), strict("By majority it is asked", NOT_BACK),
    held("`broker_lock_overlaps`", FORMER, why=WORDS), held("`broker_locks_without_majority`", TOO_FEW, why=WORDS),
    held("a master comes back |", FORMER),
    held("Bodies are Java's", GRANTS, real=CLIENTS), held("`onlyThisBroker` in the body", GRANTS),
    held("41 | `copied`", FORMER), held("answer to 41 | `newlyLocked`", FIELDS), held("answer to 41 | `renewed`",
        FIELDS),
    held("42 | `givenBack`", LATE_UNLOCK, quorum("what_a_client_gives_back")),
    strict("a client that gets no majority keeps", NOT_WON, ONE_HOLDER),
    strict("only what the asked broker granted", quorum("a_majority"), BY_MAJORITY),
    held("an empty answer does not say why", TOO_FEW, FORGOT, why=WORDS),
    held("before the first look at the group", BY_MAJORITY), held("without `lockInStrictMode` each broker knows",
        FORMER),
    strict("a broker that restarted grants", FORGOT), strict("an unlock takes whatever", LATE_UNLOCK),
), others=(
    "What a client gets depends on", "Locks are in memory", "A client whose connection broke",
        "A Java member grants at once",
    "Without `lockInStrictMode` two clients may hold", "a master dies before word", "a Java broker is master",
    "without `enableSlaveActingMaster` |", "Beside it members of this project", "a member that answers too late",
))

ACTS = tests_of("broker/standin", "part", "the_smallest_slave_acts_until_the_master_is_back")
AWAY = ("interop java_timers_go_on_while_our_master_is_away",)


def chosen(start: str, asks: str, tests: tuple[str, ...], real: tuple[str, ...] = ()) -> Promise:
    """Of both: groups whose slave acts, and groups under controllers."""
    return Promise(start, asks, tests=tests, real=real, not_real="" if real else ORDERS)


MASTERS = Page("docs/explanation/acting-masters.md", (
    chosen("Both keep a group at work", "B55 C17", ACTS, both(AWAY, FAILOVERS_LOST)),
    chosen("who decides |", "B56 C18", ACTS, both(AWAY, FAILOVERS_LOST)),
    chosen("sends to the group while", "B60 B22", ACTS, FAILOVERS_LOST),
    chosen("reading, offsets, locks", "B58 B61 B20", both(ACTS, FORMER), CLIENTS),
    chosen("delayed messages and timers", "B36 B55", tests_of("broker/escape", "part", "delayed_messages_and_timers"),
        AWAY),
    chosen("POP |", "B45", tests_of("broker/pop", "lending",
           "what_is_given_and_not_acknowledged_comes_back_at_the_other_master"), both(tests_of(
               "broker/pop", "acting_killed", "what_was_popped_comes_back_without_its_master"), (
               "interop java_push_consumers_pop_across_a_failover_of_our_brokers",))),
    chosen("acknowledged messages when the master's disk", "B1 B60", tests_of(
        "broker/preonline", "levelling", "a_log_that_ends_early_is_completed_first"), FAILOVERS_LOST),
    chosen("two that deliver at once", "B56 LEASE", tests_of(
        "broker/acting", "overlaps", "no_overlap_is_longer_than_its_row_says")),
    Promise("They do not mix", not_simulated=WORDS, not_real=ONE_RULE, tests=tests_of(
        "broker/standin", "part", "what_is_said_at_the_start")),
), others=(
    "They promise different things", "several groups needed", "machines beside brokers", "Choose **acting masters**",
    "Choose **controllers**",
))
