"""Names of our own: each has somebody of RocketMQ's who gets it, and an answer that is another one is noticed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness.processes.program import Program
from harness.scenarios.interop import ownnames
from harness.scenarios.interop.scenario import SCENARIOS, Unexpected
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import AlterSyncStateSetRequest, GetReplicaInfoRequest
from tests.harness.scenarios.interop.reporting import Reporting

PLAIN = {"GetReplicaInfoRequest": GetReplicaInfoRequest("b")}


def test_each_name_of_ours_is_sent_to_who_gets_it_of_either_release() -> None:
    headers = {header.__name__ for header, _ in ownnames.fields()}
    assert headers == ownnames.REQUESTS.keys() | ownnames.ANSWERS.keys()
    assert ownnames.prefixed().keys() == {*ownnames.FIELDS, *ownnames.PROPERTIES, *ownnames.DOCUMENTS}
    assert all(ownnames.seats(name) for name in [*headers, *ownnames.prefixed()])
    (scenario,) = (each for each in SCENARIOS if each.play is ownnames.java_passes_over_names_of_ours)
    assert scenario.releases == ("5.5.0", "5.3.3")


def test_each_request_of_ours_has_its_row() -> None:
    assert ownnames.codes() == ownnames.CODES.keys()


def test_a_name_that_nobody_gets_is_told() -> None:
    with pytest.raises(KeyError, match="__QUORATE_NEW"):
        ownnames.seats("__QUORATE_NEW")


def test_one_field_of_ours_is_added_to_all_of_javas() -> None:
    plain = ownnames.full(AlterSyncStateSetRequest)
    assert plain.to_ext() == {
        "brokerName": "2,3", "masterBrokerId": "7", "masterEpoch": "7", "invokeTime": "7"}
    found = ownnames.with_one_more(plain, "min_in_sync_replicas").to_ext()
    assert found == {**plain.to_ext(), "minInSyncReplicas": "7"}


def asked(answers: Any) -> Client:
    class Server:
        async def call(self, address: str, command: Command) -> Command:
            assert (address, command.code) == ("a:1", RequestCode.CONTROLLER_GET_REPLICA_INFO)
            code, ext = answers("clusterName" in command.ext)
            return response(Command(command.code, ext=ext), code)

    return cast(Client, Server())


@pytest.mark.parametrize(("answers", "says"), [
    (lambda ours: (ResponseCode.SUCCESS, {}), ""),
    (lambda ours: (2000 if ours else ResponseCode.SUCCESS, {}), "it answers"),
    (lambda ours: (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, {}), "nothing is decided"),
])
async def test_a_server_that_answers_otherwise_is_told(answers: Any, says: str,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    only = [each for each in ownnames.fields() if each[0] is GetReplicaInfoRequest]
    monkeypatch.setattr(ownnames, "fields", lambda: iter(only))
    asking = ownnames.requests_are_answered(asked(answers), {ownnames.CONTROLLER: "a:1"}, PLAIN, {})
    if says:
        with pytest.raises(Unexpected, match=f"controller, 1004, clusterName: {says}"):
            await asking
    else:
        assert await asking == 1


@pytest.mark.parametrize(("found", "says"), [
    ({"said": 1, "fields": {"x": "1"}}, ""), ({"said": 2, "fields": {"x": "1"}}, "read as"),
    ({"said": 1, "fields": {}}, "the frame has"),
])
async def test_a_reader_that_finds_something_else_is_told(found: Any, says: str) -> None:
    told = [{"event": "read", "ok": True, **each} for each in ({"said": 1, "fields": {}}, found) * 2]
    reader = cast(Program, Reporting(lambda line: [told.pop(0)]))
    reading = ownnames._frames(reader, "it", "-", Command(1), Command(1, ext={"x": "1"}))
    if says:
        with pytest.raises(Unexpected, match=f"it: {says}"):
            await reading
    else:
        await reading


async def test_bytes_that_java_does_not_read_are_told() -> None:
    reader = Reporting(lambda line: [{"event": "read", "ok": False, "error": "no such class"}])
    with pytest.raises(Unexpected, match="no such class"):
        await ownnames.read(cast(Program, reader), "body", "x.Y", b"{}")
    assert reader.lines == ["body x.Y e30="]
