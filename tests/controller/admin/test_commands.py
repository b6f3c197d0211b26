"""``mqadmin`` against whole controllers on virtual time, with a name server and a broker that answer from a script."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from controller.admin import cli
from controller.admin.cli import DONE, FAILED, USAGE, main, parser, run
from controller.admin.command import COMMANDS
from harness.simulation.worlds.controllers import CLUSTER, World, group_of, world
from raft.virtual.network import MemoryListener
from remoting.bodies.controller import EpochEntry, EpochEntryCache
from remoting.bodies.namesrv import BrokerData, ClusterInfo, KVTable, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.headers.controller import ApplyBrokerIdRequest, GetMetadataResponse
from remoting.server import Server


class Shop:
    """A controller cluster with a group ``a`` of two, and an ``mqadmin`` to ask it with."""

    def __init__(self, made: World, capsys: pytest.CaptureFixture[str]) -> None:
        self.made, self._capsys = made, capsys

    async def mqadmin(self, *arguments: str, code: int = DONE) -> str:
        options = parser().parse_args(arguments)
        assert await run(options, self.made.network.connector("admin")) == code
        out, err = self._capsys.readouterr()
        return out if code == DONE else err


@asynccontextmanager
async def shop(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shop]:
    async with world() as made:
        await group_of(made, "a", 2)
        listener = made.network.listeners["ns:1"] = MemoryListener()
        made.nursery.start_soon(Server({
            RequestCode.GET_BROKER_CLUSTER_INFO: _clusters, RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
        }).run, [listener])
        broker = made.network.listeners["b:1"] = MemoryListener()
        made.nursery.start_soon(Server({
            RequestCode.GET_BROKER_EPOCH_CACHE: _epochs, RequestCode.GET_BROKER_RUNTIME_INFO: _runtime,
        }).run, [broker])
        yield Shop(made, capsys)


def _clusters(_: Connection, command: Command) -> Command:
    groups = {"a": BrokerData("a", CLUSTER, {0: "b:1", 2: "gone:1"})}
    return response(command, body=ClusterInfo(groups, {CLUSTER: ["a"]}).to_json())


def _route(_: Connection, command: Command) -> Command:
    if command.ext["topic"] != "orders":
        return response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
    return response(command, body=TopicRouteData(
        [QueueData("a", 4, 8, 6)], [BrokerData("a", CLUSTER, {0: "b:1"})]).to_json())


def _epochs(_: Connection, command: Command) -> Command:
    return response(command, body=EpochEntryCache(
        CLUSTER, "a", 0, [EpochEntry(1, 0, 100), EpochEntry(2, 100)], 250).to_json())


def _runtime(_: Connection, command: Command) -> Command:
    return response(command, body=KVTable({
        "brokerVersionDesc": "V5_5_0", "putTps": "12.5 11 10", "brokerActive": "true",
        "msgPutTotalTodayNow": "30", "msgPutTotalTodayMorning": "10"}).to_json())


async def test_who_leads(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        active = await asked.made.active()
        follower = next(name for name in asked.made.names if name != active)
        said = await asked.mqadmin("getControllerMetaData", "-a", f"nowhere:1;{follower}:1")
        assert said.splitlines() == [
            "", "#ControllerGroup\tg", f"#ControllerLeaderId\t{active}", f"#ControllerLeaderAddress\t{active}:1",
            "#Peer:\tn0:n0:1", "#Peer:\tn1:n1:1", "#Peer:\tn2:n2:1"]
        data = json.loads(await asked.mqadmin("getControllerMetaData", "-a", f"{follower}:1", "--json"))
        assert data["leaderId"] == active


async def test_nobody_leads(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        for name in ("n0", "n1"):
            await asked.made.kill(name)
        while asked.made.running["n2"].core.node.leader is not None:
            await trio.sleep(0.1)
        said = await asked.mqadmin("getControllerMetaData", "-a", "n2:1")
        assert said.splitlines()[2:4] == ["#ControllerLeaderId\tnull", "#ControllerLeaderAddress\tnull"]
        err = await asked.mqadmin("getSyncStateSet", "-a", "n2:1", "-b", "a", code=FAILED)
        assert "no active controller" in err


async def test_who_is_cut_off_does_not_hide_who_leads(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    def alone(_: Connection, command: Command) -> Command:
        return response(command, header=GetMetadataResponse("g", None, None, False, "n9:n9:1;"))

    async with shop(capsys) as asked:
        listener = asked.made.network.listeners["n9:1"] = MemoryListener()
        asked.made.nursery.start_soon(
            Server({RequestCode.CONTROLLER_GET_METADATA_INFO: alone}).run, [listener])
        sync = "getSyncStateSet", "-b", "a", "-a"
        assert "#MasterAddr\ta-1:1" in await asked.mqadmin(*sync, "nowhere:1;n9:1;n0:1")
        err = await asked.mqadmin(*sync, "nowhere:1;n9:1", code=FAILED)
        assert "from n9:1: no active controller" in err


async def test_who_is_in_sync(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("getSyncStateSet", "-a", "n0:1", "-b", "a")
        assert said.splitlines() == [
            "", "#brokerName\ta", "#MasterBrokerId\t1", "#MasterAddr\ta-1:1", "#MasterEpoch\t1",
            "#SyncStateSetEpoch\t2", "#SyncStateSetNums\t2",
            "", "InSyncReplica:\tReplicaIdentity{brokerName='a', brokerId=1, brokerAddress='a-1:1', alive=true}",
            "", "InSyncReplica:\tReplicaIdentity{brokerName='a', brokerId=2, brokerAddress='a-2:1', alive=true}"]
        by_cluster = await asked.mqadmin("getSyncStateSet", "-a", "n0:1", "-c", CLUSTER, "-n", "ns:1")
        assert by_cluster == said
        err = await asked.mqadmin("getSyncStateSet", "-a", "n0:1", "-c", CLUSTER, code=FAILED)
        assert "-n is needed" in err


async def test_groups_of_one_name_in_two_clusters(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        await asked.made.ask_active(
            RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest("other", "a", 1, "elsewhere:1;1"))
        err = await asked.mqadmin("getSyncStateSet", "-a", "n0:1", "-b", "a", code=FAILED)
        assert "clusters c, other" in err
        said = await asked.mqadmin("getSyncStateSet", "-a", "n0:1", "-c", CLUSTER, "-n", "ns:1")
        assert "#MasterAddr\ta-1:1" in said and "elsewhere" not in said
        importing = "importControllerMetaData", "-f", "n0:1", "-a", "n1:1", "-b", "a", "--dry-run", "--cluster-of"
        assert "other/a would be imported: 1 brokers" in await asked.mqadmin(*importing, "other")
        err = await asked.mqadmin(*importing, "none", code=FAILED)
        assert "no broker group a" in err


async def test_elect_and_clean(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("electMaster", "-a", "n0:1", "-c", CLUSTER, "-bn", "a", "-b", "2")
        assert said.splitlines() == [
            "", f"#ClusterName\t{CLUSTER}", "#BrokerName\ta", "#BrokerMasterAddr\ta-2:1", "#MasterEpoch\t2",
            "#SyncStateSetEpoch\t3", "\t#Broker\t1\ta-1:1", "\t#Broker\t2\ta-2:1"]
        err = await asked.mqadmin("electMaster", "-a", "n0:1", "-c", CLUSTER, "-bn", "a", "-b", "2", code=FAILED)
        assert "2011" in err
        clean = "cleanBrokerMetadata", "-a", "n0:1", "-bn", "a"
        err = await asked.mqadmin(*clean, "-c", CLUSTER, "-b", "1", code=FAILED)
        assert "2009" in err and "alive" in err
        err = await asked.mqadmin(*clean, "-b", "1", code=FAILED)
        assert "-c is needed" in err
        err = await asked.mqadmin(*clean, "-c", CLUSTER, "-b", "x", code=FAILED)
        assert "'x' is no broker id" in err
        said = await asked.mqadmin(*clean, "-c", CLUSTER, "-b", "1", "-l")
        assert said == "clear broker a metadata from controller success!\n", "scripts compare it with Java's"
        assert "brokerId=1," not in await asked.mqadmin("getSyncStateSet", "-a", "n0:1", "-b", "a")


async def test_configuration(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin(
            "updateControllerConfig", "-a", "n0:1;n1:1", "-k", "notifyBrokerRoleChanged", "-v", "false")
        assert said.splitlines() == [
            "update controller config success![n0:1, n1:1]", "notifyBrokerRoleChanged : false"]
        data = json.loads(await asked.mqadmin("getControllerConfig", "-a", "n0:1;n2:1", "--json"))
        assert data["n0:1"]["notifyBrokerRoleChanged"] == "false"
        assert data["n2:1"]["notifyBrokerRoleChanged"] == "true"
        err = await asked.mqadmin(
            "updateControllerConfig", "-a", "n0:1", "-k", "configStorePath", "-v", "/x", code=FAILED)
        assert "black list" in err


async def test_groups_move_to_other_controllers(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides speak the same protocol, so one cluster can be both: what is there already is not changed."""
    async with shop(capsys) as asked:
        said = await asked.mqadmin("importControllerMetaData", "-f", "n0:1", "-a", "n1:1", "-c", CLUSTER, "-n", "ns:1",
                                   "--dry-run")
        assert said.splitlines() == ["c/a would be imported: 2 brokers, next id 3, master 1, epoch 1"]
        said = await asked.mqadmin("importControllerMetaData", "-f", "n0:1", "-a", "n1:1", "-c", CLUSTER, "-n", "ns:1")
        assert "c/a imported: 2 brokers" in said
        err = await asked.mqadmin("importControllerMetaData", "-f", "n0:1", "-a", "n1:1", "-b", "none", code=FAILED)
        assert "no broker group none" in err


async def test_the_controllers_themselves(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("changeControllerGroup", "-a", "n0:1", "--remove", "n2")
        assert said.splitlines() == ["#Peer:\tn0:n0:1", "#Peer:\tn1:n1:1"]
        err = await asked.mqadmin("changeControllerGroup", "-a", "n0:1", "--add", "nonsense", code=FAILED)
        assert "nonsense" in err
        assert "n1:1" in await asked.mqadmin("explainController", "-a", "n0:1;n1:1")


async def test_a_dead_controller_does_not_hide_what_the_living_say(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        said = (await asked.mqadmin("explainController", "-a", "dead:1;n0:1")).splitlines()
        at = said.index("============n0:1============")
        assert said[0] == "============dead:1============" and said[1].startswith("no answer: ") and said[at + 1:]
        found = json.loads(await asked.mqadmin("explainController", "-a", "n0:1;dead:1", "--json"))
        assert "dead:1" in found["dead:1"][0] and not found["n0:1"][0].startswith("no answer")
        assert "dead:1" in await asked.mqadmin("explainController", "-a", "dead:1;dead:2", code=FAILED)


async def test_a_new_controller_that_does_not_come_is_said_so(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    """Not that there was no answer: the change goes on for as long as it is waited for."""
    async with shop(capsys) as asked:
        err = await asked.mqadmin("changeControllerGroup", "-a", "n0:1", "--add", "n9-n9:1", code=FAILED)
        assert "n9" in err and "did not answer" not in err
        said = await asked.mqadmin("changeControllerGroup", "-a", "n0:1", "--remove", "n9")
        assert said.splitlines() == ["#Peer:\tn0:n0:1", "#Peer:\tn1:n1:1", "#Peer:\tn2:n2:1"]


@pytest.mark.parametrize(("line", "code"), [
    ("electMaster -a x:1 -c c -bn b -b 1", FAILED), ("getSyncStateSet -a x:1 -b b -i 1", DONE)])
def test_what_was_interrupted_is_not_done(line: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object) -> int:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(60)
        return DONE

    monkeypatch.setattr(cli, "_once", interrupted)
    assert main(line.split()) == code


@pytest.mark.parametrize("command", [
    ("getControllerMetaData",), ("getControllerConfig",), ("updateControllerConfig", "-k", "a", "-v", "b"),
    ("explainController",), ("getSyncStateSet", "-b", "a"), ("importControllerMetaData", "-b", "a", "-f", "n0:1"),
    ("importControllerMetaData", "-b", "a", "-a", "n0:1", "-f"),
])
def test_no_address_is_wrong_usage_and_nothing_done(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, *(() if command[-1] == "-f" else ("-a",)), " ; "])
    assert ended.value.code == USAGE
    assert "names no address" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "soon"])
def test_an_interval_is_a_time(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["clusterList", f"-i={seconds}"])
    assert ended.value.code == USAGE
    assert "interval" in capsys.readouterr().err


async def test_brokers_and_topics(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        data = json.loads(await asked.mqadmin("clusterList", "-n", "ns:1", "--json"))
        assert [(row["brokerId"], row["address"]) for row in data] == [(0, "b:1"), (2, "gone:1")]
        assert "unreachable" in data[1]["stats"]
        lines = (await asked.mqadmin("clusterList", "-n", "ns:1")).splitlines()
        assert "V5_5_0" in lines[1] and "12.50(0,0ms)" in lines[1] and "UNREACHABLE" in lines[2]
        assert (await asked.mqadmin("clusterList", "-n", "ns:1", "-m")).splitlines()[1].split()[-2] == "20"
        assert json.loads(await asked.mqadmin("topicRoute", "-n", "ns:1", "-t", "orders"))["queueDatas"][0]["perm"] == 6
        assert "Total:" in await asked.mqadmin("topicRoute", "-n", "ns:1", "-t", "orders", "-l")
        assert "17" in await asked.mqadmin("topicRoute", "-n", "ns:1", "-t", "none", code=FAILED)
        err = await asked.mqadmin("getBrokerEpoch", "-n", "ns:1", "-b", "a", code=FAILED)
        assert "gone:1" in err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main(["help", name])
        assert ended.value.code == 0
        assert name in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    assert ended.value.code == 0
    assert "getSyncStateSet" in capsys.readouterr().out
