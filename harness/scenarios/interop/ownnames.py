"""Names of our own in headers, JSON and messages: each is sent to all of RocketMQ's that get it, and changes nothing.

Which names there are is read from the sources, so a new one is sent, too. Who gets them is said here: by the class of
the header, or the name. ``docs/generate.py`` writes both into the manual. It starts Java's servers, and a program that
reads with RocketMQ's own classes what those servers and clients get as answers.
"""

from __future__ import annotations

import ast
import importlib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from broker.filters.table import GET_ALL_FILTERS
from broker.ledger.codes import LEDGER_IS_KEPT, READ_LEDGER
from broker.part import OWN_CODES
from broker.pop.order import OrderInfo
from broker.pop.orderlog import ConsumerOrderInfos, OrdersRead
from broker.queueends.ends import GET_QUEUE_ENDS
from broker.replicas.probing import PROBE_MEMBER
from broker.siblings.handover import HAND_OVER
from broker.store.tables import ConsumerOffsets
from controller.own_codes import OwnCode
from harness.processes import java
from harness.processes.program import Program, Report
from harness.scenarios.interop.popped import RawPopper
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic, until
from remoting.bodies.consumers import LockBatchRequestBody, MessageQueue
from remoting.bodies.controller import BrokerNames, SyncStateSet
from remoting.bodies.namesrv import DataVersion
from remoting.body import Body
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, Encoding, request, response
from remoting.fields import described
from remoting.frame import encode
from remoting.header import Header
from remoting.headers import controller as c
from remoting.headers.consumers import LockBatchRequest
from remoting.headers.pulling import PullMessageRequest

SOURCES: Final = Path(__file__).parents[3]
CONTROLLER, NAME_SERVER, BROKER = "controller", "name server", "broker"
READER: Final = "reader of the answer"
CONSUMER: Final = "consumer"
SLAVE: Final = "slave"
OF_THE_FILE: Final = "broker with the file"
TOPIC, GROUP, MADE = "Named", "broker-a", "made"
OFFERED: Final = "who offers it, by `__QUORATE_CODES` in its answer to 21"
_PREFIXED: Final = re.compile(r'"(__QUORATE_[A-Z_]*[A-Z])"')
_CODE: Final = re.compile(r"= (61_\d{3})\b")
_HEADERS: Final = "org.apache.rocketmq.remoting.protocol.header.controller."
_BODIES: Final = "org.apache.rocketmq.remoting.protocol.body."
_BROKERS: Final = "org.apache.rocketmq.broker."
_VOLATILE: Final = frozenset({"msgId", "queueOffset", "transactionId"})
_SAMPLES: Final[Mapping[Any, Any]] = {bool: True, str: "2,3"}
_NUMBER: Final = 7
_DECIDED: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
    ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED})
"""The header was read, and the group looked at."""

REQUESTS: Final[Mapping[str, Mapping[str, tuple[RequestCode, ...]]]] = {
    "LockBatchRequest": {BROKER: (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)},
    "BrokerHeartbeatRequest": {CONTROLLER: (RequestCode.BROKER_HEARTBEAT,),
                               NAME_SERVER: (RequestCode.BROKER_HEARTBEAT,)},
    "AlterSyncStateSetRequest": {CONTROLLER: (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,)},
    "ElectMasterRequest": {CONTROLLER: (RequestCode.CONTROLLER_ELECT_MASTER,)},
    "RegisterBrokerToControllerRequest": {CONTROLLER: (RequestCode.CONTROLLER_REGISTER_BROKER,)},
    "GetReplicaInfoRequest": {CONTROLLER: (RequestCode.CONTROLLER_GET_REPLICA_INFO,)},
    "GetSyncStateDataRequest": {CONTROLLER: (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,)},
    "NotifyBrokerRoleChangedRequest": {BROKER: (RequestCode.NOTIFY_BROKER_ROLE_CHANGED,)},
}
"""By header: which of Java's servers get it, by which codes."""
ANSWERS: Final[Mapping[str, str]] = {
    "LockBatchResponse": "-", "BrokerHeartbeatResponse": "-",
    "ElectMasterResponse": f"{_HEADERS}ElectMasterResponseHeader",
    "RegisterBrokerToControllerResponse": f"{_HEADERS}register.RegisterBrokerToControllerResponseHeader",
    "GetReplicaInfoResponse": f"{_HEADERS}GetReplicaInfoResponseHeader",
    "GetMetadataResponse": f"{_HEADERS}GetMetaDataResponseHeader",
    "NotLeaderResponse": "-",
    "ApplyBrokerIdResponse": f"{_HEADERS}register.ApplyBrokerIdResponseHeader",
}
"""By header: the class with which RocketMQ reads it; "-": it reads none in this answer."""
FIELDS: Final = ("__QUORATE_CODES", "__QUORATE_LOG_END")
"""Fields of answers in which RocketMQ reads no header."""
PROPERTIES: Final = (
    "__QUORATE_END", "__QUORATE_EPOCH", "__QUORATE_HALF", "__QUORATE_POP", "__QUORATE_RESUMED", "__QUORATE_REVIVED",
    "__QUORATE_TIMER", "__QUORATE_TIMER_MOVED")
_OFFSETS: Final = ConsumerOffsets({"T@G": {0: 5}}, data_version=DataVersion(1, 2, 3))
_ORDERS: Final = ConsumerOrderInfos({"T@G": {0: OrderInfo(1_000, [5, 1], 60_000)}})
DOCUMENTS: Final[Mapping[str, tuple[str, Body, Body]]] = {
    "__QUORATE_VERSION": (SLAVE, _OFFSETS, attrs.evolve(_OFFSETS, true_version=DataVersion(1, 2, 9))),
    "__QUORATE_RESETS": (OF_THE_FILE, _OFFSETS, attrs.evolve(_OFFSETS, reset_table={"T@G": {0: 3}})),
    "__QUORATE_ORDERS": (OF_THE_FILE, _ORDERS, attrs.evolve(_ORDERS, read=OrdersRead(9, [1], {"T@G": {0: [4, 1]}}))),
}
"""Fields in JSON: who gets it, JSON without it, and the same with it."""
CODES: Final[Mapping[int, tuple[str, str]]] = {
    OwnCode.IMPORT_METADATA: (CONTROLLER, "an operator's `mqadmin` says why it cannot"),
    OwnCode.CHANGE_CONTROLLER_GROUP: (CONTROLLER, "the same"),
    OwnCode.EXPLAIN: (CONTROLLER, "the same"),
    PROBE_MEMBER: (BROKER, "the member counts as not reached"),
    GET_ALL_FILTERS: (OFFERED, ""),
    READ_LEDGER: (BROKER, "the member has no ledger: nothing is read, and it is not told what is kept"),
    LEDGER_IS_KEPT: ("members that answered 61041", ""),
    GET_QUEUE_ENDS: (OFFERED, ""),
    HAND_OVER: ("brokers of one container, over a socket of their own", ""),
}
"""Requests of ours: who is asked, and what 3 means, which is RocketMQ's answer."""


def prefixed() -> dict[str, Path]:
    """Names with our prefix, and the modules that define them."""
    return {name: path.relative_to(SOURCES) for path in sorted((SOURCES / "broker").rglob("*.py"))
            for name in _PREFIXED.findall(path.read_text())}


def codes() -> set[int]:
    """Codes of our own that the sources define."""
    return {int(code) for folder in ("broker", "controller") for path in (SOURCES / folder).rglob("*.py")
            for code in _CODE.findall(path.read_text()) if int(code) != OWN_CODES.start}


def fields() -> Iterator[tuple[type[Header], str]]:
    """Of headers: each field whose docstring says that it is ours, or that of its class that all of its fields are."""
    for path in sorted((SOURCES / "remoting/headers").glob("*.py")):
        for kind in (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)):
            for field, said in pairwise([*kind.body, kind]):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (
                        "of ours" in (ast.get_docstring(kind) or "") or (isinstance(said, ast.Expr)
                        and isinstance(said.value, ast.Constant) and str(said.value.value).startswith("Ours"))):
                    yield getattr(importlib.import_module(f"remoting.headers.{path.stem}"), kind.name), field.target.id


def wire(header: type[Header], attribute: str) -> str:
    """The name of a field in frames."""
    return next(each.wire for each in described(header) if each.attribute == attribute)


def seats(name: str) -> list[str]:
    """Who of RocketMQ gets this name of ours, or a header by its class. Raises ``KeyError``: nobody says."""
    if name in REQUESTS:
        return list(REQUESTS[name])
    if name in ANSWERS or name in FIELDS:
        return [READER]
    return [BROKER, CONSUMER] if name in PROPERTIES else [DOCUMENTS[name][0]]


def with_one_more(plain: Header, attribute: str) -> Header:
    """This header with one of our fields."""
    hint = next(each.hint for each in described(type(plain)) if each.attribute == attribute)
    return attrs.evolve(plain, **{attribute: _SAMPLES.get(hint, _NUMBER)})


def full(header: type[Header]) -> Header:
    """A header with all that RocketMQ reads of it, and nothing of ours."""
    ours = {attribute for kind, attribute in fields() if kind is header}
    return header(**{each.attribute: _SAMPLES.get(each.hint, _NUMBER) for each in described(header)
                     if each.attribute not in ours})


# --- Java's readers ------------------------------------------------------------------------------------------------


async def read(reader: Program, kind: str, by: str, raw: bytes) -> Report:
    """What RocketMQ's class reads in these bytes."""
    before = len(reader.reports("read"))
    await reader.tell(f"{kind} {by} {b64encode(raw).decode()}")
    found: Report = (await reader.wait_for("read", lambda found: len(found) > before))[before]
    expect(found["ok"], f"{by} does not read this {kind}: {found}")
    return found


async def _frames(reader: Program, what: str, by: str, plain: Command, ours: Command) -> None:
    """Both have the same header for RocketMQ, in either encoding; the second has our field."""
    for encoding in Encoding:
        without, found = [await read(reader, "frame", by, encode(attrs.evolve(each, encoding=encoding)))
                          for each in (plain, ours)]
        expect(found["said"] == without["said"], f"{what}: read as {found}, without it as {without}")
        expect(found["fields"] == ours.ext, f"{what}: the frame has {found['fields']}")


async def answers_are_read(reader: Program) -> int:
    """Each of our fields in an answer. Returns how many."""
    asked, count = request(1), 0
    for header, attribute in fields():
        if header.__name__ in ANSWERS:
            plain = full(header)
            await _frames(reader, f"{header.__name__}.{attribute}", ANSWERS[header.__name__],
                          response(asked, header=plain), response(asked, header=with_one_more(plain, attribute)))
            count += 1
    for name in FIELDS:
        plain_answer = response(asked, body=b"{}")
        await _frames(reader, name, "-", plain_answer, attrs.evolve(plain_answer, ext={name: "61021 61051"}))
        count += 1
    return count


async def documents_are_read(reader: Program, release: str) -> int:
    """Each of our fields in JSON. Returns how many."""
    orders = "offset.ConsumerOrderInfoManager" if release < "5.5" else "pop.orderly.QueueLevelConsumerManager"
    by = {
        "__QUORATE_VERSION": ("body", f"{_BODIES}ConsumerOffsetSerializeWrapper"),
        "__QUORATE_RESETS": ("file", f"{_BROKERS}offset.ConsumerOffsetManager"),
        "__QUORATE_ORDERS": ("file", f"{_BROKERS}{orders}"),
    }
    for name, (_, plain, ours) in DOCUMENTS.items():
        expect(f'"{name}"'.encode() in ours.to_json(), f"{name} is not written")
        without, found = [(await read(reader, *by[name], each.to_json()))["said"] for each in (plain, ours)]
        expect("T@G" in str(found) and found == without, f"{name}: read as {found}, without it as {without}")
    return len(DOCUMENTS)


# --- Java's servers ------------------------------------------------------------------------------------------------


def shape(answer: Command) -> tuple[object, ...]:
    """What an answer says, but for what is another at each time."""
    ext = {key: value for key, value in answer.ext.items() if key not in _VOLATILE}
    return answer.code, answer.remark, ext, answer.body


async def requests_are_answered(client: Client, addresses: Mapping[str, str], plain: Mapping[str, Header],
                                bodies: Mapping[str, bytes]) -> int:
    """Each of our fields in a request, to each server that gets it: it answers as without. Returns how many."""
    count = 0
    for header, attribute in fields():
        name = header.__name__
        for seat, codes in REQUESTS.get(name, {}).items():
            for code in codes:
                first, without, found = [
                    shape(await client.call(addresses[seat], request(code, each, bodies.get(name, b""))))
                    for each in (plain[name], plain[name], with_one_more(plain[name], attribute))]
                what = f"{seat}, {code}, {wire(header, attribute)}"
                expect(without[0] in _DECIDED, f"{what}: nothing is decided: {without}")
                expect(without == found, f"{what}: it answers {found}, without the field {without}, and {first}")
                count += 1
    return count


async def requests_are_not_known(client: Client, addresses: Mapping[str, str]) -> int:
    """Each request of ours, to each of Java's servers: it answers 3, and answers on. Returns how many."""
    for seat, address in addresses.items():
        for code in sorted(CODES):
            answer = await client.call(address, request(code))
            expect(answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"{seat}, {code}: {answer}")
    return len(addresses) * len(CODES)


async def _led(client: Client, address: str) -> dict[str, Header]:
    """Make a group at Java's controller, with one broker that leads; returns what that may ask, again and again."""
    told, check = f"{java.servers.HOST}:1", "127.0.0.1:1;1"
    beat = c.BrokerHeartbeatRequest("DefaultCluster", told, MADE, 1, 1, 0, 0, 60_000, 0)
    elect = c.ElectMasterRequest("DefaultCluster", MADE, 1, invoke_time=1)
    register = c.RegisterBrokerToControllerRequest("DefaultCluster", MADE, 1, told, 1)
    asked: tuple[tuple[RequestCode, Header], ...] = (
        (RequestCode.CONTROLLER_APPLY_BROKER_ID, c.ApplyBrokerIdRequest("DefaultCluster", MADE, 1, check)),
        (RequestCode.CONTROLLER_REGISTER_BROKER, register),
        (RequestCode.BROKER_HEARTBEAT, beat), (RequestCode.CONTROLLER_ELECT_MASTER, elect))
    answers = [await client.call(address, request(code, header)) for code, header in asked]
    expect(all(answer.code == ResponseCode.SUCCESS for answer in answers), f"the controller refuses: {answers}")
    epoch = c.ElectMasterResponse.from_ext(answers[-1].ext).master_epoch
    assert epoch is not None
    return {each.__class__.__name__: each for each in (
        beat, elect, register, c.AlterSyncStateSetRequest(MADE, 1, epoch, 1), c.GetReplicaInfoRequest(MADE),
        c.GetSyncStateDataRequest())}


async def messages_are_given(client: Client, broker: str, reader: Program) -> int:
    """A message with each of our properties: Java's broker takes it, and Java's consumer reads it. Returns how many."""
    asker = RawPopper(client, broker, GROUP, TOPIC)
    for name in PROPERTIES:
        await asker.send(name, **{"UNIQ_KEY": name, name: "5"})
    records = b""
    with trio.fail_after(30):
        while records.count(b"UNIQ_KEY") < len(PROPERTIES):
            answer = await asker.ask(RequestCode.PULL_MESSAGE, PullMessageRequest(
                "G", TOPIC, 0, 0, sys_flag=4, subscription="*", expression_type="TAG"))
            records = answer.body
            await trio.sleep(0.1)
    got = (await read(reader, "records", "-", records))["said"]
    expect([message["body"] for message in got] == list(PROPERTIES), f"other messages came: {got}")
    for message in got:
        name, properties = message["body"], message["properties"]
        expect((properties.pop(name), properties.pop("UNIQ_KEY")) == ("5", name), f"{name}: {message}")
        expect(properties.keys() == got[0]["properties"].keys(), f"{name}: {message}, and {got[0]}")
    return len(got)


@scenario("5.5.0", "5.3.3", timeout_s=300)
async def java_passes_over_names_of_ours(stage: Stage) -> None:
    """Each field and property of ours alone, to who gets it: Java answers and reads as without it; our codes: 3."""
    here, release = stage.here, stage.release
    async with (
        open_client() as client,
        java.decoder(release, here / "decoder") as reader,
        java.namesrv(release, here / "namesrv") as namesrv,
        java.controllers(release, here / "controllers", 1) as (controller,),
        java.broker(release, here / "broker", group=GROUP, namesrv=[namesrv.address],
                    controllers=[controller.address]) as broker,
    ):
        led = await until(stage, [controller.address], GROUP, lambda found: found.master == 1, "it leads")
        await create_topic(stage, namesrv.address, TOPIC)
        plain = await _led(client, controller.address)
        plain["LockBatchRequest"] = LockBatchRequest()
        plain["NotifyBrokerRoleChangedRequest"] = c.NotifyBrokerRoleChangedRequest(
            broker.address, led.master_epoch, led.epoch, 1)
        alone = SyncStateSet(frozenset({1}), 1).to_json()
        lock = LockBatchRequestBody("G", "client", [MessageQueue(TOPIC, GROUP, 0)], only_this_broker=True).to_json()
        servers = {CONTROLLER: controller.address, NAME_SERVER: namesrv.address, BROKER: broker.address}
        unknown = await requests_are_not_known(client, servers)
        asked = await requests_are_answered(client, servers, plain, {
            "LockBatchRequest": lock, "AlterSyncStateSetRequest": alone, "NotifyBrokerRoleChangedRequest": alone,
            "GetSyncStateDataRequest": BrokerNames([MADE]).to_json()})
        told = await answers_are_read(reader)
        kept = await documents_are_read(reader, release.version)
        given = await messages_are_given(client, broker.address, reader)
        stage.say(f"{asked} requests, {told} answers, {kept} documents and {given} messages: as without our names; "
                  f"{unknown} requests of ours: 3")
