"""``mqcluster`` with real processes: up, kill, start, down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.ports import reserved
from mqcluster import cli
from mqcluster.looking import ClusterView, GroupView
from mqcluster.plan import DEFAULT_MODE, Durability, Kind, Planned, Size, cluster
from mqcluster.processes import FILE, Cluster, Server


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    cli.main(["down", "--dir", str(tmp_path)])


@pytest.mark.slow
def test_a_cluster_comes_up_loses_its_master_and_goes_down(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*line: str) -> str:
        assert cli.main([*line, "--dir", str(here)]) == cli.DONE, capsys.readouterr().err
        return capsys.readouterr().out

    with reserved(*range(50, 71)) as port:
        said = run("up", "--controllers", "1", "--groups", "1", "--replicas", "2", "--port", str(port))
    assert f"namesrvAddr = 127.0.0.1:{port}" in said
    [master] = re.findall(r"^(broker-a-\d) .* master, epoch 1$", said, re.MULTILINE)
    assert len(re.findall(r"slave, in sync$", said, re.MULTILINE)) == 1
    assert f"{master} (process" in run("kill", "broker-a")
    said = run("status")
    assert re.search(rf"^{master} .* down ", said, re.MULTILINE)
    run("start", master)
    run("up")  # all of it runs: it only waits until all are in sync again
    run("kill", "n0", "--signal", "STOP")
    run("down")
    assert not any(server.running for server in Cluster.load(here).servers.values())
    assert "down" in run("status")
    for name, words in (("broker-a", "broker-a: it has no leader"), ("broker-z", "no group broker-z; there are n"),
                        (master, f"{master} does not run")):
        assert cli.main(["kill", name, "--dir", str(here)]) == cli.FAILED
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(("line", "words"), [
    (["status"], "holds no cluster: `mqcluster up` makes one"),
    (["up", "--groups", "0"], "groups = 0: must be from 1 to 26"),
    (["kill", "n7"], "holds no cluster"),
])
def test_what_cannot_be_done_is_said(
    line: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([*line, "--dir", str(tmp_path)]) == cli.FAILED
    assert words in capsys.readouterr().err


def test_a_place_that_cannot_be_made_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for command in ("up", "status"):
        assert cli.main([command, "--dir", str(tmp_path / "file" / "cluster")]) == cli.FAILED
        assert f"mqcluster {command}: " in (said := capsys.readouterr().err) and str(tmp_path / "file") in said


def test_another_cluster_in_its_place_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def up(*line: str) -> str:
        assert cli.main(["up", *line, "--dir", str(tmp_path)]) == cli.FAILED
        return capsys.readouterr().err

    server = '{"name": "a", "kind": "BROKER", "address": "h:1", "group": ""}'
    for damaged in ('{"servers": [', "[]", '{"servers": 7, "processes": {}}', '{"servers": [], "processes": 7}',
                    f'{{"servers": [{server}], "processes": []}}',
                    f'{{"servers": [{server}], "processes": {{"a": {{"pid": 5, "other": 6}}}}}}'):
        (tmp_path / FILE).write_text(damaged)
        assert f"{tmp_path / FILE} cannot be read: " in up(), "and not that `mqcluster up` starts it again"
    Cluster.create(tmp_path, cluster(tmp_path, Size(groups=1), 20_000, DEFAULT_MODE))
    assert "holds another cluster already: `mqcluster up` without other options starts that one" in up("--groups", "3")
    assert "holds another cluster already" in up("--groups", "1", "--port", "20001")
    Cluster.create(tmp_path, cluster(tmp_path, Size(), cli.FIRST_PORT, Durability()))
    assert "holds another cluster already" in up("--fast"), "one that may lose messages is another one"
    assert "holds another cluster already" in up("--quick"), "one that notices silence sooner is another one"


def test_nobody_else_s_cluster_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the ports of a cluster that is down another one may run."""
    Cluster.create(tmp_path, cluster(tmp_path, Size(), 19_876, DEFAULT_MODE))

    async def foreign(*_: object) -> ClusterView:
        raise AssertionError("nobody is asked")

    monkeypatch.setattr(cli, "look", foreign)
    assert cli.main(["status", "--dir", str(tmp_path)]) == cli.DONE
    said = capsys.readouterr().out
    assert said.count(" down ") == 10 and "master" not in said and "active" not in said


@pytest.mark.parametrize(("alive", "in_sync", "role"), [
    ({"b:1"}, {"b:1"}, "slave, in sync"), ({"b:1"}, set(), "slave"), (set(), {"b:1"}, "not alive")])
def test_a_dead_member_is_not_shown_as_in_sync(alive: set[str], in_sync: set[str], role: str) -> None:
    """It stays in the SyncStateSet until its master takes it out, and where the whole group is down for ever."""
    view = ClusterView(groups={"g": GroupView("a:1", 1, frozenset(in_sync), frozenset(alive), {"a:1": 1, "b:1": 2})})
    assert cli._role(Server(Planned("g-1", Kind.BROKER, "b:1", {}, "g"), Path()), view) == role
