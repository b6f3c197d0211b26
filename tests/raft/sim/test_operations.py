"""Operations, their form on a tape, and the chance that makes them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.config import Read
from raft.errors import UsageError
from raft.sim.operations import Choices, Operation, bytes_of, from_tape, operation_of, text_of, to_tape


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_bytes_survive_as_text(data: bytes) -> None:
    assert bytes_of(text_of(data)) == data
    assert json.loads(json.dumps(text_of(data))) == text_of(data)


@given(st.binary(), st.sampled_from(["", "write"]), st.integers() | st.none() | st.lists(st.integers()))
def test_an_operation_survives_on_a_tape(data: bytes, f: str, value: Any) -> None:
    for operation in (Operation(command=data, f=f, value=value, refused=False),
                      Operation(query=data, f=f, key=value, level=Read.LEASE)):
        assert from_tape(json.loads(json.dumps(to_tape(operation, None))), None) == operation


def test_a_tape_of_another_machine_is_refused_in_words() -> None:
    def decode(data: bytes) -> object:
        raise KeyError("target")

    with pytest.raises(UsageError, match="recorded with another machine"):
        from_tape({"command": "x"}, decode)


def test_what_is_no_operation_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="a command or a query"):
        Operation()
    with pytest.raises(UsageError, match="a query is bytes"):
        Operation(query="x")  # type: ignore[arg-type]  # what is asked
    with pytest.raises(UsageError, match="a command is bytes"):
        to_tape(Operation(command={"x": 1}), None)
    assert operation_of(None) is None


def test_choices_are_a_random_of_the_seed() -> None:
    drawn = Choices().point(random.Random(1).random, 5, 2)
    assert (drawn.serial, drawn.client) == (5, 2)
    values = [drawn.randrange(1_000) for _ in range(300)]
    assert len(set(values)) > 200
    assert all(0 <= value < 1_000 for value in values)
    assert 0 <= drawn.getrandbits(7) < 128
    assert drawn.getrandbits(100) >> 100 == 0
    assert sorted(drawn.sample("abcd", 4)) == list("abcd")
