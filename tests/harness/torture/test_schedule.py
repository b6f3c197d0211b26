"""Scenarios are read, their schedules drawn from a seed, and kept as data."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from harness.targets.fields import FormatError
from harness.torture.scenario import parse
from harness.torture.schedule import draw, from_json, to_json
from harness.torture.selecting import choose, selector, unknown

TEXT = """
about = "everything"
target = "store"
seconds = 20
[options]
bug = "early"
[workload]
name = "register"
clients = 4
cas = 0.5
[check]
checkers = ["linearizable"]
options = { ordered = true }
[[faults]]
fault = "kill"
nodes = "one of kind:store"
every_s = [2, 4]
hold_s = 1
[[faults]]
fault = "cut"
nodes = "role:master"
at_s = [5.0, 25.0]
args = { side = "in" }
[[faults]]
fault = "slow"
nodes = "kind:store"
beside = true
at_s = 1.0
"""
KINDS = {"names-1": "names", **{f"store-{number}": "store" for number in range(1, 6)}}


def test_a_seed_is_a_schedule() -> None:
    scenario = parse(TEXT, "all")
    assert (scenario.load.clients, scenario.load.args, scenario.options) == (4, {"cas": 0.5}, {"bug": "early"})
    one = draw(scenario, KINDS, 7)
    assert one == draw(scenario, KINDS, 7) != draw(scenario, KINDS, 8)
    assert one == from_json(to_json(one))
    kills = [step for step in one.steps if step.fault == "kill"]
    assert len(kills) >= 4
    assert all(step.hold_ms == 1_000 and step.nodes.names[0].startswith("store-") for step in kills)
    assert all(2_000 <= after.at_ms - before.at_ms <= 4_000 for before, after in itertools.pairwise(kills))
    [cut] = [step for step in one.steps if step.fault == "cut"]  # the other moment is behind the end
    assert (cut.at_ms, cut.nodes.words, cut.args) == (5_000, "role:master", {"side": "in"})
    assert "cut role:master, side in, for" in one.words()
    assert [step.fault for step in one.steps if step.beside] == ["slow"]


@pytest.mark.parametrize(("words", "fits"), [
    ("one", 1), ("two", 2), ("minority", 2), ("majority", 4), ("all", 6), ("4", 4), ("99", 6),
    ("minority of kind:store", 2), ("majority of kind:store", 3),
    ("all of kind:store not role:master", 4), ("role:master", 1), ("kind:names", 1), ("one not role:master", 1)])
def test_selectors(words: str, fits: int) -> None:
    which = selector(words, "nodes")
    for seed in range(5):
        found = choose(which, KINDS, {"master": ["store-2"]}, (), Random(seed))
        assert len(found) == fits
        assert ("store-2" in found) is ("role:master" in words and "not" not in words) or "role" not in words


def test_who_is_taken_is_not_chosen() -> None:
    assert choose(selector("all of kind:store", ""), KINDS, {}, ("store-1", "store-4"), Random(0)) == (
        "store-2", "store-3", "store-5")
    assert choose(selector(["store-1", "names-1"], ""), KINDS, {}, ("store-1",), Random(0)) == ("names-1",)
    assert choose(selector("role:master", ""), KINDS, {}, (), Random(0)) == ()


def test_nodes_that_there_are_not() -> None:
    assert "there are names, store" in unknown(selector("one of kind:stroe", ""), KINDS, True)
    assert "needs [roles]" in unknown(selector("role:master", ""), KINDS, False)
    assert "no node store-9" in unknown(selector(["store-9"], ""), KINDS, True)
    assert unknown(selector("role:master", ""), KINDS, True) == ""


@pytest.mark.parametrize(("old", "new", "words"), [
    ("seconds = 20", "seconds = 0", "seconds is 0; it is at least 0.1"),
    ("seconds = 20", "second = 20", "seconds is missing"),
    ("[workload]\nname", "[wrokload]\nname", r"\[workload\] is missing"),
    ("clients = 4", "clients = 1000", "at most 200"),
    ('nodes = "role:master"', 'nodes = "rule:master"', "no kind:NAME"),
    ('nodes = "role:master"', 'nodes = "one not"', "nothing follows"),
    ('nodes = "role:master"', "nodes = 3", "a list of names"),
    ("hold_s = 1", "hold_s = [3, 1]", r"\[faults 1\] hold_s is \[3, 1\]; a number of seconds"),
    ("hold_s = 1", "hold_s = inf", r"\[faults 1\] hold_s is inf; a number of seconds .* at most 1e"),
    ("hold_s = 1", "hold_s = [1, 1e308]", r"hold_s is \[1, 1e\+308\]"),
    ("every_s = [2, 4]", "every_s = [2, inf]", r"every_s is \[2, inf\]"),
    ("hold_s = 1", "hold_s = nan", "hold_s is nan"),
    ("every_s = [2, 4]", "", "either every_s or at_s"),
    ("at_s = [5.0, 25.0]", 'at_s = "soon"', "seconds since the beginning"),
    ("ordered = true", "orderd = true", "known are ordered"),
    ("every_s = [2, 4]", "every_s = 0.0", "at least 0.05"),
])
def test_what_a_scenario_must_not_say(old: str, new: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse(TEXT.replace(old, new, 1), "all")


@pytest.mark.parametrize(("found", "words"), [
    ([], "an object"), ({"seed": 1}, "seconds is missing"),
    ({"seed": 1, "seconds": 2, "clients": 1, "steps": [{"at_ms": -1}]}, r"\[steps 1\] at_ms is -1"),
])
def test_what_is_no_schedule(found: object, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        from_json(found)
