"""The plain form of a status: nothing lost, and JSON and CBOR both take it."""

from __future__ import annotations

import json

import attrs
import cbor2

from raft.status import ElectionStatus, Refusal, RefusalKind, Status
from tests.raft.statuses import make_status


def test_every_field_is_in_the_plain_form() -> None:
    plain = make_status().as_dict()
    assert set(plain) == {field.name for field in attrs.fields(Status)} | {"apply_lag"}


def test_the_plain_form_survives_json_and_cbor() -> None:
    status = make_status(
        refusals=(Refusal(peer="n9", kind=RefusalKind.RULES, reason="it runs dledger"),),
        election=ElectionStatus(round=3, probe=True, asked_term=8, answers=(("n1", "ACCEPT"),)))
    plain = status.as_dict()
    assert json.loads(json.dumps(plain)) == cbor2.loads(cbor2.dumps(plain)) == plain
    assert plain["role"] == "leader"
    assert plain["refusals"][0]["kind"] == "rules"
    assert plain["membership"]["members"]["n0"] == {"address": "h0:7000", "incarnation": "0102", "priority": 0}
    assert plain["election"]["answers"] == [["n1", "ACCEPT"]]


def test_apply_lag_is_what_is_committed_and_not_applied() -> None:
    assert make_status(commit_index=100, applied_index=93).apply_lag == 7
