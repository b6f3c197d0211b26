"""Answers on the wire: which fields and which body Java brokers and tools find in each."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from controller import answers
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from controller.metadata.outcomes import (
    Altered,
    BrokerIdApplied,
    BrokerIdRefused,
    Cleaned,
    Elected,
    MasterStillExists,
    NotElected,
    Outcome,
    Refused,
    Registered,
    Superseded,
    UnknownLife,
)
from controller.yielding import NoSuccessor
from remoting.bodies.controller import ElectMasterResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request

KEY = GroupKey("c", "a")
MASTER: dict[str, Any] = {
    "key": KEY, "master": 2, "address": "b2:1", "master_epoch": 3, "sync_state_set": frozenset({2}),
    "sync_state_set_epoch": 4, "members": {1: "b1:1", 2: "b2:1"}}
ELECTED = Elected(**MASTER, previous=1, clean=True)
FIELDS = {"masterBrokerId": "2", "masterAddress": "b2:1", "masterEpoch": "3", "syncStateSetEpoch": "4"}
SET = {"syncStateSet": [2], "syncStateSetEpoch": 4}
NAMES = {"clusterName": "c", "brokerName": "a"}
REGISTERED: dict[str, Any] = {
    "key": KEY, "broker_id": 1, "sync_state_set": frozenset({2}), "sync_state_set_epoch": 4}


def plain(command: Command) -> Any:
    return json.loads(command.body) if command.body else None


ROWS: list[tuple[int, Outcome, int, dict[str, str], Any]] = [
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
     Altered(key=KEY, sync_state_set=frozenset({2}), sync_state_set_epoch=4), 0, {"newSyncStateSetEpoch": "4"}, SET),
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, Refused(code=ResponseCode.CONTROLLER_INVALID_MASTER, remark="no"),
     2002, {"newSyncStateSetEpoch": "0"}, None),
    (RequestCode.CONTROLLER_REGISTER_BROKER,
     Registered(**REGISTERED, master=2, address="b2:1", master_epoch=3), 0, {**NAMES, **FIELDS}, SET),
    (RequestCode.CONTROLLER_REGISTER_BROKER,
     Registered(**REGISTERED, master=None, address=None, master_epoch=None), 0, NAMES, SET),
    (RequestCode.CONTROLLER_REGISTER_BROKER, UnknownLife(life=71, remark="older"), 2014, {"unknownLife": "71"}, None),
    (RequestCode.CONTROLLER_APPLY_BROKER_ID, BrokerIdApplied(key=KEY, broker_id=3, next_broker_id=4), 0, NAMES, None),
    (RequestCode.CONTROLLER_APPLY_BROKER_ID, BrokerIdRefused(key=KEY, next_broker_id=4), 2014,
     {**NAMES, "nextBrokerId": "4"}, None),
    (RequestCode.CLEAN_BROKER_DATA,
     Cleaned(key=KEY, removed_ids=frozenset({1}), group_removed=False, lost_master=False), 0, {}, None),
    (RequestCode.CONTROLLER_ELECT_MASTER, NoSuccessor(remark="soon", wait=True), 2012, {"yieldWait": "true"}, None),
    (RequestCode.CONTROLLER_ELECT_MASTER, NoSuccessor(remark="no"), 2012, {}, None),
    (RequestCode.CONTROLLER_ELECT_MASTER,
     NotElected(code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark="no", key=KEY, master_epoch=3), 2012, {},
     None),
    (RequestCode.CONTROLLER_ELECT_MASTER, Superseded(proposed_term=1, applied_term=2), 2007, {}, None),
]


@pytest.mark.parametrize(("code", "outcome", "answered", "ext", "body"), ROWS)
def test_what_an_outcome_looks_like(
    code: int, outcome: Outcome, answered: int, ext: dict[str, str], body: Any
) -> None:
    """What is absent is left out, never null: Java reads a missing number as none, and fails over "null"."""
    to = request(code)
    to.opaque = 77
    answer = answers.answer(to, outcome)
    assert (answer.code, answer.ext, plain(answer), answer.opaque) == (answered, ext, body, 77)
    assert (answer.remark or "") == outcome.remark


@pytest.mark.parametrize("outcome", [ELECTED, MasterStillExists(**MASTER)])
def test_an_election_answers_with_the_master_whether_new_or_not(outcome: Outcome) -> None:
    answer = answers.answer(request(RequestCode.CONTROLLER_ELECT_MASTER), outcome)
    body = plain(answer)
    assert answer.code == outcome.code and answer.ext == FIELDS
    assert body["syncStateSet"] == [2]
    assert {int(i): a for i, a in body["brokerMemberGroup"]["brokerAddrs"].items()} == {1: "b1:1", 2: "b2:1"}


GROUP = BrokerGroup(
    {1: Replica("b1:1", None), 2: Replica("b2:1", None)}, 3, frozenset({2}), 4, 2, 3)


@pytest.mark.parametrize(("group", "code", "ext", "body"), [
    (GROUP, 0, {"masterBrokerId": "2", "masterAddress": "b2:1", "masterEpoch": "3"}, SET),
    (BrokerGroup(GROUP.replicas, 3, frozenset({2}), 4, None, 4), 0, {"masterEpoch": "4"}, SET),
    (None, 2008, {}, None),
])
def test_replica_info(group: BrokerGroup | None, code: int, ext: dict[str, str], body: Any) -> None:
    answer = answers.replica_info(request(RequestCode.CONTROLLER_GET_REPLICA_INFO), group, KEY)
    assert (answer.code, answer.ext, plain(answer)) == (code, ext, body)


def test_the_next_id() -> None:
    answer = answers.next_broker_id(request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID), KEY, 3)
    assert answer.ext == {**NAMES, "nextBrokerId": "3"}


def test_sync_state_data_tells_who_is_in_sync_and_alive() -> None:
    answer = answers.sync_state_data(
        request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA), [(KEY, GROUP)], lambda key, broker_id: broker_id == 1)
    info = plain(answer)["replicasInfoTable"]["a"]
    assert (info["masterBrokerId"], info["masterEpoch"], info["syncStateSetEpoch"]) == (2, 3, 4)
    assert [(each["brokerId"], each["alive"]) for each in info["inSyncReplicas"]] == [(2, False)]
    assert [(each["brokerId"], each["alive"]) for each in info["notInSyncReplicas"]] == [(1, True)]


def test_a_notification_is_two_way() -> None:
    """A one-way one cannot be acknowledged."""
    told = answers.role_changed(ELECTED)
    assert told.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED and not told.is_oneway
    assert told.ext == FIELDS and plain(told) == SET


@pytest.mark.parametrize("answer", [
    answers.answer(request(RequestCode.CONTROLLER_ELECT_MASTER), ELECTED),
    answers.sync_state_data(request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA), [(KEY, GROUP)], lambda *_: True),
])
def test_BUG_S2_bodies_are_json(answer: Command) -> None:
    """Keys of maps are in quotes, as JSON has them, which Java reads too; keys without are read as well."""
    assert json.loads(answer.body)
    bare = re.sub(rb'"(\d+)":', rb"\1:", answer.body)
    if answer.code == ResponseCode.SUCCESS and bare != answer.body:
        with pytest.raises(json.JSONDecodeError):
            json.loads(bare)
        assert ElectMasterResponseBody.from_json(bare) == ElectMasterResponseBody.from_json(answer.body)
        assert ElectMasterResponseBody.from_json(bare).broker_member_group.broker_addrs == {1: "b1:1", 2: "b2:1"}  # type: ignore[union-attr]


@pytest.mark.parametrize(("renewed", "fields"), [
    (True, {"masterLeaseRenewed": "true", "leaseEpoch": "3"}), (False, {"masterLeaseRenewed": "false"})])
def test_a_renewed_lease_names_its_mastership(renewed: bool, fields: dict[str, str]) -> None:
    group = BrokerGroup(master=2, master_epoch=3)
    answer = answers.heartbeat(request(RequestCode.BROKER_HEARTBEAT), group, renewed, False, None)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, fields)


def test_a_heartbeat_of_a_group_that_nobody_knows_is_answered() -> None:
    answer = answers.heartbeat(request(RequestCode.BROKER_HEARTBEAT), None, False, True, 7)
    assert answer.ext == {"masterLeaseRenewed": "false", "logInDoubt": "true", "registeredLife": "7"}
