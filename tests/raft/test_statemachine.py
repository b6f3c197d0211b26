"""Which parts of a state machine are found, and how the optional ones are called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raft.config import Config
from raft.errors import UsageError
from raft.sim import Cluster
from raft.statemachine import WRITE_BYTES, Codec, Entries, EntryMachine, Machine, Sink, StateMachine, query_of


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
    assert machine.apply_many([b"a", b"b"], 1, 1, 0) == [b"A", b"B"]
    assert not machine.snapshots and not machine.threaded


def test_batches_go_to_apply_batch_and_must_give_a_result_each() -> None:
    class Batches(Plain):
        def apply_batch(self, commands: list[bytes]) -> list[object]:
            return [len(command) for command in commands[:2]]

    machine = Machine(Batches())
    assert machine.apply_many([b"a", b"bb"], 1, 1, 0) == [1, 2]
    with pytest.raises(UsageError, match="2 results for 3 commands"):
        machine.apply_many([b"a", b"b", b"c"], 1, 1, 0)


def test_entries_go_to_apply_entries_before_anything_else() -> None:
    class Knowing:
        def __init__(self) -> None:
            self.seen: list[Entries] = []

        def apply_entries(self, entries: Entries) -> list[object]:
            self.seen.append(entries)
            return [entries.first + i for i in range(len(entries.commands[:2]))]

    class All(Knowing, Plain):
        def apply_batch(self, commands: list[bytes]) -> list[object]:
            raise AssertionError

    for inner in (Knowing(), All()):
        machine = Machine(inner)
        assert machine.apply_many([b"a", b"bb"], 3, 7, 1_000) == [7, 8]
        assert inner.seen == [Entries([b"a", b"bb"], term=3, first=7, time_ms=1_000)]
        with pytest.raises(UsageError, match="apply_entries returned 2 results for 3 commands"):
            machine.apply_many([b"a", b"b", b"c"], 3, 9, 1_000)


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
    with pytest.raises(UsageError, match=r"needs apply\(command\) or apply_entries"):
        Machine(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["apply", "apply_batch", "apply_entries", "query", "snapshot", "restore"])
def test_a_method_that_nobody_would_await_is_refused(name: str) -> None:
    async def later(self: object, given: object = None) -> None: ...

    made = type("Async", (Small,), {name: later})
    with pytest.raises(UsageError, match=f"^{name} of Async is an async function"):
        Machine(made())


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


class Plans:
    """A command says for which term it was meant, and does nothing in another."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def apply_entries(self, entries: Entries) -> list[object]:
        taken: list[object] = []
        for index, command in enumerate(entries.commands, entries.first):
            taken.append(int(command) == entries.term)
            if taken[-1]:
                self.steps.append(index)
        return taken


def test_in_a_simulation_a_machine_knows_the_entries_too() -> None:
    with Cluster(3, Plans, seed=5, config=Config(frame_entries_max=4)) as cluster:
        old = 0
        for leadership in range(1, 4):
            cluster.propose(b"0")  # for no term at all; returns when somebody leads
            name = cluster.leader
            assert name is not None
            term = cluster.life(name).replica.term
            assert cluster.propose(*[b"%d" % term] * 9) == [True] * 9
            assert term > old and cluster.propose(b"%d" % old) is False
            old = term
            cluster.run_ms(500)
            steps = [cluster.machine(node).steps for node in cluster.running]
            assert steps[0] == steps[1] == steps[2] and len(steps[0]) == 9 * leadership
            cluster.crash(name)
            cluster.run_ms(3_000)
            cluster.restart(name)


# --- types and codecs


def number(data: bytes) -> int:
    return int(data)


def digits(command: int) -> bytes:
    return b"%d" % command


class Sum(StateMachine[int, int, str]):
    codec = Codec(digits, number)

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, command: int) -> int:
        self.sum += command
        return self.sum

    def query(self, data: bytes) -> str:
        return str(self.sum)

    def snapshot(self) -> bytes:
        return b"%d" % self.sum

    def restore(self, data: bytes) -> None:
        self.sum = int(data)


def test_a_machine_with_a_codec_is_given_its_own_commands() -> None:
    machine = Machine(Sum())
    assert machine.encode is not None and machine.encode(7) == b"7"
    assert machine.apply_many([b"7", b"5"], 1, 1, 0) == [7, 12]


def test_apply_batch_is_given_them_too() -> None:
    class Batches(Sum):
        def apply_batch(self, commands: list[int]) -> tuple[int, ...]:
            return tuple(map(self.apply, commands))

    assert Machine(Batches()).apply_many([b"7", b"5"], 1, 1, 0) == [7, 12]


def test_what_is_no_command_is_known_before_it_is_applied() -> None:
    machine = Machine(Sum())
    machine.check(b"12")
    with pytest.raises(UsageError, match=r"no command of Sum: ValueError"):
        machine.check(b"twelve")
    Machine(Plain()).check(b"twelve")


def test_an_attribute_that_is_no_codec_is_the_machines_own() -> None:
    class Video(Plain):
        codec = "av1"

    machine = Machine(Video())
    assert machine.encode is None and machine.apply_many([b"a"], 1, 1, 0) == [b"A"]


def test_entries_are_bytes() -> None:
    class Both(EntryMachine[int, str]):
        codec = Codec(digits, number)

        def apply_entries(self, entries: Entries) -> list[int]:
            return [0 for _ in entries.commands]

    with pytest.raises(UsageError, match="Both has a codec, and apply_entries"):
        Machine(Both())


def test_a_machine_that_inherits_no_query_of_its_own_has_none() -> None:
    class Silent(StateMachine):
        def apply(self, command: bytes) -> None: ...

    for silent in (Silent(), Plain()):
        with pytest.raises(UsageError, match=r"has no query\(data\)"):
            query_of(silent)
    with pytest.raises(UsageError, match="Silent has no query"):
        Silent().query(b"")
    assert query_of(Sum())(b"") == "0"


def test_a_simulated_cluster_takes_commands_of_a_codec() -> None:
    with Cluster(3, Sum, seed=1) as cluster:
        assert cluster.propose(7) == 7
        cluster.crash(cluster.leader)
        assert cluster.propose(5, 1) == [12, 13]
