"""The how-tos on controllers, done as they say: their files are taken, their commands run, in the order of the page.

Against whole controllers on virtual time. The README's three steps, which begin the same, run as processes in
``test_readme``; ``test_operating`` restores the backup; a Java fleet moves in ``harness.scenarios.interop``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from broker.config import BrokerConfig
from broker.config import from_properties as broker_config
from controller.admin import cli as mqadmin
from controller.cli import main as mqcontroller
from controller.config import ControllerConfig, check, from_properties
from harness.simulation.worlds.controllers import CLUSTER, World, group_of, world
from raft.virtual.network import MemoryListener
from remoting import properties
from remoting.bodies.namesrv import BrokerData, ClusterInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.command import response
from remoting.daemon.keys import names
from remoting.server import Server

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
RUN = (HOW_TO / "run-a-controller-cluster.md").read_text()
MOVE = (HOW_TO / "move-from-a-java-controller.md").read_text()
HERE = {f"10.0.0.{number + 1}:9877": f"n{number}:1" for number in range(5)} | {
    "10.0.0.1:9876": "ns:1", "10.0.0.1:9878": "old:1", "DefaultCluster": CLUSTER}
"""What the pages call by addresses of machines."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)


def commands(page: str) -> Iterator[list[str]]:
    """Of blocks and of sentences, in their order."""
    for block, inline in re.findall(r"^ *((?:mqadmin|mqcontroller) .*)$|`(mqadmin [^`]* [^`]*)`", page, re.MULTILINE):
        line = block or inline
        for there, here in HERE.items():
            line = line.replace(there, here)
        yield shlex.split(line)


def given(block: str) -> dict[str, str]:
    return properties.parse(block)


class Guided:
    """Somebody at a terminal who does what the page says next."""

    def __init__(self, made: World, page: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.made, self._capsys = made, capsys
        self.left = list(commands(page))

    async def next(self, program: str, name: str) -> str:
        """Run the page's next command, which must be this one; what it prints."""
        command, *words = self.left.pop(0)
        assert (command, words[0]) == (program, name), "the page has another order"
        self._capsys.readouterr()
        assert await mqadmin.run(mqadmin.parser().parse_args(words), self.made.network.connector("admin")) == 0
        return self._capsys.readouterr().out

    def pass_over(self, count: int) -> None:
        assert all(command == "mqcontroller" for command, *_ in self.left[:count])
        del self.left[:count]


def name_server(made: World) -> None:
    listener = made.network.listeners["ns:1"] = MemoryListener()
    known = ClusterInfo({"broker-a": BrokerData("broker-a", CLUSTER, {0: "broker-a-1:1"})}, {CLUSTER: ["broker-a"]})
    made.nursery.start_soon(Server({
        RequestCode.GET_BROKER_CLUSTER_INFO: lambda _, command: response(command, body=known.to_json()),
    }).run, [listener])


async def test_running_a_controller_cluster(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with world(readmitWipedControllers="false") as made:
        page = Guided(made, RUN, capsys)
        await group_of(made, "broker-a", 3)
        name_server(made)
        page.pass_over(2)  # started, and what would be used; see below
        assert "#ControllerGroup\tg" in await page.next("mqadmin", "getControllerMetaData")
        said = await page.next("mqadmin", "explainController")
        assert said.count("All is well") == 3
        for _ in range(2):  # by the group's name, and all of a cluster
            assert "#MasterBrokerId\t1" in await page.next("mqadmin", "getSyncStateSet")
        assert "#BrokerMasterAddr\tbroker-a-2:1" in await page.next("mqadmin", "electMaster")
        said = await page.next("mqadmin", "updateControllerConfig")
        assert "success![n0:1, n1:1, n2:1]" in said
        await made.start("n3", controllerDLegerPeers="n0-n0:1;n1-n1:1;n2-n2:1;n3-n3:1")
        for members in ("n0 n1 n2 n3", "n0 n2 n3", "n0 n3 n4"):
            if members == "n0 n3 n4":
                await made.start("n4", controllerDLegerPeers="n0-n0:1;n2-n2:1;n3-n3:1;n4-n4:1")
            said = await page.next("mqadmin", "changeControllerGroup")
            assert re.findall(r"#Peer:\t(\w+):", said) == members.split()
        active = await made.active()
        wiped = next(name for name in ("n3", "n4") if name != active)
        await made.kill(wiped)
        made.wipe(wiped)
        again = await made.start(wiped)
        await trio.sleep(20)
        leader = made.running[await made.active()].core.node
        assert leader.status().strangers, "nobody took it in"
        await page.next("mqadmin", "changeControllerGroup")
        assert not leader.status().strangers and again.core.machine.named("broker-a")
        assert "#ControllerLeaderId\t" in await page.next("mqadmin", "getControllerMetaData")
        assert "All is well" in await page.next("mqadmin", "explainController")
        assert not page.left


def test_its_configuration_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, brokers, grown, tls = (given(block) for block in blocks(RUN, "properties"))
    check(from_properties(first))
    check(from_properties({**first, **grown}))
    check(from_properties({**first, **tls}))
    assert set(brokers) == {"enableControllerMode", "controllerAddr"} and broker_config(brokers) != BrokerConfig()
    (tmp_path / "controller.conf").write_text(blocks(RUN, "properties")[0])
    printed = next(command for command in commands(RUN) if "-p" in command)
    assert mqcontroller([str(tmp_path / word) if word.endswith(".conf") else word for word in printed[1:]]) == 0
    assert "controllerDLegerSelfId=n0\n" in capsys.readouterr().out


def test_every_key_it_names_is_one() -> None:
    """In sentences, ``key = value``; in the table of timeouts, which keys decide."""
    ours = {*names(ControllerConfig), *names(BrokerConfig)}
    sentences = set(re.findall(r"`([\w.]+) = [^`]*`", RUN))
    table = RUN.partition("## Timeouts and leases")[2].partition("\nShorten")[0]
    tabled = set(re.findall(r"`(\w+)`", table)) - {"broker"}
    assert len(sentences) >= 5 and len(tabled) == 5
    assert sentences | tabled <= ours, (sentences | tabled) - ours


async def test_moving_from_other_controllers(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    """From one that answers as Java's do; in ``harness.scenarios.interop`` they are Java's."""
    async with world(count=1) as made:
        ours = made.running.pop("n0")
        theirs = await made.start("old", controllerDLegerGroup="h", controllerDLegerPeers="old-old:1")
        master, slave = await group_of(made, "broker-a", 2)
        name_server(made)
        page = Guided(made, MOVE, capsys)
        said = await page.next("mqadmin", "importControllerMetaData")
        assert f"{CLUSTER}/broker-a would be imported: 2 brokers, next id 3, master 1, epoch 1" in said
        assert not ours.core.machine.named("broker-a")
        await slave.kill()
        assert (await master.alter({1}, 1, 2)).code == 0
        assert "#SyncStateSetNums\t1" in await page.next("mqadmin", "getSyncStateSet")
        assert f"{CLUSTER}/broker-a imported: 2 brokers" in await page.next("mqadmin", "importControllerMetaData")
        await master.kill()
        assert made.running.pop("old") is theirs
        made.running["n0"] = ours
        await master.come_back()
        assert (await master.register()).code == 0
        assert (await master.elect())[0] in (0, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        info = await made.wait_master("broker-a", 1)
        assert info.master_epoch
        await slave.come_back()
        assert (await slave.register()).code == 0
        (key,) = ours.core.machine.named("broker-a")
        group = ours.core.machine.group(key)
        assert group is not None and set(group.replicas) == {1, 2} and group.next_broker_id == 3
        assert (await master.alter({1, 2}, info.master_epoch, group.sync_state_set_epoch)).code == 0
        assert "#SyncStateSetNums\t2" in await page.next("mqadmin", "getSyncStateSet")
        assert not page.left
