"""The registry: names, arguments in words, and the faults of others."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from harness.nemesis import faults
from harness.nemesis.fault import Ability, BadArguments, Begun, FaultKind
from harness.nemesis.faults import FAULTS, UnknownFault, fault


async def _nothing(scene: object, names: object, args: object) -> Begun:
    return Begun("nothing")


THEIRS = FaultKind("theirs", "does nothing", _nothing)
NO_FAULT = 7


def _theirs() -> FaultKind:
    return THEIRS


def _fails() -> FaultKind:
    raise OSError("no licence")


def test_every_fault_takes_its_own_defaults() -> None:
    for each in FAULTS.values():
        assert each.checked(each.checked({})) == each.checked({})
        assert each.about and all(one.about for one in each.arguments.values())


@pytest.mark.parametrize(("name", "args", "words"), [
    ("kill", {"hard": True}, "kill takes no hard; it takes: none"),
    ("cut", {"side": "left"}, "cut's side is 'left'; it may be both, in, out"),
    ("cut", {"from": 3}, "cut's from is 3; it is a selector or a list of names"),
    ("rolling-restart", {"down_ms": "soon"}, "rolling-restart's down_ms is 'soon'; it is a number"),
    ("rolling-restart", {"down_ms": -1}, "rolling-restart's down_ms is -1; it is from 0"),
    ("rolling-restart", {"down_ms": float("nan")}, "rolling-restart's down_ms is nan; it is a number"),
    ("rolling-restart", {"down_ms": float("inf")}, "rolling-restart's down_ms is inf; it is from 0 to 1e"),
    ("slow", {"delay_ms": 10**400}, r"slow's delay_ms is 10+; it is from 0 to 1e"),
    ("lose", {"share": float("nan")}, "lose's share is nan; it is a number"),
])
def test_wrong_arguments_are_refused_in_words(name: str, args: dict[str, object], words: str) -> None:
    with pytest.raises(BadArguments, match=words):
        fault(name).checked(args)


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UnknownFault, match=r"there is no fault 'kil'; there are .*kill.*pause"):
        fault("kil")


@pytest.mark.parametrize("what", ["THEIRS", "_theirs"])
def test_the_faults_of_others_come_by_entry_point(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = [EntryPoint("theirs", f"{__name__}:{what}", faults.GROUP)]
    monkeypatch.setattr(faults, "entry_points", lambda group: brought)
    assert fault("theirs").name == "theirs"


def test_an_entry_point_that_brings_no_fault_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    brought = [EntryPoint("theirs", f"{__name__}:NO_FAULT", faults.GROUP)]
    monkeypatch.setattr(faults, "entry_points", lambda group: brought)
    with pytest.raises(UnknownFault, match="NO_FAULT, which brings the fault 'theirs', is no FaultKind"):
        fault("theirs")


@pytest.mark.parametrize(("what", "words"), [
    (f"{__name__}:_fails", "cannot be loaded: OSError: no licence"),
    ("no_such_module:F", "cannot be loaded: ModuleNot"), (f"{__name__}:GONE", "cannot be loaded: AttributeError")])
def test_an_entry_point_that_fails_is_said(what: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "entry_points", lambda group: [EntryPoint("theirs", what, faults.GROUP)])
    with pytest.raises(UnknownFault, match=f"{what}, which brings the fault 'theirs', {words}"):
        fault("theirs")


def test_abilities_that_faults_need_are_named_in_words() -> None:
    assert {need for each in FAULTS.values() for need in each.needs} <= set(Ability)
