"""Typed headers: what is written, what is read, and which field is named when something is wrong."""

from __future__ import annotations

import inspect
from types import ModuleType

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remoting.errors import HeaderError
from remoting.fields import described
from remoting.header import Header, Int32, Int64, header, wire_name
from remoting.headers import broker, controller, namesrv
from remoting.headers.controller import BrokerHeartbeatRequest, ElectMasterRequest, ElectMasterResponse
from remoting.headers.namesrv import RegisterBrokerRequest


@header
class Every(Header):
    name: str
    small_number: Int32
    flag: bool = False
    big: Int64 | None = None
    text: str | None = None
    odd: bool | None = wire_name("ODD_name", default=None)


def test_written() -> None:
    assert Every("n", -1).to_ext() == {"name": "n", "smallNumber": "-1", "flag": "false"}
    assert Every("", 2, True, 2**63 - 1, "é", False).to_ext() == {
        "name": "", "smallNumber": "2", "flag": "true", "big": "9223372036854775807", "text": "é", "ODD_name": "false",
    }


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        ({}, Every("n", 1)),
        ({"unknown": "x"}, Every("n", 1)),
        ({"smallNumber": "+7", "flag": "TRUE"}, Every("n", 7, True)),
        ({"flag": "yes", "ODD_name": ""}, Every("n", 1, False, odd=False)),
        ({"big": "-9223372036854775808", "text": ""}, Every("n", 1, big=-(2**63), text="")),
    ],
)
def test_read(ext: dict[str, str], expected: Every) -> None:
    assert Every.from_ext({"name": "n", "smallNumber": "1"} | ext) == expected


@pytest.mark.parametrize(
    ("ext", "field", "says"),
    [
        ({"smallNumber": "1"}, "name", "Every: name is missing"),
        ({"name": "n"}, "smallNumber", "Every: smallNumber is missing"),
        ({"name": "n", "smallNumber": ""}, "smallNumber", "Every: smallNumber = '': not a decimal number"),
        ({"name": "n", "smallNumber": "1.0"}, "smallNumber", "'1.0': not a decimal number"),
        ({"name": "n", "smallNumber": " 1"}, "smallNumber", "' 1': not a decimal number"),
        ({"name": "n", "smallNumber": "1_0"}, "smallNumber", "'1_0': not a decimal number"),
        ({"name": "n", "smallNumber": "-"}, "smallNumber", "'-': not a decimal number"),
        ({"name": "n", "smallNumber": "9" * 5_000}, "smallNumber", "not a decimal number"),
        ({"name": "n", "smallNumber": "2147483648"}, "smallNumber", "not within -2147483648..2147483647"),
        ({"name": "n", "smallNumber": "1", "big": "9223372036854775808"}, "big", "not within"),
    ],
)
def test_refused(ext: dict[str, str], field: str, says: str) -> None:
    with pytest.raises(HeaderError) as caught:
        Every.from_ext(ext)
    assert caught.value.field == field
    assert says in str(caught.value) and len(str(caught.value)) < 200


def test_evolves_like_any_attrs_class() -> None:
    assert attrs.evolve(Every("n", 1), small_number=2) == Every("n", 2)


# --- all of them ---------------------------------------------------------------------------------------------


def headers_of(module: ModuleType) -> list[type[Header]]:
    return [
        member for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Header) and member is not Header
    ]


ALL = [cls for module in (broker, controller, namesrv) for cls in headers_of(module)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
STRATEGIES: dict[object, st.SearchStrategy[object]] = {
    str: TEXT, bool: st.booleans(), Int32: st.integers(-(2**31), 2**31 - 1), Int64: st.integers(-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize("cls", ALL)
@settings(max_examples=20)
@given(data=st.data())
def test_every_header_comes_back(cls: type[Header], data: st.DataObject) -> None:
    values = {
        field.attribute: data.draw(STRATEGIES[field.hint])
        for field in described(cls) if field.required or data.draw(st.booleans())
    }
    made = cls(**values)
    assert cls.from_ext(made.to_ext()) == made


def test_names_are_those_of_java() -> None:
    assert set(RegisterBrokerRequest("b", "a", "c", 0, "h", 1, True).to_ext()) == {
        "brokerName", "brokerAddr", "clusterName", "brokerId", "haServerAddr", "heartbeatTimeoutMillis",
        "enableActingMaster", "compressed", "bodyCrc32",
    }


def test_what_is_ours_leaves_a_frame_of_java_as_it_is() -> None:
    """Its readers pick their fields by name: nothing of ours may have a name of theirs, or be there unasked."""
    beat, elect = BrokerHeartbeatRequest("c", "a:1", "b", 1), ElectMasterRequest("c", "b", 1)
    java = {"clusterName", "brokerAddr", "brokerName", "brokerId"}
    assert set(beat.to_ext()) == java
    assert set(elect.to_ext()) == {"clusterName", "brokerName", "brokerId", "designateElect", "invokeTime"}
    told = attrs.evolve(beat, silent_epoch=3, reaches="2", disk_trouble="full", heartbeat_interval_ms=250)
    assert set(told.to_ext()) - java == {"silentEpoch", "reaches", "diskTrouble", "heartbeatIntervalMs"}
    asked = attrs.evolve(elect, yield_epoch=3, yield_reason="disk", holders="2")
    assert set(asked.to_ext()) - set(elect.to_ext()) == {"yieldEpoch", "yieldReason", "holders"}
    assert ElectMasterResponse(yield_wait=True).to_ext() == {"yieldWait": "true"}
