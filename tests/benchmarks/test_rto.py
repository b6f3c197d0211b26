"""Times without an acknowledgement are read off acknowledgements, every side is planned alike, the page tells."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.rto import ACTS, bar, impossible, parser, sides
from benchmarks.rto_figures import CLIENTS, COLUMNS, FAULTS, cell, longest, merged, page, steady, summary, table
from benchmarks.rto_sides import GROUP, NAMES, Guarded, JavaServer, Side, Stand, planned, servers
from harness.nemesis.disks import Disk
from harness.nemesis.disks import Kind as DiskKind
from harness.nemesis.forwarding import Forwarders
from harness.processes.java import Release
from mqcluster.plan import Kind
from mqcluster.processes import Cluster, ClusterError, Server
from remoting import properties

RELEASE = Release("5.5.0", "/usr/bin/java", Path("/jars"), Path("/classes"))
HOSTS = Forwarders(NAMES, nursery=None)  # type: ignore[arg-type]


def test_a_pause_counts_that_ended_while_the_fault_was_held() -> None:
    acks = [0.0, 5.0, 10.0, 10.5, 13.5, 14.0, 30.0]
    assert longest(acks, 10.2, 14.2) == 3.0
    assert longest(acks, 9.0, 10.6) == 5.0, "from the last one before the fault"
    assert longest(acks, 10.0, 40.0) is None, "it lasts still"
    assert longest([], 0.0, 1.0) is None


def test_a_client_is_well_again_after_some_seconds_without_a_pause() -> None:
    quickly = [at / 10 for at in range(101)]
    assert steady(quickly, 10.0)
    assert steady(quickly, 10.9) and not steady(quickly, 11.2)
    assert not steady(quickly[:50] + quickly[95:], 10.0), "it was not acknowledged to for long enough yet"
    assert not steady([], 10.0)


def test_every_fault_of_the_page_can_be_played_and_the_other_way_round() -> None:
    assert list(ACTS) == list(FAULTS)
    assert COLUMNS.keys() == CLIENTS.keys()


def test_all_sides_are_measured_but_those_that_there_are_not() -> None:
    options = parser().parse_args([])
    assert [each.name for each in sides(options)] == [
        "ours, default", "ours, quick", "ours, guarded, default", "ours, guarded, quick", "java, default"]
    shown = {side for columns in COLUMNS.values() for side, _ in columns}
    assert {each.name for each in sides(options)} == shown - {"before"}
    chosen = parser().parse_args(["--sides", "guarded", "--profiles", "quick", "--faults", "stop,kill"])
    assert [each.name for each in sides(chosen)] == ["ours, guarded, quick"]
    assert chosen.faults == ["stop", "kill"]


def test_a_fault_that_there_is_not_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--faults", "stop,flood"])
    assert "there is no flood; there are kill, stop" in capsys.readouterr().err


def test_java_has_the_same_servers_at_the_same_addresses(tmp_path: Path) -> None:
    ours = planned(Side("ours", "default"), tmp_path, HOSTS)
    java = planned(Side("java", "default"), tmp_path, HOSTS)
    assert [(each.name, each.kind, each.address) for each in java] == [
        (each.name, each.kind, each.address) for each in ours]
    assert [each.name for each in java] == list(NAMES)
    for mine, theirs in zip(ours, java, strict=True):
        given = properties.parse(theirs.file)
        assert given["listenPort"] == str(mine.settings["listenPort"]) if mine.kind is Kind.BROKER else True
        if mine.kind is Kind.BROKER:
            for name in ("allAckInSyncStateSet", "minInSyncReplicas", "totalReplicas", "controllerAddr", "namesrvAddr"):
                assert given[name] == properties.parse(mine.file)[name], name


def test_a_profile_and_a_guardian_are_all_that_differs_between_ours(tmp_path: Path) -> None:
    ours = properties.parse(planned(Side("ours", "default"), tmp_path, HOSTS)[-1].file)
    for side, more in ((Side("ours", "quick"), {"detectionProfile": "quick"}),
                       (Side("ours", "default", True), {"enableGuardian": "true"})):
        assert properties.parse(planned(side, tmp_path, HOSTS)[-1].file) == {**ours, **more}


def test_each_side_has_its_own_kind_of_process(tmp_path: Path) -> None:
    guarded, java = Side("ours", "default", True), Side("java", "default")
    made = servers(guarded, planned(guarded, tmp_path, HOSTS), tmp_path, HOSTS, None)
    assert {name: type(each) for name, each in made.items() if name.startswith(GROUP)} == dict.fromkeys(
        NAMES[-3:], Guarded)
    assert type(made["n0"]) is Server
    with pytest.raises(ClusterError, match="its guardian has no broker at the moment"):
        made[NAMES[-1]].signal(9)  # type: ignore[arg-type]
    theirs = servers(java, planned(java, tmp_path, HOSTS), tmp_path, HOSTS, RELEASE)["broker-a-1"]
    assert isinstance(theirs, JavaServer)
    theirs.home.mkdir()
    assert "org.apache.rocketmq.broker.BrokerStartup" in theirs.command
    assert theirs.command[-2:] == ["-c", str(theirs.file)]
    assert "Leash" not in theirs.command, "nobody holds its input"


def test_what_a_machine_cannot_do_is_said(tmp_path: Path) -> None:
    def there(kind: DiskKind) -> Stand:
        disks = {"broker-a-0": Disk(tmp_path, kind)}
        return Stand(Side("ours", "default"), Cluster(tmp_path, {}), HOSTS, disks, None)  # type: ignore[arg-type]

    assert impossible(there(DiskKind.MEMORY), "disk-stalled") == f"here a disk is {DiskKind.MEMORY.value}"
    assert not impossible(there(DiskKind.MEMORY), "disk-full")
    assert impossible(there(DiskKind.DIRECTORY), "disk-full")
    assert not any(impossible(there(DiskKind.LOOP), fault) for fault in ACTS)
    assert "not measured: here a disk is" in cell(
        [{"side": "s", "fault": "f", "not_run": "here a disk is …"}], "s", "f", "ours")


def rounds(side: str, fault: str, *gaps: float | None) -> list[dict[str, object]]:
    return [{"side": side, "fault": fault, "day": "2026-01-02", "load": 0.5, "held_s": 45.0, "gaps_s": {"ours": gap}}
            for gap in gaps]


def test_a_cell_says_how_often_and_what_did_not_end() -> None:
    measured = rounds("ours, quick", "stop", 1.0, 3.0, 2.0)
    assert cell(measured, "ours, quick", "stop", "ours") == "2.0 / 3.0 (3)"
    assert cell([*measured, *rounds("ours, quick", "stop", None)], "ours, quick", "stop", "ours") == (
        "2.0 / 3.0 (4; 1 > 45)")
    assert cell(rounds("ours, quick", "stop", None, None), "ours, quick", "stop", "ours") == "> 45 (2)"
    assert cell(measured, "ours, quick", "stop", "java") == "–"
    many = rounds("ours, quick", "stop", *(Random(1).sample([float(at) for at in range(50)], 50)))
    assert cell(many, "ours, quick", "stop", "ours") == "25.0 / p99 49.0 / 49.0 (50)"


def test_what_is_measured_anew_takes_the_place_of_what_was() -> None:
    before = [*rounds("a", "stop", 1.0), *rounds("a", "kill", 2.0)]
    assert merged(before, rounds("a", "stop", 3.0), add=False) == [*rounds("a", "kill", 2.0), *rounds("a", "stop", 3.0)]
    assert merged(before, rounds("a", "stop", 3.0), add=True) == [*before, *rounds("a", "stop", 3.0)]


def test_the_page_has_a_row_for_each_fault_with_its_command() -> None:
    lines = list(page({"cpus": 2, "rounds": [*rounds("before", "stop", 12.1), *rounds("ours, quick", "stop", 2.5)]}))
    assert lines[0].startswith("2 rounds from 2026-01-02 to 2026-01-02 on 2 cores")
    assert "| fault | before, default | quick | command |" in lines
    assert f"| {FAULTS['stop']} | 12.1 / 12.1 (1) | 2.5 / 2.5 (1) | `--faults stop` |" in lines
    for fault in FAULTS:
        assert sum(f"`--faults {fault}`" in line for line in lines) == len(CLIENTS)
    assert len(list(table([], "ours", ["stop"]))) == 3


def test_the_first_page_has_the_rows_of_silence() -> None:
    lines = list(summary([*rounds("ours, quick", "stop", 2.5), *rounds("java, default", "stop", None)]))
    assert lines[0] == "| seconds without an acknowledgement | quick | Java 5.5.0 |"
    assert f"| {FAULTS['stop']} | 2.5 / 2.5 (1) | > 45 (1) |" in lines
    assert len(lines) == 6


def test_the_bar_says_how_far_it_is() -> None:
    assert bar(0, 40, 0.0, "ours: stop") == "[....................] 0 of 40 rounds; now ours: stop"
    assert bar(10, 40, 600.0, "ours: stop") == "[#####...............] 10 of 40 rounds, 30 min left; now ours: stop"
