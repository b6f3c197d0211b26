"""Which checker fits a history, and a user's own, from files and in words where it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checkers.chosen import NotChosen, checker, fitting, functions, model
from harness.checkers.models import MODELS
from harness.histories.events import INFO, INVOKE, NEMESIS, Event


@pytest.mark.parametrize(("asked", "name"), [
    ({"read", "write", "cas"}, "register"), ({"get", "put"}, "kv"), ({"get", "put", "append"}, "kv"), ({"txn"}, "kv"),
    ({"add", "read"}, "set"), ({"append", "read"}, "log"), ({"enqueue", "dequeue"}, "queue"),
    ({"send", "drain"}, "queue"),
    ({"acquire", "release"}, "mutex"),
])
def test_what_fits(asked: set[str], name: str) -> None:
    assert fitting(asked) == name


@pytest.mark.parametrize(("asked", "words"), [(set(), "nothing to check"), ({"fly"}, "no checker knows all of fly")])
def test_what_does_not(asked: set[str], words: str) -> None:
    with pytest.raises(NotChosen, match=words):
        fitting(asked)


def test_functions_are_those_of_clients() -> None:
    events = [Event(0, INFO, NEMESIS, "kill", None, None, 0), Event(1, INVOKE, 0, "read", None, None, 1)]
    assert functions(events) == {"read"}


def test_a_users_own(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text(
        "class Mine:\n    def begin(self): ...\n    def step(self, state, call): ...\n    def reads(self, call): ...\n"
        "class Half:\n    def begin(self): ...\ndef judge(events): ...\n")
    assert type(model(f"{tmp_path}/queue.py:Mine")()).__name__ == "Mine"
    assert checker(f"{tmp_path}/queue.py:judge")([]) is None
    assert model("register") is MODELS["register"]
    for name, words in (
            (f"{tmp_path}/queue.py:Half", "has no step, reads"),
            (f"{tmp_path}/queue.py:None", "cannot be loaded"),
            (f"{tmp_path}/gone.py:Mine", "there is no file"), ("nothing", "no model is called nothing")):
        with pytest.raises(NotChosen, match=words):
            model(name)
    (tmp_path / "broken.py").write_text("def judge(events)")
    with pytest.raises(NotChosen, match="cannot be loaded: SyntaxError"):
        checker(f"{tmp_path}/broken.py:judge")
    with pytest.raises(NotChosen, match="no checker is called nothing"):
        checker("nothing")
