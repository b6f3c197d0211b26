"""The codec of attrs classes: what goes in comes out, older bytes are read, and what is no command is refused."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.examples import dictionary, locks, queue
from raft.examples.commands import cbor_codec
from raft.statemachine import Codec

TEXT, NUMBER = st.text(max_size=8), st.integers(0, 1 << 62)
COMMANDS = st.one_of(
    st.builds(dictionary.Put, TEXT, st.binary(max_size=9), st.none() | NUMBER),
    st.builds(dictionary.Delete, TEXT, st.none() | NUMBER),
    st.builds(locks.Acquire, TEXT, TEXT, NUMBER, NUMBER), st.builds(locks.Renew, TEXT, NUMBER),
    st.builds(locks.Release, TEXT, NUMBER),
    st.just(queue.OpenSession()),
    st.builds(queue.Push, NUMBER.filter(bool), NUMBER.filter(bool), st.binary(max_size=9)),
    st.builds(queue.Pop, NUMBER.filter(bool), NUMBER.filter(bool)))


def codec_for(command: object) -> Codec[Any]:
    codecs: dict[str, Codec[Any]] = {
        "dictionary": dictionary.Dictionary.codec, "locks": locks.Locks.codec, "queue": queue.Queue.codec}
    return codecs[type(command).__module__.rpartition(".")[2]]


@given(COMMANDS)
def test_a_command_comes_back(command: Any) -> None:
    codec = codec_for(command)
    assert codec.decode(codec.encode(command)) == command


def test_bytes_of_before_a_field_was_added_are_read() -> None:
    assert locks.Locks.codec.decode(cbor2.dumps(["Acquire", "n", "o"])) == locks.Acquire("n", "o", 0, 0)


@pytest.mark.parametrize("value", [
    [], 7, None, "Put", ["Nothing"], [1, "k", b"v"], ["Put"], ["Put", "k"], ["Put", "k", "v"], ["Put", 1, b"v"],
    ["Put", "k", b"v", -1], ["Put", "k", b"v", None, 1], ["Delete", b"k"],
])
def test_what_is_no_command_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        dictionary.Dictionary.codec.decode(cbor2.dumps(value))


def test_a_command_of_another_machine_is_not_encoded() -> None:
    with pytest.raises(TypeError, match="no command here"):
        dictionary.Dictionary.codec.encode(queue.Push(1, 1, b"x"))  # type: ignore[arg-type]

    @attrs.frozen
    class One:
        at: int

    assert cbor_codec(One).decode(cbor_codec(One).encode(One(4))) == One(4)
