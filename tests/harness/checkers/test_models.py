"""Models by hand: each answer that is possible, each that is not, and words for operations that none knows."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checkers.models import ILLEGAL, MODELS, UNKNOWN, Call, UnknownOperation, frozen, thawed

Step = tuple[str, Any, Any]


@pytest.mark.parametrize(("name", "steps", "possible"), [
    ("register", [("read", None, None), ("write", 1, 1), ("cas", [1, 2], [1, 2]), ("read", None, 2)], True),
    ("register", [("write", 1, 1), ("cas", [2, 3], False), ("read", None, 1)], True),
    ("register", [("write", 1, 1), ("cas", [1, 3], False)], False),
    ("register", [("write", 1, 1), ("read", None, True)], False),
    ("register", [("write", True, None), ("read", None, 1)], False),
    ("register", [("write", [float("nan")], None), ("read", None, [float("nan")])], True),
    ("register", [("write", 1, None), ("read", None, float("nan"))], False),
    ("register", [("write", [True], None), ("read", None, [1])], False),
    ("register", [("write", True, None), ("cas", [1, 2], None)], False),
    ("register", [("write", 1, None), ("read", None, 1.0)], True),
    ("set", [("add", True, None), ("read", None, [1])], False),
    ("log", [("append", True, None), ("read", None, [1])], False),
    ("log", [("append", 1, True), ("append", 2, True), ("read", None, [1, 2])], True),
    ("log", [("append", True, 1)], False),
    ("kv", [("put", True, None), ("get", None, 1)], False),
    ("kv", [("append", True, None), ("txn", [["r", "k", None]], [["r", "k", [1]]])], False),
    ("fifo", [("enqueue", True, None), ("dequeue", None, 1)], False),
    ("register", [("write", {"a": [1]}, None), ("read", None, {"a": [1]})], True),
    ("set", [("add", 1, 1), ("add", 2, 2), ("remove", 1, 1), ("read", None, [2]), ("contains", 1, False)], True),
    ("set", [("add", 1, 1), ("read", None, [1, 2])], False),
    ("log", [("append", "a", 0), ("append", "b", 1), ("read", None, ["a", "b"])], True),
    ("log", [("append", "a", "a"), ("append", "b", 3)], False),
    ("kv", [("get", None, ""), ("put", "a", None), ("append", "b", None), ("get", None, "ab"), ("delete", None, None),
            ("get", None, None)], True),
    ("kv", [("append", 1, None), ("txn", [["r", "k", None], ["append", "k", 2], ["r", "k", None]],
                                  [["r", "k", [1]], ["append", "k", 2], ["r", "k", [1, 2]]])], True),
    ("kv", [("put", 3, None), ("append", 1, None)], False),
    ("kv", [("append", "a", None), ("get", None, "a")], True),
    ("kv", [("append", "a", None), ("get", None, ["a"])], False),
    ("kv", [("put", [], None), ("append", "a", None), ("get", None, ["a"])], True),
    ("fifo", [("dequeue", None, None), ("enqueue", 1, 1), ("enqueue", 2, 2), ("dequeue", None, 1),
              ("dequeue", None, UNKNOWN), ("dequeue", None, None)], True),
    ("fifo", [("enqueue", 1, 1), ("dequeue", None, None)], False),
    ("mutex", [("acquire", None, None), ("release", None, None), ("acquire", None, None)], True),
    ("mutex", [("acquire", None, None), ("acquire", None, None)], False),
])
def test_what_is_possible(name: str, steps: list[Step], possible: bool) -> None:
    model = MODELS[name]()
    state = model.begin()
    for step in steps:
        call = Call(*step)
        after = model.step(state, call)
        if model.reads(call) and after is not ILLEGAL:
            assert after == state, "a read changes nothing"
        state = after
        if state is ILLEGAL:
            break
    assert (state is not ILLEGAL) == possible


@pytest.mark.parametrize("name", MODELS)
def test_an_operation_that_none_knows(name: str) -> None:
    with pytest.raises(UnknownOperation, match="not fly"):
        MODELS[name]().step(MODELS[name]().begin(), Call("fly", None, None))


def test_a_cas_is_of_two_values() -> None:
    with pytest.raises(UnknownOperation, match=r"\[old, new\]"):
        MODELS["register"]().step(None, Call("cas", 3, 3))


def test_a_value_is_told_as_it_was_given() -> None:
    for value in (None, True, 1, "a", [1, [True, "b"]], 1.5):
        assert thawed(frozen(value)) == value
    assert frozen(True) != frozen(1)
