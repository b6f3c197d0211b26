"""Real processes: a container with its brokers, which are added, removed and killed, and so is the container."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from broker.client import connect
from broker.container.records import Record, file_name
from controller.admin.cli import parser as mqadmin
from controller.admin.cli import run as run_mqadmin
from harness.processes import ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle
from harness.processes.ours import HOST
from harness.processes.ports import reserved
from harness.simulation.worlds.sending import SendMessageRequest
from mqcluster.plan import ROOM
from remoting import properties
from remoting.bodies.namesrv import KVTable
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.daemon.child import child
from remoting.daemon.identity import born
from remoting.errors import RemotingError
from remoting.headers.broker import AddBrokerRequest, RemoveBrokerRequest
from remoting.headers.pulling import PullMessageRequest
from remoting.record import Record as StoredRecord
from remoting.record import decode_all, decode_properties
from tests.broker.pop.test_acting_killed import shows
from tests.broker.waiting import PATIENCE_S, SMALL, create, now_ms, runtime

pytestmark = pytest.mark.slow


@attrs.define(eq=False)
class Place:
    here: Path
    process: Handle
    client: Client
    ports: dict[str, int]

    @property
    def address(self) -> str:
        return self.process.address

    def file(self, name: str, **keys: object) -> Path:
        """Of the broker that listens at its port."""
        path = self.here / f"{name}.conf"
        path.write_text(properties.encode({
            "brokerName": name, "listenPort": str(self.ports[name]), "brokerIP1": HOST, "bindAddress": HOST,
            "storePathRootDir": str(self.here / "stores" / name), "maxHashSlotNum": "1000", "maxIndexNum": "4000",
            **{key: str(value) for key, value in {**ROOM, **keys}.items()}}))
        return path

    def record(self, name: str, broker_id: int = 0) -> Path:
        return self.here / "kept" / "processes" / file_name(f"DefaultCluster_{name}_{broker_id}")

    def pid(self, name: str) -> int:
        return Record.from_json(self.record(name).read_bytes()).pid

    async def ask(self, code: int, ext: dict[str, str] | None = None, *, of: str = "") -> Command:
        address = f"{HOST}:{self.ports[of]}" if of else self.address
        return await self.client.call(address, attrs.evolve(request(code), ext=ext or {}), 30_000)

    async def add(self, path: object) -> tuple[int, str | None]:
        answer = await self.ask(RequestCode.ADD_BROKER, AddBrokerRequest(str(path)).to_ext())
        return answer.code, answer.remark

    async def remove(self, name: str) -> tuple[int, str | None]:
        answer = await self.ask(
            RequestCode.REMOVE_BROKER, RemoveBrokerRequest("DefaultCluster", name, 0).to_ext())
        return answer.code, answer.remark

    async def brokers(self) -> dict[str, str]:
        answer = await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return {name.split("_")[1]: state for name, state in KVTable.from_json(answer.body).table.items()}

    async def told(self, of: str, name: str) -> str | None:
        answer = await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO, of=of)
        return KVTable.from_json(answer.body).table.get(name)

    async def records(self, of: str, topic: str, queue: int) -> list[StoredRecord]:
        answer = await self.client.call(f"{HOST}:{self.ports[of]}", request(
            RequestCode.PULL_MESSAGE, PullMessageRequest("G", topic, queue, 0, 32, 4, subscription="*")), 30_000)
        return decode_all(answer.body) if answer.code == ResponseCode.SUCCESS else []

    async def until_serving(self, *names: str) -> None:
        """And each says its own name at its port."""
        with trio.fail_after(60):
            while True:
                found = await self.brokers()
                if found.keys() == set(names) and all(state.startswith("serves") for state in found.values()):
                    break
                await trio.sleep(0.02)
            for name in names:
                await self.until_answers(name)

    async def until_answers(self, name: str) -> None:
        while True:
            try:
                answer = await self.ask(RequestCode.GET_BROKER_CONFIG, of=name)
            except RemotingError:
                await trio.sleep(0.02)
                continue
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # the guardian, in its place
                await trio.sleep(0.02)
                continue
            assert properties.parse(answer.body.decode())["brokerName"] == name
            return


@asynccontextmanager
async def place(here: Path, listed: str, **keys: object) -> AsyncGenerator[Place, None]:
    async with AsyncExitStack() as stack:
        ports = {name: stack.enter_context(reserved(FAST_PORT, HA_PORT)) for name in "abc"}
        port = stack.enter_context(reserved(FAST_PORT))
        client = await stack.enter_async_context(open_client())
        file = here / "container.conf"
        made = Place(here, Handle("container", here, [*child("broker.container.cli"), "-c", str(file)],
                                  f"{HOST}:{port}", "container boot success"), client, ports)
        paths = ":".join(str(made.file(name, **keys)) for name in listed)
        file.write_text(f"bindAddress={HOST}\nlistenPort={port}\nbrokerConfigPaths={paths}\n"
                        f"containerStorePath={here / 'kept'}\n")
        try:
            await made.process.start()
            yield made
        finally:
            await made.process.kill()
            for each in (here / "kept" / "processes").glob("*.json"):
                record = Record.from_json(each.read_bytes())
                if born(record.pid) == record.born:
                    os.kill(record.pid, signal.SIGKILL)


def each_has_a_log(folder: Path) -> None:
    """Check that each broker's log speaks of that broker alone."""
    logs = {path.name: path / "broker.log" for path in folder.iterdir()}
    assert logs.keys() == {f"DefaultCluster_{name}_0" for name in "abc"}
    for name in "abc":
        said = logs[f"DefaultCluster_{name}_0"].read_text()
        assert f"The broker[{name}, " in said and not re.search(rf"The broker\[[^{name}]", said), "its own alone"


async def test_brokers_come_and_go_and_outlive_their_container(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(tmp_path, "ab") as w:
        await w.until_serving("a", "b")
        assert "Broker [a-0] boot success. serializeType=JSON" in w.process.printed()

        # One more, by the tool; then what is refused.
        assert await run_mqadmin(mqadmin().parse_args(["addBroker", "-c", w.address, "-b", str(w.file("c"))])) == 0
        assert capsys.readouterr().out == f"add broker to {w.address} success\n"
        await w.until_serving("a", "b", "c")
        assert await w.add("") == (ResponseCode.SYSTEM_ERROR, "addBroker config path is empty")
        assert await w.add(tmp_path / "c.conf") == (
            ResponseCode.SYSTEM_ERROR, "DefaultCluster_c_0 has already been added to current broker container")
        code, said = await w.add(tmp_path / "nothing.conf")
        assert code == ResponseCode.SYSTEM_ERROR and said is not None and said.startswith("addBroker properties empty")

        # One is killed: another process takes its place.
        first = w.pid("a")
        os.kill(first, signal.SIGKILL)
        with trio.fail_after(60):
            while not (await w.brokers())["a"].endswith(f"starts 2, listenPort {w.ports['a']}, file {tmp_path}/a.conf"):
                await trio.sleep(0.02)
        await w.until_serving("a", "b", "c")
        assert w.pid("a") != first

        # The container is killed: brokers run on, and the next one finds them. One has ended; its number means another.
        before = {name: w.pid(name) for name in "abc"}
        await w.process.kill()
        for name in "abc":
            await w.until_answers(name)
        os.kill(before["b"], signal.SIGKILL)
        stale = Record.from_json(w.record("b").read_bytes())
        w.record("b").write_bytes(attrs.evolve(stale, pid=os.getpid()).to_json())
        await w.process.start()
        await w.until_serving("a", "b", "c")
        after = {name: w.pid(name) for name in "abc"}
        assert (after["a"], after["c"]) == (before["a"], before["c"])
        assert after["b"] not in (before["b"], os.getpid())
        # An adopted one is guarded as before.
        os.kill(after["c"], signal.SIGKILL)
        with trio.fail_after(60):
            while w.pid("c") == after["c"]:
                await trio.sleep(0.02)
        await w.until_serving("a", "b", "c")

        # One less, now and at the next start.
        which = "DefaultCluster:b:0"
        assert await run_mqadmin(mqadmin().parse_args(["removeBroker", "-c", w.address, "-b", which])) == 0
        assert (capsys.readouterr().out, born(after["b"])) == (f"remove broker from {w.address} success\n", "")
        assert await w.remove("b") == (ResponseCode.BROKER_NOT_EXIST, "Broker not exist")
        assert json.loads((tmp_path / "kept" / "brokers.json").read_text()) == {
            "added": [str(tmp_path / "c.conf")], "removed": [str(tmp_path / "b.conf")]}
        await w.process.stop(timeout_s=60)
        assert not list((tmp_path / "kept" / "processes").iterdir()), "each ended in order"
        each_has_a_log(tmp_path / "kept" / "logs")
        await w.process.start()
        await w.until_serving("a", "c")
        await w.process.stop(timeout_s=60)


async def test_its_keys_change_while_it_runs_and_its_list_at_its_next_start(tmp_path: Path) -> None:
    async with place(tmp_path, "ab") as w:
        await w.until_serving("a", "b")

        async def told(code: int, body: bytes = b"", at: str = "") -> Command:
            return await w.client.call(at or w.address, request(code, None, body), 30_000)

        async def changed(body: bytes, at: str = "") -> int:
            return (await told(RequestCode.UPDATE_BROKER_CONFIG, body, at)).code

        assert await changed(b"namesrvAddr=10.0.0.9:9876") == ResponseCode.SUCCESS
        assert properties.parse((await told(RequestCode.GET_BROKER_CONFIG)).body.decode())[
            "namesrvAddr"] == "10.0.0.9:9876"
        assert await changed(b"brokerConfigPaths=/nowhere.conf") == ResponseCode.NO_PERMISSION
        assert await changed(b"brokerNames=x") == ResponseCode.SYSTEM_ERROR
        assert (await told(RequestCode.SEND_MESSAGE_V2)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert await changed(b"flushIntervalCommitLog=700", f"{HOST}:{w.ports['a']}") == ResponseCode.SUCCESS
        assert properties.parse((tmp_path / "a.conf").read_text())["flushIntervalCommitLog"] == "700"

        # At the next start one is listed no more, and one cannot be read.
        before = {name: w.pid(name) for name in "ab"}
        await w.process.kill()
        file = tmp_path / "container.conf"
        keys = properties.parse(file.read_text())
        assert keys["namesrvAddr"] == "10.0.0.9:9876"
        file.write_text(properties.encode({**keys, "brokerConfigPaths": f"{tmp_path}/nothing.conf:{tmp_path}/a.conf"}))
        await w.process.start()
        await w.until_serving("a")
        assert w.pid("a") == before["a"]
        with trio.fail_after(60):
            while born(before["b"]):  # it ends in order, which takes its time
                await trio.sleep(0.1)
        with trio.fail_after(10):
            while w.record("b").exists():
                await trio.sleep(0.02)
        assert w.record("a").exists()
        assert "a broker cannot be started; the others are" in w.process.printed()
        await w.process.stop(timeout_s=60)


async def test_one_that_cannot_run_is_said_and_takes_nobody_along(tmp_path: Path) -> None:
    async with place(tmp_path, "ab") as w:
        await w.until_serving("a", "b")
        (tmp_path / "file").write_text("")
        code, said = await w.add(w.file("c", storePathRootDir=tmp_path / "file" / "below"))
        assert code == ResponseCode.SYSTEM_ERROR
        assert said is not None and said.startswith("start broker failed: mqbroker: ") and "file" in said
        assert set(await w.brokers()) == {"a", "b"}
        assert await w.add(w.file("c")) == (ResponseCode.SUCCESS, None)
        await w.until_serving("a", "b", "c")
        await w.process.stop(timeout_s=60)


async def test_the_container_is_the_guardian_of_brokers_under_controllers(tmp_path: Path) -> None:
    """It holds their ports, gives them on to each process, and opens them again where it was killed meanwhile."""
    async with ours.controllers(tmp_path / "controllers", 1) as controllers, place(
            tmp_path, "a", enableControllerMode="true", controllerAddr=controllers[0].address) as w:
        await w.until_serving("a")
        for killed_container in (False, True):
            first = w.pid("a")
            if killed_container:
                await w.process.kill()
                await w.until_answers("a")
                await w.process.start()
                await w.until_serving("a")
                assert w.pid("a") == first
            os.kill(first, signal.SIGKILL)
            with trio.fail_after(60):
                while w.pid("a") == first:
                    await trio.sleep(0.02)
            await w.until_serving("a")
        await w.process.stop(timeout_s=60)
        assert not list((tmp_path / "kept" / "processes").iterdir())


async def test_a_slave_without_its_master_hands_what_is_due_to_a_master_of_its_container(tmp_path: Path) -> None:
    """Over the sockets that only this user may open: nothing may escape by the network. A timer that was due while the
    container was gone comes, too, as brokers outlive it."""
    acting = {**SMALL, "enableSlaveActingMaster": "true", "totalReplicas": "2"}
    async with (
        ours.namesrv(tmp_path / "namesrv", extra={"supportActingMaster": "true"}) as namesrv,
        ours.broker(tmp_path / "a0", "a", namesrv=[namesrv.address], extra=acting) as master,
        place(tmp_path, "b", namesrvAddr=namesrv.address) as w,
        connect([namesrv.address]) as client,
    ):
        await w.until_serving("b")
        slave = w.file("c", brokerName="a", brokerRole="SLAVE", brokerId="1", namesrvAddr=namesrv.address, **acting)
        assert await w.add(slave) == (ResponseCode.SUCCESS, None)
        await shows(w.client, master, lambda told: told.get("preOnline") == "online")
        await create(client)
        await shows(w.client, master, lambda told: told.get("deliveryWaitsFor") == "")
        due_ms = now_ms() + 12_000
        properties_of = f"TIMER_DELIVER_MS\x01{due_ms}\x02UNIQ_KEY\x01t\x02TAGS\x01x\x02"
        answer = await w.client.call(master.address, request(RequestCode.SEND_MESSAGE, SendMessageRequest(
            "T", 1, born_timestamp=now_ms(), properties=properties_of), b"due"), 30_000)
        assert answer.code == ResponseCode.SUCCESS
        end = (await runtime(w.client, master))["commitLogMaxOffset"]
        with trio.fail_after(PATIENCE_S):
            while await w.told("c", "commitLogMaxOffset") != end:
                await trio.sleep(0.1)
        assert stat.S_IMODE((tmp_path / "kept" / "siblings").stat().st_mode) == 0o700
        await w.process.kill()
        await master.kill()

        with trio.fail_after(PATIENCE_S):
            while not (found := await w.records("b", "T", 1)):
                await trio.sleep(0.1)
        (message,) = (each.message for each in found)
        values = decode_properties(message.properties)
        assert (message.body, values["UNIQ_KEY"], values["TAGS"]) == (b"due", "t", "x")
        assert await w.told("c", "commitLogMaxOffset") == end, "nothing is written there"
        assert await w.told("c", "escapeWaitsFor") == ""
        await w.process.start()
        with trio.fail_after(PATIENCE_S):
            while not all(state.startswith("serves") for state in (await w.brokers()).values()):
                await trio.sleep(0.1)
        await w.process.stop(timeout_s=60)
        assert not list((tmp_path / "kept" / "siblings").iterdir()), "each removed its socket"
