"""Java DLedger directories: put together by hand, damaged, and written by the Java library itself."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio
from pyspark.sql import SparkSession

from analysis.dledger.layout import parse_properties
from analysis.dledger.reading import DLedgerLog, read_dledger
from analysis.files.filesystem import Tree
from analysis.files.finding import find_logs
from analysis.logs import open_logs
from analysis.parsing.rows import Payload, Wanted
from analysis.parsing.selection import Selection
from analysis.schemas import Format, arrow_schema
from harness.processes.java.errors import FetchFailed, JavaMissing
from harness.processes.java.jars import fetch
from harness.processes.ports import reserved

FILE_BYTES = 512


def entry(index: int, body: bytes, *, term: int = 0, magic: int = 1, position: int = 0) -> bytes:
    return struct.pack(">iiqqqiiii", magic, 48 + len(body), index, term, position, 0, 0, 0, len(body)) + body


def lay_out(root: Path, entries: list[bytes], *, index: bool = True) -> list[tuple[int, int]]:
    """A store as Java lays it out; where each entry lies: (data file, byte)."""
    files: list[bytearray] = [bytearray()]
    places, records = [], b""
    for number, each in enumerate(entries):
        if len(files[-1]) + len(each) + 8 > FILE_BYTES:
            left = FILE_BYTES - len(files[-1])
            files[-1] += struct.pack(">ii", -1, left).ljust(left, b"\0")
            files.append(bytearray())
        places.append(((len(files) - 1) * FILE_BYTES, len(files[-1])))
        records += struct.pack(">iqiqq", 1, sum(places[-1]), len(each), number, struct.unpack_from(">q", each, 16)[0])
        files[-1] += each
    for name in ("data", "index") if index else ("data",):
        (root / name).mkdir(parents=True)
    for number, data in enumerate(files):
        (root / "data" / f"{number * FILE_BYTES:020d}").write_bytes(data.ljust(FILE_BYTES, b"\0"))
    if index:
        (root / "index" / f"{0:020d}").write_bytes(records.ljust(32 * 64, b"\0"))
    (root / "currterm").write_text("#Fri Nov 21 10:00:00 UTC 2025\nvoteLeader=n2\ncurrTerm=7\n")
    return places


def read(path: Path, form: Format = "entries", *, payload: Payload = "none", selection: Selection | None = None,
         partition_bytes: int = 1) -> list[dict[str, Any]]:
    wanted = Wanted(form, payload, 4, selection or Selection())
    batches = [
        batch for found in find_logs([str(path)])
        for work in DLedgerLog.plan(found.tree, "", wanted, partition_bytes)
        for batch in read_dledger(Tree.of(work.root), work, wanted)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, arrow_schema(form)).to_pylist()
    return rows


def sample(count: int = 20) -> list[bytes]:
    return [entry(index, b"b%d" % index * (index % 5), term=index // 8, magic=2 if index == 8 else 1)
            for index in range(count)]


def damage(rows: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [(int(Path(row["file"]).name), row["offset"], row["damage"]) for row in rows if row["damage"] is not None]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("partition_bytes", [1, 1 << 20])
def test_entries_with_and_without_the_index(tmp_path: Path, index: bool, partition_bytes: int) -> None:
    root = tmp_path / "orders" / "dledger-n0"
    places = lay_out(root, sample(), index=index)
    rows = read(tmp_path, payload="full", partition_bytes=partition_bytes)
    assert damage(rows) == []
    bodies = [b"b%d" % at * (at % 5) for at in range(20)]
    assert [(row["index"], row["term"], row["payload"], row["payload_bytes"]) for row in rows] == [
        (at, at // 8, body, len(body)) for at, body in enumerate(bodies)]
    assert [(row["segment"], row["offset"]) for row in rows] == places
    assert [row["index"] for row in rows if row["kind"] == "noop"] == [8]
    assert {(row["node"], row["group"], row["group_id"], row["truncated"]) for row in rows} == {
        ("n0", "orders", None, False)}
    assert places[-1][0] == 2 * FILE_BYTES


def test_frames_events_and_prefixes(tmp_path: Path) -> None:
    root = tmp_path / "dledger-n0"
    lay_out(root, sample())
    assert [row["payload"] for row in read(tmp_path, payload="prefix")][:4] == [b"", b"b1", b"b2b2", b"b3b3"]
    frames = read(tmp_path, "frames")
    assert [(row["index"], row["last_index"], row["count"], row["frame_bytes"]) for row in frames][2:4] == [
        (2, 2, 1, 52), (3, 3, 1, 54)]
    assert {(row["mark"], row["chain"], row["wall_ms"]) for row in frames} == {(None, None, None)}
    assert [(row["kind"], row["term"], row["index"], row["voted_for"]) for row in read(tmp_path, "events")] == [
        ("hard_state", 7, None, "n2"), ("noop", 1, 8, None)]


def test_filters_choose_files(tmp_path: Path) -> None:
    places = lay_out(tmp_path / "dledger-n0", sample())
    some = Selection()
    some.index.narrow(9, 9)
    assert [row["index"] for row in read(tmp_path, selection=some)] == [9]
    wanted = Wanted(selection=some)
    work = DLedgerLog.plan(find_logs([str(tmp_path)])[0].tree, "", wanted, 1)
    assert [each.segments for each in work] == [((places[9][0], FILE_BYTES),)]
    assert DLedgerLog.plan(find_logs([str(tmp_path)])[0].tree, "g9", Wanted(
        selection=Selection(groups=frozenset({"g1"}))), 1) == []


@pytest.mark.parametrize("form", ["entries", "frames"])
def test_a_body_ends_where_it_ends_though_the_entry_behind_it_is_not_wanted(tmp_path: Path, form: Format) -> None:
    """Spark pushes ``kind = 'commands'`` down, and every leadership of Java's begins with a no-op."""
    lay_out(tmp_path / "dledger-n0", [
        entry(at, b"b%d" % at, magic=2 if at in (0, 3, 4) else 1) for at in range(7)])
    commands = Selection(kinds=frozenset({"commands"}))
    rows = read(tmp_path, form, payload="full", selection=commands)
    assert [(row["index"], row["payload"]) for row in rows] == [(1, b"b1"), (2, b"b2"), (5, b"b5"), (6, b"b6")]
    rows = read(tmp_path, form, payload="prefix", selection=commands)
    assert [row["payload"] for row in rows] == [b"b1", b"b2", b"b5", b"b6"]


def test_a_spoilt_header_is_damage_if_later_entries_are_there(tmp_path: Path) -> None:
    root = tmp_path / "dledger-n0"
    places = lay_out(root, sample())
    path = root / "data" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[3][1] + 4 + 3] ^= 1
    path.write_bytes(data)
    rows = read(tmp_path)
    assert damage(rows) == [(0, places[3][1], "crc")]
    assert [row["index"] for row in rows if not row["damage"]] == [0, 1, 2, *range(4, 20)]


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "dledger-n0"
    places = lay_out(root, sample())
    path = root / "data" / f"{places[-1][0]:020d}"
    data = bytearray(path.read_bytes())
    data[places[-1][1] + 4] = 99
    path.write_bytes(data)
    rows = read(tmp_path)
    assert damage(rows) == [] and [row["index"] for row in rows] == list(range(19))


def test_gaps_regressions_missing_and_cut_files(tmp_path: Path) -> None:
    gap = tmp_path / "gap" / "dledger-n0"
    places = lay_out(gap, [entry(0, b"a"), entry(2, b"b"), entry(3, b"c", term=2), entry(4, b"d", term=1)], index=False)
    rows = read(gap)
    assert damage(rows) == [(0, places[1][1], "chain"), (0, places[3][1], "chain")]
    assert len(rows) == 6

    missing = tmp_path / "missing" / "dledger-n0"
    lay_out(missing, sample())
    (missing / "data" / f"{FILE_BYTES:020d}").unlink()
    assert damage(read(missing)) == [(FILE_BYTES, 0, "missing")]

    cut = tmp_path / "cut" / "dledger-n0"
    lay_out(cut, sample())
    path = cut / "data" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:300])
    found = damage(read(cut))
    assert found[0] == (0, 300, "cut") and {code for _, _, code in found} <= {"cut", "crc"}


def test_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    assert read(tmp_path) == [] and read(tmp_path, "events") == []


def test_properties() -> None:
    assert parse_properties(b"#x\n! y\ncurrTerm=3\n voteLeader = n1 \nempty=\n") == {
        "currTerm": "3", "voteLeader": "n1", "empty": ""}


@pytest.mark.java
@pytest.mark.slow
def test_questions_to_what_java_wrote(tmp_path: Path, spark: SparkSession) -> None:
    """Its files name no cluster, no time and no leader; what they do tell is answered."""
    for node, count in (("n0", 20), ("n1", 18)):
        lay_out(tmp_path / "orders" / f"dledger-{node}", sample(count))
    logs = open_logs(spark, str(tmp_path))
    assert {(row["cluster"], row["group"], row["node"], row["behind_entries"], row["behind_ms"])
            for row in logs.ask("lag").collect()} == {("", "orders", "n0", 0, None), ("", "orders", "n1", 2, None)}
    (won,) = logs.ask("elections").collect()
    assert (won["group"], won["term"], won["leader"], won["split_votes_source"]) == ("orders", 1, None, "not recorded")
    led = sorted((row["term"], row["leader"], row["leader_source"], row["began_ms"], row["tenure_ms"], row["entries"],
                  row["first_index"], row["last_index"], row["held_by"]) for row in logs.ask("leadership").collect())
    assert led == [(0, None, "not recorded", None, None, 8, 0, 7, None),
                   (1, None, "not recorded", None, None, 8, 8, 15, 2),
                   (2, None, "not recorded", None, None, 4, 16, 19, None)]
    (churn,) = logs.ask("churn").collect()
    assert (churn["leaderships"], churn["leaders"], churn["mean_tenure_ms"]) == (3, 0, None)
    assert logs.ask("audit").collect() == []


@pytest.mark.java
@pytest.mark.slow
def test_whom_java_elected_before_its_log_begins(tmp_path: Path, spark: SparkSession) -> None:
    lay_out(tmp_path / "orders" / "dledger-n0", [
        entry(at, b"b", term=5 if at < 9 else 6, magic=2 if at == 9 else 1) for at in range(6, 12)], index=False)
    logs = open_logs(spark, str(tmp_path))
    assert sorted((row["term"], row["leader"], row["leader_source"], row["first_index"], row["last_index"])
                  for row in logs.ask("leadership").collect()) == [
        (5, None, "before the log", 6, 8), (6, None, "not recorded", 9, 11)]
    assert [row["terms_lost"] for row in logs.ask("elections").collect()] == [0]


@pytest.mark.java
@pytest.mark.slow
def test_replicas_of_java_part_where_their_terms_do(tmp_path: Path, spark: SparkSession) -> None:
    for node in ("n0", "n1", "n2"):
        term = 3 if node == "n1" else 2
        lay_out(tmp_path / "orders" / f"dledger-{node}", [
            *sample(16), *(entry(at, b"%d" % at, term=term) for at in range(16, 20))])
    logs = open_logs(spark, str(tmp_path))
    (found,) = logs.ask("audit").collect()
    assert (found["finding"], found["node"], found["index"], found["term"], found["severity"]) == (
        "stale_suffix", "n1", 16, 3, "note")
    assert found["detail"] == "from entry 16 on it has term 3, most others have term 2"
    looked_at = {row["check"]: row["n"] for row in logs.ask("audit_checks").collect()}
    assert looked_at["frames held by more than one replica"] == 20
    assert looked_at["frames whose checksums and chain were verified"] == 0, "Java writes none"
    assert sorted((row["term"], row["entries"]) for row in logs.ask("leadership").collect()) == [
        (0, 8), (1, 8), (2, 4), (3, 4)]


@pytest.mark.java
@pytest.mark.slow
def test_a_directory_that_java_has_written(tmp_path: Path, spark: SparkSession) -> None:
    try:
        release = trio.run(fetch)
    except (JavaMissing, FetchFailed) as error:
        pytest.skip(f"not run: {error}")
    source = Path(__file__).parent / "WriteLog.java"
    classes, store, count = tmp_path / "classes", tmp_path / "store" / "g1", 3000
    subprocess.run(["javac", "-nowarn", "-proc:none", "-cp", f"{release.jars}/*", "-d", str(classes), str(source)],
                   check=True, timeout=120)
    with reserved() as port:
        done = subprocess.run(
            [release.java, "-Xmx128m", "-Ddledger.disk.ratio.clean=0.99", "-cp", f"{classes}:{release.jars}/*",
             "WriteLog", str(store), str(port), str(count)],
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert "term 0" in done.stdout, (done.stdout + done.stderr)[-3000:]
    expected = [(at, 0, f"entry {at} ".encode() + b"x" * (at % 97)) for at in range(count)]
    rows = read(store, payload="full")
    assert damage(rows) == [] and [(row["index"], row["term"], row["payload"]) for row in rows] == expected
    assert len({row["segment"] for row in rows}) > 3
    found = spark.read.format("raftlog").option("payload", "full").load(str(tmp_path / "store"))
    assert [(row["index"], row["term"], bytes(row["payload"])) for row in found.orderBy("index").collect()] == expected
    assert {(row["group"], row["node"]) for row in found.select("group", "node").distinct().collect()} == {("g1", "n0")}
