"""A short campaign as a user runs it, in namespaces where this machine has them and with forwarders; and its parts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from random import Random

import pytest

from harness.histories.events import INVOKE, OK, Event
from harness.histories.jsonlines import line_of
from harness.nemesis import sandbox
from harness.nemesis.forwarding import Forwarders, forwarders
from harness.scenarios.failovers.__main__ import parser, played
from harness.scenarios.failovers.campaign import MODES, Run, differing, groups, names, planned
from harness.scenarios.failovers.recording import JudgedHistory
from mqcluster.processes import Cluster
from tests.campaigns import campaign

ROOT = Path(__file__).parents[4]


def play(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.scenarios.failovers", "--data", str(data), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as process:
        try:
            said, _ = process.communicate(timeout=480)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, said)


@pytest.mark.slow
@pytest.mark.parametrize("forwarding", [False, True])
def test_nothing_is_lost_in_a_short_campaign(forwarding: bool, tmp_path: Path) -> None:
    if not forwarding and (why := sandbox.impossible()):
        pytest.skip(f"not run: {why}")
    ran = play(tmp_path, "--failovers", "2", "--seconds", "20", "--mode", "safe", "--seed", "3",
               *(["--forwarders"] if forwarding else []))
    assert ran.returncode == 0, ran.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["network"] == ("Forwarders" if forwarding else "Namespaces")
    assert result["acknowledged"] > 100
    assert result["read"] > 100
    assert sum(result["faults"].values()) > 0
    assert "NOTHING ACKNOWLEDGED WAS LOST" in ran.stdout
    again = play(tmp_path, "--check", str(tmp_path / "history.jsonl"), "--mode", "safe")
    assert (again.returncode, "0 broken promises" in again.stdout) == (0, True), again.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "failovers"), [
    ("fill_masters_disk", 2),
    *campaign(("fill_masters_disk", 4), ("stall_masters_syncs", 4), ("stall_masters_disk", 4))])
def test_a_master_whose_disk_is_no_use_is_replaced(fault: str, failovers: int, tmp_path: Path) -> None:
    """In both kinds of mode. What is synced with each message, and an append that hangs, stop sends themselves."""
    if why := sandbox.impossible():
        pytest.skip(f"not run: {why}")
    ran = play(tmp_path, "--failovers", str(failovers), "--seconds", "90", "--mode", "synced", "--mode", "default",
               "--seed", "3", "--fault", fault, "--disk-bytes", str(256 << 20))
    if "which can stall" not in ran.stdout and fault != "fill_masters_disk":
        pytest.skip("not run: no disks here that stall")
    assert ran.returncode == 0, ran.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["failovers"] >= failovers, ran.stdout
    assert list(result["faults"]) == [fault]
    assert "NOTHING ACKNOWLEDGED WAS LOST" in ran.stdout


async def test_a_server_that_does_not_start_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modes = groups(["safe"])
    async with forwarders(names(modes)) as network:
        there = Cluster.create(tmp_path, planned(tmp_path, modes, network))
        for server in there.servers.values():
            server.prefix = ("false",)
        campaign = Run(there, network, {}, modes, Random(1), JudgedHistory(BytesIO()), print)
        assert not await played(campaign, parser().parse_args([]))
    assert "namesrv ended before it served" in capsys.readouterr().out


def test_a_history_with_a_loss_fails_where_that_is_promised(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(line_of(Event(number, kind, 0, f, "broker-a/0", value, number)) for number, (
        kind, f, value) in enumerate([(INVOKE, "send", "a"), (OK, "send", {"body": "a", "offset": 0}),
                                      (INVOKE, "read-all", None), (OK, "read-all", [])])))
    assert play(tmp_path, "--check", str(path), "--mode", "default").returncode == 0
    lost = play(tmp_path, "--check", str(path), "--mode", "safe")
    assert (lost.returncode, "broker-a: lost: a was acknowledged at broker-a/0, offset 0" in lost.stdout) == (
        1, True), lost.stdout
    path.write_text(path.read_text().replace("broker-a/0", "broker-z/0"))
    strange = play(tmp_path, "--check", str(path), "--mode", "safe")
    assert (strange.returncode, "has the groups broker-z, for which no --mode is named" in strange.stdout) == (1, True)


def test_a_history_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    missing = play(tmp_path, "--check", str(tmp_path / "none"))
    assert (missing.returncode, "cannot be read" in missing.stdout) == (1, True)


def test_every_server_is_planned_with_a_host_and_its_mode(tmp_path: Path) -> None:
    modes = groups(list(MODES))
    hosts = names(modes)
    network = Forwarders(hosts, nursery=None)  # type: ignore[arg-type]
    made = {each.name: each for each in planned(tmp_path, modes, network)}
    assert sorted(made) == sorted(hosts)
    for name, each in made.items():
        assert each.address.startswith(network.address(name) + ":")
        assert each.settings["bindAddress"] == network.bind(name)
    assert made["broker-b-0"].settings["flushDiskType"] == "SYNC_FLUSH"
    assert made["broker-d-0"].settings["allAckInSyncStateSet"] is False


def test_logs_that_differ_are_found_up_to_the_shortest(tmp_path: Path) -> None:
    for number, log in enumerate((b"same, and longer", b"same", b"some, not the same")):
        folder = tmp_path / f"broker-a-{number}" / "store" / "commitlog"
        folder.mkdir(parents=True)
        (folder / "00").write_bytes(log + bytes(16))
    assert differing(tmp_path, "broker-a") == ["broker-a-2 differs from broker-a-0 at byte 1 of 4"]
