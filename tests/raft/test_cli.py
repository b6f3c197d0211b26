"""``raftctl``: what it prints, what it asks for, and its exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from raft import cli
from raft.cli import DONE, FAILED, UNKNOWN, USAGE, make_parser, plan_membership, status_table
from raft.client import connect
from raft.command import INTERRUPTED
from raft.errors import NotLeader, Rejected, RejectReason, Unknown, UsageError
from raft.membership import Member, Membership
from tests.raft.served import FakeNode, Network, faulted
from tests.raft.statuses import make_status


async def run(nodes: dict[str, FakeNode | None], monkeypatch: pytest.MonkeyPatch, *line: str) -> int:
    """The command against nodes on memory streams; all of them are its ``--addresses``."""
    async with trio.open_nursery() as nursery:
        net = Network(nursery, nodes)

        def connect_here(*args: Any, **kwargs: Any) -> Any:
            return connect(*args, **kwargs, dial=net.dial)

        monkeypatch.setattr(cli, "connect", connect_here)
        code = await cli._run(make_parser().parse_args(["--addresses", ",".join(nodes), "--timeout-ms", "300", *line]))
        nursery.cancel_scope.cancel()
    return code


async def test_status_prints_a_line_per_node(monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"a:1": FakeNode(), "b:1": FakeNode(node_id="n1", is_leader=False)}
    assert await run({**nodes}, monkeypatch, "status") == DONE
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == list(cli.COLUMNS)
    assert first.split() == ["a:1", "n0", "leader", "7", "n0", "100", "100", "100", "100", "-"]
    assert second.split()[:3] == ["b:1", "n1", "follower"]


async def test_a_node_that_does_not_answer_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes: dict[str, FakeNode | None] = {"a:1": FakeNode(), "b:1": None}
    assert await run(nodes, monkeypatch, "status") == FAILED
    assert "no answer" in capsys.readouterr().out.splitlines()[2]
    assert await run(nodes, monkeypatch, "--json", "status") == FAILED
    found = json.loads(capsys.readouterr().out)
    assert found["a:1"]["commit_index"] == 100
    assert "nobody listens" in found["b:1"]["error"]
    assert await run(nodes, monkeypatch, "status", "a:1") == DONE


async def test_explain_prints_sentences(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    nodes: dict[str, FakeNode | None] = {"a:1": FakeNode(), "b:1": None}
    assert await run(nodes, monkeypatch, "explain") == FAILED
    out = capsys.readouterr().out
    assert "a:1:\n  All is well with n0." in out
    assert "b:1:\n  No answer:" in out
    assert await run(nodes, monkeypatch, "--json", "explain", "a:1") == DONE
    assert json.loads(capsys.readouterr().out)["a:1"][0][0] == "healthy"


async def test_transfer_and_snapshot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    node = FakeNode()
    assert await run({"a:1": node}, monkeypatch, "transfer", "n2") == DONE
    assert node.seen == [("transfer", "n2")]
    assert capsys.readouterr().out == "n2 leads.\n"
    assert await run({"a:1": node}, monkeypatch, "--json", "snapshot") == DONE
    assert json.loads(capsys.readouterr().out) == {"index": 77}


async def test_reconfigure_asks_for_the_leaders_membership_with_the_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = FakeNode()
    assert await run({"a:1": node}, monkeypatch, "reconfigure", "--dry-run", "--remove", "n2") == DONE
    assert node.seen == []
    assert capsys.readouterr().out == "Would ask for voters n0, n1.\n"
    assert await run({"a:1": node}, monkeypatch, "reconfigure", "--add-learner", "n3=h3:7", "--priority",
                     "n0=2") == DONE
    assert node.seen == [(
        "reconfigure", {"n0": "h0:7000", "n1": "h1:7000", "n2": "h2:7000"}, {"n3": "h3:7"},
        {"n0": 2, "n1": 0, "n2": 0})]
    assert capsys.readouterr().out == "The group has voters n0, n1, n2 and learners n3.\n"


@pytest.mark.parametrize(("error", "code"), [
    (Rejected(RejectReason.NO_SUCH_MEMBER, "n9"), FAILED), (Unknown(detail="gone"), UNKNOWN),
    (NotLeader(None, None), FAILED)], ids=str)
async def test_exit_codes(
    error: Rejected | Unknown | NotLeader, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await run({"a:1": FakeNode(refusal=error)}, monkeypatch, "transfer", "n9") == code
    assert capsys.readouterr().err == f"raftctl: {error}\n"


async def test_a_faulted_node_is_seen_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = FakeNode()
    faulted(node)
    assert await run({"a:1": node}, monkeypatch, "snapshot") == FAILED
    assert "ValueError" in capsys.readouterr().err


@pytest.mark.parametrize(("line", "words"), [
    ([], "say where the group is"), (["--addresses", "nowhere"], "must be host:port"),
    (["--addresses", "a:1", "--tls-cert", "x"], "belong together"),
    (["--addresses", "a:1", "--tls-ca", "/nowhere"], "/nowhere"),
])
async def test_wrong_usage_has_a_code_of_its_own(
    line: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(cli.ADDRESSES_VARIABLE, raising=False)
    assert await cli._run(make_parser().parse_args([*line, "status"])) == USAGE
    assert words in capsys.readouterr().err


def test_addresses_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cli.ADDRESSES_VARIABLE, "a:1,b:1")
    assert make_parser().parse_args(["status"]).addresses == "a:1,b:1"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        make_parser().parse_args(["--help"])
    out = capsys.readouterr().out
    assert all(word in out for word in ("status", "explain", "transfer", "reconfigure", "snapshot", "Exit codes"))


def test_the_table_names_trouble_and_learners() -> None:
    membership = Membership(("n0",), learners=("n1",))
    lines = status_table({
        "a:1": make_status(storage="full").as_dict(),
        "b:1": make_status(node_id="n1", membership=membership, faulted="it raised").as_dict()})
    assert lines[1].endswith("disk full")
    assert "learner" in lines[2]
    assert lines[2].endswith("it raised")


MEMBERS = make_status(membership=Membership(("n0", "n1"), learners=("n2",), members={
    "n0": Member("a:1"), "n1": Member("b:1", priority=4), "n2": Member("c:1")})).as_dict()["membership"]


@pytest.mark.parametrize(("change", "voters", "learners"), [
    ({}, {"n0": "a:1", "n1": "b:1"}, {"n2": "c:1"}),
    ({"add": ["n3=d:1"]}, {"n0": "a:1", "n1": "b:1", "n3": "d:1"}, {"n2": "c:1"}),
    ({"add": ["n2"]}, {"n0": "a:1", "n1": "b:1", "n2": "c:1"}, {}),
    ({"add_learner": ["n1"]}, {"n0": "a:1"}, {"n1": "b:1", "n2": "c:1"}),
    ({"remove": ["n1", "n2"]}, {"n0": "a:1"}, {}),
    ({"add": ["n1=new:9"]}, {"n0": "a:1", "n1": "new:9"}, {"n2": "c:1"}),
    ({"voters": "n2,n3=d:1"}, {"n2": "c:1", "n3": "d:1"}, {}),
    ({"voters": "n0", "learners": "n1"}, {"n0": "a:1"}, {"n1": "b:1"}),
    ({"learners": ""}, {"n0": "a:1", "n1": "b:1"}, {}),
], ids=str)
def test_a_plan_is_the_membership_with_the_change(
    change: dict[str, Any], voters: dict[str, str], learners: dict[str, str]
) -> None:
    assert plan_membership(MEMBERS, **change) == (voters, learners, None)


def test_priorities_are_kept_for_those_who_stay() -> None:
    *_, priorities = plan_membership(MEMBERS, remove=["n2"], priority=["n0=-1"])
    assert priorities == {"n0": -1, "n1": 4}


@pytest.mark.parametrize("change", [
    {"add": ["n3"]}, {"add": ["=a:1"]}, {"remove": ["n9"]}, {"voters": "n0", "learners": "n0"}, {"priority": ["n9=1"]},
    {"priority": ["n0=high"]}], ids=str)
def test_an_unclear_plan_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan_membership(MEMBERS, **change)


def shell(line: str) -> tuple[int, str]:
    """Exit code and what went to stderr."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


RAFTCTL = f"{sys.executable} -m raft.cli --addresses 127.0.0.1:1 --timeout-ms"


def test_nobody_has_to_read_what_it_prints() -> None:
    assert shell(f"{RAFTCTL} 100 status | true; exit ${{PIPESTATUS[0]}}") == (FAILED, "")
    assert shell(f"{RAFTCTL} 100 --json explain | true; exit ${{PIPESTATUS[0]}}") == (FAILED, "")


@pytest.mark.parametrize(("command", "code", "words"), [
    ("status", INTERRUPTED, "raftctl: interrupted\n"),
    ("transfer", UNKNOWN, "raftctl: interrupted; it may have happened, or may still\n")])
def test_an_interrupt_is_said_in_words(
    command: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    @asynccontextmanager
    async def connect_and_interrupt(*_: object, **__: object) -> AsyncIterator[object]:
        async with trio.open_nursery():
            signal.raise_signal(signal.SIGINT)
            await trio.sleep(60)
        yield None

    monkeypatch.setattr(cli, "connect", connect_and_interrupt)
    assert cli.main(["--addresses", "127.0.0.1:1", command]) == code
    assert capsys.readouterr().err == words


async def test_a_group_that_is_no_text_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run({"a:1": FakeNode()}, monkeypatch, "--group", "\udcff", "status") == USAGE
