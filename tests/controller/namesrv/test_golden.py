"""Frames that Java brokers, clients and tools sent to a Java name server: ours answers them as that one did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.namesrv.requests import NameServer
from remoting.bodies.namesrv import ClusterInfo, DataVersion, KVTable, TopicList, TopicRouteData
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.frame import FrameReader
from tests.controller.namesrv.fleet import Fleet

GOLDEN = Path(__file__).parents[2] / "remoting" / "golden" / "5.5.0"
Exchange = tuple[Command, Command | None]


def recorded(code: int) -> list[Exchange]:
    (path,) = GOLDEN.glob(f"{code}-*.ndjson")
    found: list[Exchange] = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        (command,) = FrameReader().feed(bytes.fromhex(row["frame"]))
        if row["direction"] == "request":
            found.append((command, None))
        else:
            found[-1] = found[-1][0], command
    return found


def registrations() -> list[Exchange]:
    """A master and its slave; further ones are of other recordings."""
    return recorded(RequestCode.REGISTER_BROKER)[:2]


def fleet_of_java_brokers(answer: Command | None = None) -> Fleet:
    """Both of them; or those in ``answer``, where that names any: it may have been given before both were there."""
    fleet, body = Fleet(), answer.body if answer is not None else b""
    commands = [command for command, _ in registrations()]
    named = [command for command in commands if command.ext["brokerAddr"].encode() in body]
    for command in named or commands:
        assert fleet.hand_over(command, command.ext["brokerAddr"]).code == 0
    return fleet


def test_registrations_are_answered_as_by_java() -> None:
    fleet = Fleet()
    for command, answer in registrations():
        ours = fleet.hand_over(command, command.ext["brokerAddr"])
        assert answer is not None
        assert (ours.code, ours.ext, ours.body) == (answer.code, answer.ext, answer.body)


def sorted_topics(body: bytes) -> TopicList:
    found = TopicList.from_json(body)
    return TopicList(sorted(found.topic_list), found.broker_addr)


READ: dict[int, Callable[[bytes], object]] = {
    105: TopicRouteData.from_json, 106: ClusterInfo.from_json, 206: sorted_topics, 224: sorted_topics,
    304: sorted_topics, 311: sorted_topics, 312: sorted_topics, 313: sorted_topics, 219: KVTable.from_json,
}


@pytest.mark.parametrize("code", [105, 106, 205, 206, 216, 224, 304, 311, 312, 313, 327, 904])
def test_answers_are_those_of_the_java_name_server(code: int) -> None:
    read: Callable[[bytes], Any] = READ.get(code, bytes)
    exchanges = [
        (command, answer) for command, answer in recorded(code)
        if answer is None or not answer.encoding]  # the second recording has other ports
    assert exchanges
    for command, answer in exchanges:
        ours = fleet_of_java_brokers(answer).hand_over(command)
        if answer is not None:
            assert (ours.code, ours.ext) == (answer.code, answer.ext)
            assert (read(ours.body) if ours.body else b"") == (read(answer.body) if answer.body else b"")


def test_route_bodies_are_the_same_bytes() -> None:
    command, answer = recorded(105)[0]
    assert answer is not None
    assert fleet_of_java_brokers(answer).hand_over(command).body == answer.body


def test_key_value_requests_are_answered_as_by_java() -> None:
    fleet = Fleet()
    for code in (100, 101, 219, 102):
        for command, answer in recorded(code):
            ours = fleet.hand_over(command)
            assert answer is not None
            assert (ours.code, ours.ext) == (answer.code, answer.ext)
            assert ours.body == answer.body


def test_configuration_requests_are_answered_as_by_java() -> None:
    fleet = Fleet()
    for command, answer in recorded(318):
        assert answer is not None
        assert fleet.hand_over(command).code == answer.code
    command, answer = recorded(319)[0]
    assert answer is not None
    keys = {line.partition(b"=")[0] for line in answer.body.splitlines()}
    ours = {line.partition(b"=")[0] for line in fleet.hand_over(command).body.splitlines()}
    assert keys <= ours, "every key that Java lists is known"


def test_data_versions_and_farewells_are_answered_as_by_java() -> None:
    fleet = Fleet()
    for command, _ in recorded(103):
        fleet.hand_over(command, command.ext["brokerAddr"])
    for command, answer in recorded(322):
        ours = fleet.hand_over(command)
        if answer is not None and ("C", command.ext["brokerAddr"]) in fleet.tables.live:
            assert ours.ext == answer.ext
            assert DataVersion.from_json(ours.body) == DataVersion.from_json(answer.body)
    for command, answer in recorded(104):
        assert answer is not None
        fleet.register("witness", 0, cluster=command.ext["clusterName"])
        ours = fleet.hand_over(command)
        assert (ours.code, ours.ext, ours.body) == (answer.code, answer.ext, answer.body)
        assert (command.ext["clusterName"], command.ext["brokerAddr"]) not in fleet.tables.live


def test_every_code_that_was_recorded_with_a_name_server_is_served() -> None:
    served = NameServer(Fleet().core.config, Fleet().core.kv, 0).codes
    recorded_codes = {int(path.name.partition("-")[0]) for path in GOLDEN.glob("*.ndjson")}
    asked_elsewhere = {code for code in recorded_codes if code >= 1_000} | {905, 906, 907}
    assert recorded_codes - asked_elsewhere <= set(served)
