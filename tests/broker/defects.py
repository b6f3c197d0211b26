"""Every known defect of RocketMQ's brokers in controller mode, with the tests that show it absent and, where a change
of one line would bring it back, the planted bug that they must notice.

``python -m tests.broker.defects`` writes ``docs/reference/replication-defects.md``. Reads test files as text; runs
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from harness.simulation.brokers.statements import STATEMENTS
from tests.harness.simulation.brokers.mutants import PLANTED

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/reference/replication-defects.md"

SWITCH: Final = "tests/broker/ha/test_autoswitch.py::"
CORES: Final = "tests/broker/ha/test_replication.py::"
IN_SYNC: Final = "tests/broker/ha/test_insync.py::"
EPOCHS: Final = "tests/broker/ha/test_epochs.py::"
EPOCH_FILE: Final = "tests/broker/ha/test_epochfile.py::"
PEERS: Final = "tests/broker/ha/test_bad_peers.py::"
WIRE: Final = "tests/broker/ha/test_wire.py::"
ACKS: Final = "tests/broker/ha/test_acks.py::"
MANAGER: Final = "tests/broker/replicas/test_manager.py::"
REGISTERING: Final = "tests/broker/replicas/test_registering.py::"
SHELL: Final = "tests/broker/replicas/test_shell.py::"
IDENTITY: Final = "tests/broker/replicas/test_identity.py::"


@attrs.frozen
class Defect:
    """One row. ``planted``: bugs of ``tests.harness.simulation.brokers.mutants``; ``why_none``: why there is no such
    change."""

    source: str
    what: str
    here: str
    tests: tuple[str, ...]
    planted: tuple[str, ...] = ()
    why_none: str = ""


ROWS: Final[dict[str, Defect]] = {
    # --- registration and roles
    "M1": Defect(
        "apache/rocketmq#5989, #6100, #4808, #5745",
        "a broker is who its address says: another address, another broker",
        "Its id is in a file, and outlives its address, its name server and its controllers.",
        (IDENTITY + "test_texts_are_javas", REGISTERING + "test_every_crash_point_of_the_first_boot_is_resumed"),
        why_none="an address is nowhere an identity"),
    "M2": Defect(
        "read, ReplicasManager", "a lost answer to ApplyBrokerId removes the application, and its id is never used",
        "An application outlives everything but the controller's word that the id is another's.",
        (REGISTERING + "test_an_application_outlives_a_failure_that_says_nothing",
         REGISTERING + "test_an_id_that_is_another_brokers_is_given_up"),
        ("a lost answer costs the id",)),
    "M3": Defect(
        "read, BrokerMetadata",
        "identity files are neither replaced at one stroke nor synced; a # in a name breaks them",
        "They are replaced whole, durable before the next step, and such names are refused.",
        (SHELL + "test_a_crash_at_each_step_of_the_identity_costs_no_id",
         IDENTITY + "test_names_that_would_break_the_file"),
        why_none="files are written by one function of the platform, which has tests of its own"),
    "M4": Defect(
        "apache/rocketmq#7704",
        "another cluster or broker name in the configuration stops the start for ever, in silence",
        "It stops the start, and says which file holds which names and what to do.",
        (IDENTITY + "test_a_wrong_file_stops_the_broker", SHELL + "test_a_wrong_identity_file_stops_the_start"),
        why_none="it is kept on purpose; only the words are ours"),
    "M5": Defect(
        "apache/rocketmq#5929, #5930", "heartbeats to a dead controller hold up those to the living",
        "Each controller gets its own, whoever does not answer.",
        (MANAGER + "test_a_controller_that_never_answers_holds_up_no_heartbeat",),
        ("heartbeats wait for each other",)),
    "M6": Defect(
        "apache/rocketmq#4799, #6813",
        "under a controller every master is a SYNC_MASTER, so nothing is ever asynchronous",
        "The role says nothing of acknowledgements: inSyncReplicas and allAckInSyncStateSet do.",
        (ACKS + "test_table", CORES + "test_weaker_modes_confirm_what_is_written"),
        why_none="one function with its table"),
    "M7": Defect(
        "apache/rocketmq#6505, #6506", "an epoch without another master drops all slaves",
        "The same master in a new epoch keeps its slaves.",
        (SWITCH + "test_the_same_master_again_keeps_its_slaves",),
        ("connections go on with the old epochs (apache/rocketmq#9689)",)),
    "M8": Defect(
        "read, ReplicasManager", "slaves learn from name servers where a new master replicates from, up to 30 s later",
        "The master is asked, and tells all it knows (906), at once.",
        ("tests/broker/test_haaddress.py::test_a_slave_asks_until_the_master_is_one",
         "tests/broker/test_haaddress.py::test_a_new_master_tells_all_but_itself_and_does_not_wait_for_the_lost"),
        why_none="a second way to the same address; without it the gap of benchmarks/broker_failover is seconds"),
    "M9": Defect(
        "read, ReplicasManager", "a role that replication refused is acted on nevertheless",
        "It is no role: nothing is served, it is reported and tried again.",
        (MANAGER + "test_a_role_that_replication_refuses_is_no_role", SWITCH + "test_an_older_role_is_refused"),
        ("a refused role is acted on",)),
    "M10": Defect(
        "read, ReplicasManager", "an isolated master acknowledges for as long as it is isolated",
        "It refuses writes when its lease is over, and has none before a controller granted it.",
        (MANAGER + "test_a_master_without_a_controller_fences_itself_and_comes_back",
         MANAGER + "test_a_new_master_serves_nobody_before_its_lease_is_granted"),
        ("the lease does not end", "a lease that was never granted holds")),
    "M11": Defect(
        "read, ReplicasManager", "a group that the controllers lost is asked for in vain, without a word",
        "It is reported, with what to do. An id is not applied for again by itself: it may be another's by now.",
        (REGISTERING + "test_a_group_that_the_controller_lost_is_named",), why_none="words"),
    "M12": Defect(
        "apache/rocketmq#9843, #9845",
        "the task that probes controllers dies of a full queue, and no replica joins again",
        "There is no such task; a lost controller is looked for by the one task that does all, without haste.",
        (MANAGER + "test_a_lost_leader_is_looked_for_without_haste_and_an_unreadable_answer_harms_nobody",),
        why_none="one task decides all and raises nothing of what a controller sends"),
    "M13": Defect(
        "apache/rocketmq#7441", "an empty log has no confirm offset, which is said again and again",
        "An empty log is confirmed up to 0.",
        (CORES + "test_a_replica_of_which_the_next_master_had_nothing_is_copied_anew",),
        why_none="the offset is a number from the beginning"),
    "M14": Defect(
        "read, ReplicasManager", "whoever sends a notification of a role is believed",
        "Only a controller's host is; words from elsewhere make the broker ask.",
        (MANAGER + "test_an_epoch_from_where_no_controller_runs_makes_the_broker_ask",
         SHELL + "test_whoever_tells_of_a_role_must_run_where_a_controller_does"),
        ("whoever tells of a role is believed",)),
    "M15": Defect(
        "read, ReplicasManager", "heartbeats are one-way and may arrive behind the election that needs them",
        "An election is asked for when a heartbeat was answered.",
        (MANAGER + "test_an_election_waits_for_an_answered_heartbeat",), ("an election waits for no heartbeat",)),
    "M16": Defect(
        "apache/rocketmq#6316, #6317", "a name server takes the former master's registration for the present one's",
        "Epochs of masters are versions of their registrations; an older one changes nothing.",
        ("tests/controller/namesrv/test_registration.py::"
         "test_an_older_state_version_is_answered_with_success_and_leaves_the_tables",),
        why_none="of the name server"),
    "M17": Defect(
        "apache/rocketmq#6586", "a name server shows a single master as its own slave, of what was registered before",
        "An address has one id: the later registration takes the former one away.",
        ("tests/controller/namesrv/test_registration.py::test_an_address_has_one_id",), why_none="of the name server"),
    "M18": Defect(
        "executed, SlaveSynchronize, TopicConfigManager.createTopicInSendMessageMethod",
        "a slave that is elected before its next copy of the topics, every 10 s or so, makes a topic anew with the "
        "queues that a producer wants: what lies in others is consumed by nobody, and sends to them are refused",
        "Topics are copied at once, when there are messages of an unknown one, and every 3 s; a new master makes what "
        "it has messages of, with every queue that holds some.",
        ("tests/broker/test_server.py::test_slaves_ask_for_a_topic_as_soon_as_they_have_messages_of_it",
         "tests/broker/test_server.py::test_a_topic_that_only_the_lost_master_knew_is_read_at_the_next_one",
         "tests/broker/topics/test_table.py::test_a_topic_made_again_has_all_queues_that_hold_messages"),
        why_none="of the tables that slaves copy"),
    # --- replication
    "L1": Defect(
        "executed, AutoSwitchHAClient", "the first acknowledgement of a connection comes up to 5 s late",
        "It leaves at once.",
        (CORES + "test_the_first_acknowledgement_leaves_at_once",
         SWITCH + "test_the_first_acknowledgement_leaves_at_once"),
        ("the first acknowledgement waits for an interval",)),
    "L2": Defect(
        "read, AutoSwitchHAConnection", "the last bytes of an epoch carry the next one, and slaves lose an epoch",
        "Each byte carries its own epoch; what a Java master leaves out is taken from its handshake.",
        (CORES + "test_the_last_bytes_of_an_epoch_carry_that_epoch",
         CORES + "test_a_mis_tagged_last_frame_leaves_no_hole_in_the_epochs"),
        ("a frame goes on into the next epoch", "epochs that a frame passes over are lost")),
    "L3": Defect(
        "apache/rocketmq#9689, #9690", "connections that live on go on with the old epoch",
        "The epoch of what is sent is looked up in the present list each time.",
        (CORES + "test_a_new_epoch_of_the_same_master_reaches_connections_that_live_on",),
        ("connections go on with the old epochs (apache/rocketmq#9689)",)),
    "L4": Defect(
        "apache/rocketmq#9942", "an epoch that begins where the last one did is not recorded",
        "It takes its place.", (EPOCHS + "test_equal_starts_are_overwritten",
                                SWITCH + "test_masters_that_wrote_nothing_leave_no_epochs"),
        ("an epoch without a byte stays (apache/rocketmq#9942)",)),
    "L5": Defect(
        "executed, EpochFileCache", "an empty list is not written, and ends of epochs are stale after a cut",
        "It is written, and no end is ever stored.",
        (EPOCHS + "test_an_empty_list_is_persisted", EPOCH_FILE + "test_an_empty_list_stays_empty",
         EPOCHS + "test_no_stale_end_after_a_truncation"),
        ("an empty list of epochs leaves the copy",)),
    "L6": Defect(
        "executed, AutoSwitchHAService", "a master that restarts moves the start of its epoch: slaves copy it anew",
        "The entry stays as it is.",
        (SWITCH + "test_a_master_that_restarts_within_its_epoch_keeps_the_entry",),
        ("a restart moves the start of the epoch",)),
    "L7": Defect(
        "found by simulation, here",
        "a master that lost power goes on with its epoch, and other bytes pass for the lost",
        "An epoch is led once per boot of the machine; who may have lost something resigns.",
        (SWITCH + "test_a_master_whose_machine_went_down_does_not_go_on_with_its_epoch",
         MANAGER + "test_a_master_that_lost_what_others_hold_resigns",
         MANAGER + "test_a_controller_that_knows_no_resigning_is_asked_for_the_others",
         EPOCH_FILE + "test_a_crash_at_any_operation_leaves_the_old_or_the_new_list"),
        ("a master goes on with its epoch after its machine went down", "a start clears the doubt of the one before",
         "a failed disk leaves no doubt", "one that resigns beats on")),
    "L8": Defect(
        "apache/rocketmq#9897", "connections are counted: a half-open one counts twice, and its end evicts the slave",
        "Members are ids; an older connection is closed and its end says nothing.",
        (CORES + "test_h7_two_connections_of_one_slave_are_one_holder",
         SWITCH + "test_the_former_connection_of_a_slave_neither_counts_nor_evicts_it"),
        ("the end of an old connection evicts its slave",)),
    "L9": Defect(
        "apache/rocketmq#8875, #8876", "who connects and says nothing stays for ever",
        "It has 10 s, and there is a limit to connections.",
        (CORES + "test_heartbeats_and_silence", PEERS + "test_only_so_many_connections"),
        ("who says nothing stays (apache/rocketmq#8875)",)),
    "L10": Defect(
        "apache/rocketmq#10853, #10207", "an unknown state, or a socket that is closed already, ends a thread",
        "It ends its connection, in words.",
        (WIRE + "test_what_a_master_refuses", WIRE + "test_what_a_slave_refuses",
         PEERS + "test_garbage_on_the_port_costs_its_connection"),
        ("an unknown state is an acknowledgement (apache/rocketmq#10853)",)),
    "L11": Defect(
        "apache/rocketmq#7219", "the task that shrinks the SyncStateSet dies of a change made meanwhile",
        "What is wanted is worked out from the present state at each request; nothing runs beside it.",
        (CORES + "test_h10_leaving_is_measured_on_the_clock_that_only_runs",
         SWITCH + "test_a_slave_that_went_leaves_the_set"),
        ("nobody leaves and nobody joins",)),
    "L12": Defect(
        "apache/rocketmq#5663, #5798", "what is acknowledged while a slave joins may not be with it",
        "Members of a set that is asked for count until the controller has refused it for certain.",
        (CORES + "test_h6_a_set_that_may_have_been_accepted_counts_until_it_is_known",
         MANAGER + "test_only_a_certain_refusal_ends_the_union"),
        ("what is asked for does not count (apache/rocketmq#5663)",)),
    "L13": Defect(
        "apache/rocketmq#6662, #6663", "the confirm offset moves though a member is away",
        "A member that is away holds it where it is.",
        (CORES + "test_h5_a_member_that_has_not_acknowledged_yet_is_not_passed_over",),
        ("who has not acknowledged yet is passed over (H5)",)),
    "L14": Defect(
        "apache/rocketmq#6665, #6666, #6609", "consumers see what is not confirmed, and may lose it again",
        "Nothing is visible beyond the confirm offset.",
        ("tests/broker/store/test_store.py::test_nothing_beyond_the_confirm_offset_is_seen_and_offsets_go_on_behind_it",),
        ("consumers see what is written",)),
    "L15": Defect(
        "apache/rocketmq#7689, #7690, #7657", "a new master gives queue offsets again that were given before",
        "They go on behind those of the log that it has.",
        (SWITCH + "test_queue_offsets_go_on_behind_those_of_the_last_master",),
        ("a new master gives old queue offsets (apache/rocketmq#7689)",)),
    "L16": Defect(
        "apache/rocketmq#5714", "what waits in a buffer of its own is not counted when the role changes",
        "A role begins when the system has all that was appended, and a part of a message is cut off.",
        (SWITCH + "test_a_new_master_cuts_the_part_of_a_message",),
        ("a new master writes behind the part of a message",)),
    "L17": Defect(
        "apache/rocketmq#5157, #5182", "the handshake has another shape in each release",
        "It has that of 5.1 and later, byte for byte, in any pieces.",
        (WIRE + "test_bytes_are_javas", WIRE + "test_a_handshake_split_behind_twelve_bytes_waits_for_the_rest"),
        why_none="bytes"),
    "L18": Defect(
        "apache/rocketmq#5274", "tests of replication fail now and then",
        "Each seed is the same every time.",
        ("tests/harness/simulation/brokers/test_scene.py::test_a_seed_is_the_same_every_time",),
        why_none="about tests"),
    "L19": Defect(
        "read, AutoSwitchHAConnection",
        "a slave counts as caught up when there is nothing to send, acknowledged or not",
        "Only an acknowledgement shows it.",
        (IN_SYNC + "test_who_is_sent_all_and_acknowledges_nothing_has_not_caught_up",),
        ("what is sent counts as caught up",)),
    "L20": Defect(
        "read, AutoSwitchHAService", "on a busy master a slave joins only in an instant in which it is level",
        "The confirm offset waits a moment for who is near the end, and ever more seldom for who does not come up.",
        (IN_SYNC + "test_a_busy_master_waits_a_moment_for_who_is_about_to_join",
         IN_SYNC + "test_who_does_not_come_up_in_time_is_waited_for_no_longer",
         IN_SYNC + "test_who_cannot_keep_up_is_waited_for_ever_more_seldom"),
        ("nobody is waited for who is about to join",)),
    "L21": Defect(
        "read, AutoSwitchHAService", "while controllers are away, each acknowledgement queues one more request",
        "There is one request at a time, for what is wanted then.",
        (MANAGER + "test_a_lost_answer_is_found_by_the_poll",
         MANAGER + "test_a_slave_that_caught_up_is_reported_and_accepted"),
        why_none="requests of a kind are a set"),
    "L22": Defect(
        "read, GroupTransferService", "learners and second connections count as holders",
        "Holders are distinct members, learners aside.",
        (CORES + "test_learners_hold_nothing_that_counts", ACKS + "test_nothing_is_acknowledged_that_is_not_held"),
        ("learners count",)),
    "L23": Defect(
        "read, AutoSwitchHAService", "a new master waits without end for its queues",
        "It waits 30 s, and says so.",
        (SWITCH + "test_a_new_master_does_not_wait_for_ever_for_its_queues",),
        why_none="without the limit its test would never end"),
    "L24": Defect(
        "read, AutoSwitchHAConnection", "more than 1,000 epochs end replication for good",
        "The oldest go; slaves read more.",
        (EPOCHS + "test_the_oldest_go_when_a_java_master_could_not_tell_them",
         WIRE + "test_more_epochs_than_a_java_master_could_tell"),
        ("epochs without end",)),
    "L25": Defect(
        "read, AutoSwitchHAClient", "a log without epochs is not cut, and its slave connects for ever",
        "It is copied anew; that of a plain group is compared.",
        (CORES + "test_h8_a_log_without_epochs_is_copied_anew",
         SWITCH + "test_h8_an_epoch_file_that_cannot_be_read_has_the_log_copied_anew",
         CORES + "test_a_plain_groups_log_moves_in_place"),
        ("a log without epochs is trusted (H8)",)),
    "L26": Defect(
        "apache/rocketmq#10666; read, AutoSwitchHAClient", "a crash between cutting the log and writing the epochs",
        "The log is cut first, and a start drops epochs of bytes that are not there.",
        (CORES + "test_h9_the_log_is_cut_before_the_epoch_file_and_a_crash_between_is_seen_at_start",
         SWITCH + "test_what_the_epoch_file_tells_beyond_the_log_does_not_come_back"),
        ("epochs behind the log's end count (H9)",)),
    "L27": Defect(
        "read, AutoSwitchHAService",
        "leaving is measured by the clock on the wall: a step of it empties the SyncStateSet",
        "Times are of the clock that only runs.",
        (CORES + "test_h10_leaving_is_measured_on_the_clock_that_only_runs",),
        ("members leave at once",)),
    "L28": Defect(
        "apache/rocketmq#3015", "an offset beyond the master's end is an acknowledgement",
        "It ends the connection: that slave is ahead and must cut its log.",
        (CORES + "test_what_a_slave_may_not_do",), ("a slave that is ahead is believed (apache/rocketmq#3015)",)),
    "L29": Defect(
        "apache/rocketmq#10666", "queues tell of what was cut from the log",
        "They are cut with it.",
        ("tests/broker/store/test_store.py::test_truncation_takes_queue_offsets_back",),
        ("a cut leaves the queues (apache/rocketmq#10666)",)),
    "L30": Defect(
        "read, AutoSwitchHAConnection",
        "a slave has caught up when it acknowledges what there was at the last send: one that is always a "
        "millisecond behind a busy master never has",
        "What there was at an earlier send counts, with the time of that send.",
        (IN_SYNC + "test_who_is_always_a_little_behind_a_busy_master_stays_and_joins",),
        ("only an acknowledgement of the last send counts",)),
}
HAZARDS: Final = {"H5": "L13", "H6": "L12", "H7": "L8", "H8": "L25", "H9": "L26", "H10": "L27"}

HEAD: Final = """# Defects of the original's replication

What is wrong, or was, in RocketMQ's brokers under controllers, and what holds here instead. *Executed* and *read* say
how a defect was found that has no issue: by running the Java classes of 5.3 and 5.5, or by reading them. Rows M are
about registration and roles, rows L about the log. `make mutants-brokers` plants the bugs of the last column, each of
which its tests, or a property of the simulation, must notice; where there is none, the column says why.

This page is written by `python -m tests.broker.defects` from the tests, and a test compares.
"""


def problems() -> Iterator[str]:
    """What is missing, in words."""
    planted = {each.name for each in PLANTED}
    for row, defect in ROWS.items():
        if not defect.tests:
            yield f"{row} has no test"
        for test in defect.tests:
            file, _, name = test.partition("::")
            if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8"):
                yield f"{row}: there is no {test}"
        yield from (f"{row}: no bug is planted by the name {name!r}" for name in defect.planted if name not in planted)
        if bool(defect.planted) == bool(defect.why_none):
            yield f"{row} has either planted bugs or a reason why not"
    yield from (f"{hazard} is no row" for hazard, row in HAZARDS.items() if row not in ROWS)


def render() -> str:
    """The page."""
    out = [HEAD, "| Row | Source | The original | Here | Tests | Planted |", "| --- | --- | --- | --- | --- | --- |"]
    for row, defect in ROWS.items():
        tests = "<br>".join(f"`{test}`" for test in defect.tests)
        planted = "; ".join(defect.planted) or f"none: {defect.why_none}"
        out.append(f"| {row} | {defect.source} | {defect.what} | {defect.here} | {tests} | {planted} |")
    out += ["", "Hazards by their names elsewhere: " + ", ".join(
        f"{hazard} is {row}" for hazard, row in HAZARDS.items()) + ".", "",
        "## What is checked after every step", "",
        "`python -m harness.simulation.brokers` runs the shipped cores of a group under kills, power cuts, cut links, "
        "failovers of controllers and forged words, and asks these after every step that could break them; a property "
        "that was never asked makes a campaign invalid.", "",
        "| Property | What must hold | Planted bugs that it notices |", "| --- | --- | --- |"]
    for name, statement in STATEMENTS.items():
        planted = "; ".join(each.name for each in PLANTED if name in each.caught_by)
        out.append(f"| {name} | {statement} | {planted} |")
    return "\n".join([*out, ""])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
