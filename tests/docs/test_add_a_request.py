"""The page on a new request: its part is the example, which serves here on a real socket and on a real disk."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from owners import GET_OWNERS, PATH, SET_OWNER, Owners, OwnersKeys, OwnersPart, SetOwnerRequest
from trio.testing import MockClock

from broker import parts
from broker.config import from_properties, live_keys
from broker.metrics import BrokerMetrics
from broker.part import Part, PartClass, Shared
from broker.parts import configuration
from broker.server import RunningBroker, World, serve_broker
from broker.store.directory import DirectoryFiles
from broker.tablecopies import TableCopies
from harness.simulation.worlds.brokers import SMALL, cluster, until
from remoting import properties
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.daemon.files import DiskFiles
from remoting.headers.queries import TopicRequest
from remoting.headers.topics import CreateTopicRequest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-request.md").read_text()
EXAMPLE = (ROOT / "docs" / "examples" / "owners.py").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PARTS: tuple[PartClass, ...] = (*parts.PARTS, OwnersPart)


@asynccontextmanager
async def broker(root: Path, **keys: str) -> AsyncGenerator[RunningBroker, None]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    config = from_properties({
        **SMALL, "brokerName": "a", "brokerIP1": "127.0.0.1", "listenPort": str(listener.socket.getsockname()[1]),
        **keys}, start=configuration(PARTS)())
    async with trio.open_nursery() as nursery:
        running = await nursery.start(partial(
            serve_broker, config, World(DiskFiles(), DirectoryFiles(str(root))), [listener],
            config_path=str(root / "broker.conf"), parts=PARTS))
        yield running
        await running.stop()


async def owners(client: Client, address: str) -> dict[str, str]:
    return Owners.from_json((await client.call(address, request(GET_OWNERS))).body).owner_table


async def test_an_owner_is_set_and_kept(tmp_path: Path) -> None:
    async with open_client() as client:
        async with broker(tmp_path, topicOwnerLengthMax="8") as running:
            async def ask(command: Command) -> int:
                return (await client.call(running.config.address, command)).code

            await ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("orders", 4, 4, 6)))
            assert await ask(request(SET_OWNER, SetOwnerRequest("unknown", "shop"))) == ResponseCode.TOPIC_NOT_EXIST
            assert await ask(request(SET_OWNER, SetOwnerRequest("orders", "the shop"))) == ResponseCode.SUCCESS
            too_long = request(SET_OWNER, SetOwnerRequest("orders", "the whole shop"))
            assert await ask(too_long) == ResponseCode.INVALID_PARAMETER
            longer = properties.encode({"topicOwnerLengthMax": "20"}).encode()
            assert await ask(request(RequestCode.UPDATE_BROKER_CONFIG, body=longer)) == ResponseCode.SUCCESS
            assert await ask(too_long) == ResponseCode.SUCCESS
            assert b"broker_topics_owned{" in BrokerMetrics(running).exposition()
        async with broker(tmp_path) as running:
            assert await owners(client, running.config.address) == {"orders": "the whole shop"}
            deleted = request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("orders"))
            await client.call(running.config.address, deleted)
            assert await owners(client, running.config.address) == {}


async def test_a_slave_copies_owners_and_sets_none(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        slave = await made.node(None, PARTS, brokerRole="SLAVE", brokerId="1")
        master = await made.node(None, PARTS)
        await made.ask(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("orders", 4, 4, 6))
        await made.ask(master.address, SET_OWNER, SetOwnerRequest("orders", "shop"))
        await trio.sleep(60)
        assert await owners(made.client, slave.address) == {"orders": "shop"}
        answer = await made.ask(slave.address, SET_OWNER, SetOwnerRequest("orders", "me"))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        await until(lambda: PATH in slave.store.content)


async def test_a_master_without_such_a_table_keeps_back_no_other(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        slave = await made.node(None, PARTS, brokerRole="SLAVE", brokerId="1")
        master = await made.node()
        await made.ask(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("orders", 4, 4, 6))
        await until(lambda: slave.topics.get("orders"))
        await until(lambda: slave.broker.parts[TableCopies].done)
        assert await owners(made.client, slave.address) == {}


def test_its_keys_are_the_brokers() -> None:
    assert "topicOwnerLengthMax" in live_keys(configuration(PARTS))
    assert "topicOwnerLengthMax" not in live_keys(configuration())
    assert configuration(PARTS)().topic_owner_length_max == OwnersKeys().topic_owner_length_max  # type: ignore[attr-defined]


# --- the page ----------------------------------------------------------------------------------------------------


def test_excerpts_are_what_runs() -> None:
    here = Path(__file__).read_text()
    assert len(BLOCKS) == 7
    for block in BLOCKS:
        assert block in EXAMPLE or block in here or block in inspect.getsource(parts), block


def test_tables_name_what_there_is() -> None:
    def first_column(head: str) -> set[str]:
        rows = PAGE.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
        return {name for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])}

    (part,) = ast.parse(inspect.getsource(Part)).body
    assert isinstance(part, ast.ClassDef)
    methods = {node.name for node in part.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    fields = {ast.unparse(node.target) for node in part.body if isinstance(node, ast.AnnAssign)}
    assert first_column("what a part may have") == methods | fields
    assert first_column("`Shared`") >= {"config", "files", "journal", "puts", "standing"}
    assert first_column("`Shared`") <= set(dir(Shared)) | set(inspect.get_annotations(Shared))
