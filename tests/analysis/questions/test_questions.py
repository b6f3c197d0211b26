"""Every question on a log put together by hand: figures worked out on paper, and by a plain reading of the bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analysis.logs import Logs, open_logs
from analysis.questions import QUESTIONS
from analysis.report.findings import findings
from tests.analysis import by_hand, plain
from tests.analysis.by_hand import Log, mark_of, state
from tests.analysis.scene import NODES, T0, first_of, lay_out, noop, save, story, term_of, write_traces

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three replicas; n0 lacks the last frame."""
    root = tmp_path_factory.mktemp("scene")
    records = story()
    save(root / "logs", records)
    log, _ = lay_out(records[:-1])
    log.save(root / "logs" / "n0", node="n0")
    write_traces(root / "traces", records)
    return root


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tree: Path) -> Iterator[Logs]:
    found = open_logs(spark, str(tree / "logs"), traces=str(tree / "traces"), split_ms=T0 + 4_000)
    found.keep()
    yield found
    found.release()


@pytest.fixture(scope="module")
def read(tree: Path) -> list[plain.Plain]:
    """The longest replica, plainly."""
    return list(plain.frames(tree / "logs" / "n2"))


def rows(logs: Logs, question: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in logs.ask(question).collect()]


def only(found: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
    (row,) = [row for row in found if all(row[name] == value for name, value in where.items())]
    return row


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_answers_have_the_columns_that_are_documented(logs: Logs, name: str) -> None:
    assert logs.ask(name).columns == list(QUESTIONS[name].columns)


def test_an_unknown_question_names_those_there_are(logs: Logs) -> None:
    with pytest.raises(KeyError, match="there are leadership, tenure"):
        logs.ask("weather")


def test_leadership_is_what_the_no_ops_say(logs: Logs, read: list[plain.Plain]) -> None:
    begins = [frame for frame in read if frame.kind == 2]
    ends = [*(frame.wall_ms for frame in begins[1:]), read[-1].wall_ms]
    plainly = [(frame.term, frame.wall_ms, end, sum(len(each.payloads) for each in read if each.term == frame.term))
               for frame, end in zip(begins, ends, strict=True)]
    found = sorted(rows(logs, "leadership"), key=lambda row: row["term"])
    assert [(row["term"], row["began_ms"], row["until_ms"], row["entries"]) for row in found] == plainly
    assert [(row["leader"], row["tenure_ms"], row["previous_leader"], row["held_by"]) for row in found] == [
        ("n1", 4_000, None, 3), ("n2", 6_000, "n1", 3)]


def purged(root: Path, *records: bytes) -> Path:
    """Three replicas whose logs begin with the first of these frames."""
    for node in NODES:
        log = Log(sequence=40, chain=9)
        log.begin(state(1, first_of(records[0]) - 1, term_of(records[0]), 0), sequence=3)
        log.block(*records)
        log.block()
        log.save(root / node, node=node)
    return root


def test_a_stable_group_with_a_purged_log_is_led_by_somebody(spark: SparkSession, tmp_path: Path) -> None:
    """From 300 ms on, entries 8 to 10, of a term 9 whose no-op is gone: one leadership and no change of leaders."""
    records = [by_hand.frame(8, b"x", term=9, wall_ms=T0 + 300),
               by_hand.frame(9, b"y", b"z", term=9, wall_ms=T0 + 4_300)]
    logs = open_logs(spark, str(purged(tmp_path, *records)))
    (led,) = rows(logs, "leadership")
    assert (led["term"], led["leader"], led["leader_source"]) == (9, None, "before the log")
    assert (led["first_index"], led["last_index"], led["entries"], led["payload_bytes"]) == (8, 10, 3, 3)
    assert (led["first_write_ms"], led["last_write_ms"], led["until_ms"]) == (T0 + 300, T0 + 4_300, T0 + 4_300)
    untold = ("began_ms", "tenure_ms", "cause", "previous_leader", "election_ms", "held_by")
    assert [led[name] for name in untold] == [None] * len(untold)
    (tenure,) = rows(logs, "tenure")
    assert (tenure["leader"], tenure["leaderships"], tenure["led_ms"], tenure["longest_ms"]) == (None, 1, 4_000, None)
    (churn,) = rows(logs, "churn")
    assert (churn["leaderships"], churn["leaders"], churn["mean_tenure_ms"]) == (1, 0, None)
    assert [rows(logs, name) for name in ("elections", "election_causes", "audit")] == [[], [], []]
    assert findings(logs) == []


def test_the_first_election_of_a_purged_log_lost_no_terms_that_somebody_led(
    spark: SparkSession, tmp_path: Path,
) -> None:
    """Term 40 has entries, term 41 a no-op; and where the log begins with that, what was before is not known."""
    before = by_hand.frame(8, b"x", term=40, wall_ms=T0)
    won = by_hand.frame(9, noop("n1", "n0", 1, 20), term=41, kind=2, wall_ms=T0 + 50, chain=mark_of(before))
    for name, records, lost in (("led", (before, won), 0), ("bare", (won,), None)):
        logs = open_logs(spark, str(purged(tmp_path / name, *records)))
        (election,) = rows(logs, "elections")
        assert (election["term"], election["terms_lost"]) == (41, lost), name
        assert findings(logs) == [], "no election was long"
    old = Log(sequence=9, chain=9)  # of a node that is long gone: between its log and the others' there may be leaders
    old.begin(state(1, 2, 5, 0), sequence=2)
    old.block(by_hand.frame(3, b"w", term=5, wall_ms=T0 - 90_000))
    old.block()
    old.save(tmp_path / "bare" / "n7", node="n7")
    (election,) = rows(open_logs(spark, str(tmp_path / "bare")), "elections")
    assert (election["term"], election["terms_lost"]) == (41, None)


def test_who_leads_is_told_by_a_trace_if_the_log_does_not(spark: SparkSession, tmp_path: Path) -> None:
    """Who followed does not count, and where two say that they led, neither is believed."""
    tree = purged(tmp_path / "logs", by_hand.frame(8, b"x", term=9, wall_ms=T0),
                  by_hand.frame(9, b"y", term=10, wall_ms=T0 + 9))

    def told(node: str, *events: dict[str, object]) -> None:
        opened = {"event": "Opened", "version": 1, "at_ns": 0, "wall_ms": T0, "process": 1, "sample_every": 1}
        lines = [opened, *({"at_ns": 5, "node": node, "group": 1, **event} for event in events)]
        (tmp_path / f"{node}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def commit(term: int, *, counted: bool = True) -> dict[str, object]:
        return {"event": "CommitAdvanced", "term": term, "index": 8, "counted": counted}

    told("n0", commit(9, counted=False), {"event": "BecameLeader", "term": 10, "leadership_seq": 1})
    told("n1", commit(9), commit(10))
    logs = open_logs(spark, str(tree), traces=str(tmp_path))
    assert sorted((row["term"], row["leader"], row["leader_source"], row["began_ms"])
                  for row in rows(logs, "leadership")) == [(9, "n1", "trace", None), (10, None, "not recorded", None)]


def test_tenure_and_churn(logs: Logs) -> None:
    assert {row["leader"]: (row["leaderships"], row["led_ms"], row["share"]) for row in rows(logs, "tenure")} == {
        "n1": (1, 4_000, 0.4), "n2": (1, 6_000, 0.6)}
    (row,) = rows(logs, "churn")
    assert (row["leaderships"], row["leaders"], row["mean_tenure_ms"]) == (2, 2, 5_000.0)


def test_elections_with_rounds_cause_lost_terms_and_split_votes(logs: Logs) -> None:
    found = sorted(rows(logs, "elections"), key=lambda row: row["term"])
    told = ("rounds", "election_ms", "votes", "terms_lost", "split_votes")
    assert [tuple(row[name] for name in told) for row in found] == [(2, 30, 2, 0, 0), (4, 700, 2, 1, 1)]
    (row,) = rows(logs, "election_causes")
    assert (row["cause"], row["elections"], row["longest_ms"], row["terms_lost"]) == ("no leader heard", 2, 700, 1)


def test_a_sound_log_has_no_finding_and_says_what_was_compared(logs: Logs, read: list[plain.Plain]) -> None:
    assert rows(logs, "audit") == []
    assert rows(logs, "broker_ids") == []
    checks = {row["check"]: (row["n"], row["source"]) for row in rows(logs, "audit_checks")}
    assert checks["frames whose checksums and chain were verified"] == (3 * len(read) - 1, "log")
    assert checks["frames held by more than one replica"] == (len(read), "log")
    assert checks["commit indexes told by traces"] == (3, "trace")


def test_commit_latency_of_the_traced_leader(logs: Logs) -> None:
    """Frames 6, 7 and 8 took 2, 110 and 10 ms."""
    (row,) = rows(logs, "commit_latency")
    assert (row["measured"], row["p50_ms"], row["max_ms"]) == (3, 10.0, 110.0)
    assert (row["exact"], row["source"]) == (True, "trace")
    buckets = rows(logs, "commit_latency_over_time")
    assert sum(row["measured"] for row in buckets) == 3 and max(row["p99_ms"] for row in buckets) == 110.0


def test_without_traces_it_is_not_recorded(spark: SparkSession, tree: Path) -> None:
    bare = open_logs(spark, str(tree / "logs"))
    (row,) = rows(bare, "commit_latency")
    assert (row["measured"], row["p50_ms"], row["source"]) == (0, None, "not recorded")
    told = {(row["split_votes"], row["split_votes_source"]) for row in rows(bare, "elections")}
    assert told == {(None, "not recorded")}
    assert {row["source"] for row in rows(bare, "lag")} == {"not recorded"}


def test_throughput_and_skew_count_each_entry_once(logs: Logs, read: list[plain.Plain]) -> None:
    entries = sum(len(frame.payloads) for frame in read)
    payload_bytes = sum(len(payload) for frame in read for payload in frame.payloads)
    found = rows(logs, "throughput")
    width = logs.bucket_ms
    plainly: dict[int, int] = {}
    for frame in read:
        bucket = frame.wall_ms // width * width
        plainly[bucket] = plainly.get(bucket, 0) + len(frame.payloads)
    assert {row["bucket_ms"]: row["entries"] for row in found} == plainly
    (row,) = rows(logs, "skew")
    assert (row["entries"], row["payload_bytes"], row["share"], row["hot"]) == (entries, payload_bytes, 1.0, False)
    assert entries == 14


def test_entry_sizes_are_those_of_the_commands(logs: Logs, read: list[plain.Plain]) -> None:
    sizes = [len(payload) for frame in read if frame.kind == 1 for payload in frame.payloads]
    (row,) = rows(logs, "entry_sizes")
    assert (row["entries"], row["max_bytes"]) == (len(sizes), max(sizes))
    assert row["mean_bytes"] == pytest.approx(sum(sizes) / len(sizes))
    assert row["p50_bytes"] == sorted(sizes)[(len(sizes) - 1) // 2]


def test_lag_by_log_and_by_trace(logs: Logs) -> None:
    """n0 lacks entry 14 of 10,000 ms, and added frames 6 and 7 after 1 and 3 ms."""
    found = rows(logs, "lag")
    n0 = only(found, node="n0")
    assert (n0["behind_entries"], n0["behind_ms"], n0["measured"], n0["max_ms"]) == (1, 500, 2, 3.0)
    assert only(found, node="n2")["behind_entries"] == 0


def test_compaction(logs: Logs, read: list[plain.Plain]) -> None:
    found = rows(logs, "compaction")
    n2 = only(found, node="n2")
    assert (n2["first_index"], n2["last_index"], n2["log_bytes"]) == (1, 14, sum(frame.size for frame in read))
    assert {(row["snapshots"], row["snapshot_index"], row["installs"]) for row in found} == {(0, None, 0)}
    assert sorted(row["node"] for row in found) == list(NODES)


def test_masters_outages_and_availability(logs: Logs) -> None:
    changes = sorted(rows(logs, "master_changes"), key=lambda row: row["index"])
    assert [(row["index"], row["master"], row["previous"], row["master_epoch"], row["clean"]) for row in changes] == [
        (7, 1, None, 1, True), (11, 2, 1, 2, True)]
    (outage,) = rows(logs, "outages")
    assert (outage["index"], outage["lost_ms"], outage["recovery_ms"], outage["new_master"]) == (10, T0 + 4_100, 500, 2)
    (row,) = rows(logs, "availability")
    assert (row["broker_name"], row["masters"], row["outages"], row["without_master_ms"]) == ("b0", 2, 1, 500)
    assert row["availability"] == pytest.approx(1 - 500 / 9_800)
    assert row["unclean_elections"] == 0


def test_a_broker_that_leaves_the_set_and_is_back_flapped(logs: Logs) -> None:
    (row,) = rows(logs, "sync_state_sets")
    assert (row["changes"], row["shrinks"], row["expands"], row["flaps"], row["smallest"]) == (4, 1, 3, 1, 1)


def test_two_periods_side_by_side(logs: Logs) -> None:
    """The first has 4 s and 8 entries, the second 6.001 s and 6."""
    found = rows(logs, "compare")
    rate = only(found, metric="entries")
    assert rate["before"] == pytest.approx(8 / 4) and rate["after"] == pytest.approx(6 / 6.001)
    assert only(found, metric="master changes")["change"] == 0
    longest = only(found, metric="longest election")
    assert (longest["before"], longest["after"], longest["change"]) == (30, 700, 670)


def test_a_period_alone(spark: SparkSession, tree: Path) -> None:
    late = open_logs(spark, str(tree / "logs"), since_ms=T0 + 4_000)
    assert [row["term"] for row in rows(late, "leadership")] == [3]
    within = open_logs(spark, str(tree / "logs"), since_ms=T0 + 200)
    first, second = sorted(rows(within, "leadership"), key=lambda row: row["term"])
    assert (first["leader"], first["leader_source"], first["first_index"]) == (None, "before the log", 7)
    assert (first["began_ms"], first["first_write_ms"], first["until_ms"]) == (None, T0 + 200, T0 + 4_000)
    assert (second["leader"], second["leader_source"], second["tenure_ms"]) == ("n2", "log", 6_000)
    assert {row["leader"]: (row["led_ms"], row["longest_ms"]) for row in rows(within, "tenure")} == {
        None: (3_800, None), "n2": (6_000, 6_000)}
    assert [row["terms_lost"] for row in rows(within, "elections")] == [1]
    assert [row["master_epoch"] for row in rows(late, "master_changes")] == [2], "replayed from the beginning"


@pytest.mark.parametrize(("since", "lost", "availability", "masters", "outages"), [
    (0, 500, 1 - 500 / 9_800, 2, 1),
    (4_000, 500, 1 - 500 / 6_000, 1, 1),  # its master is of epoch 1, from before
    (4_400, 200, 1 - 200 / 5_600, 1, 1),  # in the middle of the outage
    (4_700, 0, 1.0, 0, 0),                # nothing changed since
])
def test_a_master_from_before_the_time_asked_for_is_one(
    spark: SparkSession, tree: Path, since: int, lost: int, availability: float, masters: int, outages: int,
) -> None:
    late = open_logs(spark, str(tree / "logs"), since_ms=T0 + since)
    (row,) = rows(late, "availability")
    assert (row["without_master_ms"], row["masters"], row["outages"]) == (lost, masters, outages)
    assert (row["from_ms"], row["until_ms"]) == (T0 + max(since, 200), T0 + 10_000)
    assert row["availability"] == pytest.approx(availability)
    assert [outage["recovery_ms"] for outage in rows(late, "outages")] == [500] * outages
    assert rows(open_logs(spark, str(tree / "logs"), since_ms=T0 + 20_000), "availability") == []
