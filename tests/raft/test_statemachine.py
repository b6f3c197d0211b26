"""Which parts of a state machine are found, and how the optional ones are called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raft.errors import UsageError
from raft.statemachine import WRITE_BYTES, Machine, Sink


class Plain:
    def apply(self, command: bytes) -> object:
        return command.upper()


class Small(Plain):
    state = b""

    def snapshot(self) -> bytes:
        return self.state

    def restore(self, data: bytes) -> None:
        self.state = data


class Large(Plain):
    def __init__(self) -> None:
        self.rows = [b"one", b"two"]

    def capture(self) -> list[bytes]:
        return list(self.rows)

    def write(self, view: list[bytes], sink: Sink) -> None:
        for row in view:
            sink.write(row + b"\n")

    def restore_from(self, chunks: Iterator[bytes]) -> None:
        self.rows = b"".join(chunks).split()


class Pieces:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)


def test_only_apply_is_needed() -> None:
    machine = Machine(Plain())
    assert machine.apply_many([b"a", b"b"]) == [b"A", b"B"]
    assert not machine.snapshots and not machine.threaded


def test_batches_go_to_apply_batch_and_must_give_a_result_each() -> None:
    class Batches(Plain):
        def apply_batch(self, commands: list[bytes]) -> list[object]:
            return [len(command) for command in commands[:2]]

    machine = Machine(Batches())
    assert machine.apply_many([b"a", b"bb"]) == [1, 2]
    with pytest.raises(UsageError, match="2 results for 3 commands"):
        machine.apply_many([b"a", b"b", b"c"])


@pytest.mark.parametrize(("names", "missing"), [
    (("snapshot",), "restore"),
    (("restore",), "snapshot"),
    (("capture", "write"), "restore_from"),
    (("restore_from",), "capture, write"),
])
def test_half_of_a_pair_is_refused_in_words(names: tuple[str, ...], missing: str) -> None:
    half = type("Half", (Plain,), {name: lambda self: None for name in names})
    with pytest.raises(UsageError, match=rf"Half has some of .* but not {missing}$"):
        Machine(half())


def test_a_machine_without_apply_is_refused() -> None:
    with pytest.raises(UsageError, match="needs apply"):
        Machine(object())  # type: ignore[arg-type]


def test_the_shortcut_writes_in_pieces_and_restores_whole() -> None:
    small, sink = Small(), Pieces()
    small.state = bytes(range(256)) * (WRITE_BYTES // 128)
    machine = Machine(small)
    machine.write(machine.capture(), sink)
    assert [len(piece) for piece in sink.pieces] == [WRITE_BYTES, WRITE_BYTES]
    other = Small()
    Machine(other).restore(iter(sink.pieces))
    assert other.state == small.state


def test_a_captured_view_is_as_of_its_moment() -> None:
    large, sink = Large(), Pieces()
    machine = Machine(large)
    view = machine.capture()
    large.rows.append(b"three")
    machine.write(view, sink)
    other = Large()
    Machine(other).restore(iter(sink.pieces))
    assert other.rows == [b"one", b"two"]
    assert machine.restore_in_thread and not machine.threaded


def test_a_snapshot_that_is_no_bytes_is_refused() -> None:
    class Text(Small):
        def snapshot(self) -> bytes:
            return "text"  # type: ignore[return-value]

    with pytest.raises(UsageError, match="returned str"):
        Machine(Text()).capture()
