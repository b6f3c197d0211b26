"""What a user writes: a state machine. And how the shell calls it, whichever of the optional parts it has.

Knows nothing of trio, threads, logs or roles; ``applier`` decides when and where these calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import attrs

from raft.errors import UsageError

WRITE_BYTES = 1 << 20
"""Piece in which the ``snapshot`` shortcut hands its bytes on."""


class Sink(Protocol):
    """Where ``write`` puts a snapshot's bytes, in pieces of any size."""

    def write(self, data: bytes) -> None: ...


@attrs.frozen
class Entries:
    """Committed commands that follow each other in the log, all of one term: ``commands[i]`` is entry ``first + i``."""

    commands: list[bytes]
    term: int
    """Term of the leader that took them."""
    first: int
    """Index of the first of them. Indexes rise but have gaps: not every entry is a command."""
    time_ms: int
    """That leader's wall clock when it did, ms since the epoch: the same on every node, but of a clock that may be
    wrong, stand still or go back. For analysis; nothing that must be right may rest on it."""


class StateMachine(Protocol):
    """A deterministic machine: the same commands in the same order give the same state and results everywhere.

    Only ``apply`` is required (or ``apply_entries``, see ``EntryMachine``). Optional, found by name:

    ``apply_batch(commands: list[bytes]) -> list[object]``
        Instead of ``apply`` for many at once; one result per command.
    ``snapshot() -> bytes`` and ``restore(data: bytes) -> None``
        For state that fits in memory twice.
    ``capture() -> view``, ``write(view, sink) -> None`` and ``restore_from(chunks: Iterator[bytes]) -> None``
        For larger state. ``capture`` is cheap and runs between two commands; ``write`` turns what it returned into
        bytes in a worker thread while commands go on being applied; ``restore_from`` runs in a worker thread, and
        replaces all state.
    ``threaded: bool``
        True: ``apply``, ``snapshot``, ``capture`` and ``restore`` block, so they run in a worker thread, one at a time.

    ``query(data: bytes) -> object``
        What clients outside may ask; called after the read barrier they chose, never replicated.

    Without a way to make snapshots the log is never purged. An exception out of ``apply`` stops the node: it becomes
    *faulted*, visibly, and skips nothing. So refuse bad commands with a result, not with an exception.
    """

    def apply(self, command: bytes) -> object:
        """Carry out one committed command; what it returns is the result of ``propose``."""


class EntryMachine(Protocol):
    """A state machine that must know which entry of the log each command is. All else as in ``StateMachine``."""

    def apply_entries(self, entries: Entries) -> list[object]:
        """Carry out committed commands, in order; one result each. Called instead of ``apply`` and ``apply_batch``.

        A frame of the log may come in several calls, and never do two frames come in one.
        """


AnyMachine: TypeAlias = StateMachine | EntryMachine
ApplyMany: TypeAlias = Callable[[list[bytes], int, int, int], list[object]]


@attrs.define(eq=False)
class Machine:
    """One shape for every state machine. Raises ``UsageError`` for a machine that has half of a pair."""

    inner: AnyMachine
    threaded: bool = attrs.field(init=False)
    snapshots: bool = attrs.field(init=False)
    """Whether it can make and restore snapshots."""
    restore_in_thread: bool = attrs.field(init=False)
    apply_many: ApplyMany = attrs.field(init=False)
    """Apply commands in order, one result each: (commands, term, index of the first, leader's wall clock in ms)."""

    def __attrs_post_init__(self) -> None:
        inner: Any = self.inner
        self.apply_many = self._found(inner)
        streams = self._all_or_none("capture", "write", "restore_from")
        self.threaded = bool(getattr(inner, "threaded", False))
        self.snapshots = streams or self._all_or_none("snapshot", "restore")
        self.restore_in_thread = streams or self.threaded
        self._streams = streams

    _streams: bool = attrs.field(init=False)

    def _all_or_none(self, *names: str) -> bool:
        missing = [name for name in names if not callable(getattr(self.inner, name, None))]
        if missing and len(missing) < len(names):
            raise UsageError(f"{type(self.inner).__name__} has some of {', '.join(names)} but not {', '.join(missing)}")
        return not missing

    @staticmethod
    def _found(inner: Any) -> ApplyMany:
        """Which of the ways to apply this machine has."""
        entries: Any = getattr(inner, "apply_entries", None)
        batch: Any = getattr(inner, "apply_batch", None)
        apply: Any = getattr(inner, "apply", None)

        def by_entries(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            return _one_each("apply_entries", entries(Entries(commands, term, first, time_ms)), commands)

        def by_batch(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            return _one_each("apply_batch", batch(commands), commands)

        def one_by_one(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            return [apply(command) for command in commands]

        if callable(entries):
            return by_entries
        if not callable(apply):
            raise UsageError(f"a state machine needs apply(command) or apply_entries(entries): {inner!r} has neither")
        return one_by_one if batch is None else by_batch

    def capture(self) -> Any:
        """The state as of now, for ``write``. On the apply path."""
        inner: Any = self.inner
        if self._streams:
            return inner.capture()
        data = inner.snapshot()
        if not isinstance(data, (bytes, bytearray)):
            raise UsageError(f"snapshot() returned {type(data).__name__}, not bytes")
        return bytes(data)

    def write(self, view: Any, sink: Sink) -> None:
        """Turn what ``capture`` returned into bytes. Off the apply path."""
        inner: Any = self.inner
        if self._streams:
            inner.write(view, sink)
        else:
            for start in range(0, len(view), WRITE_BYTES):
                sink.write(view[start : start + WRITE_BYTES])

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace all state by a snapshot's."""
        inner: Any = self.inner
        if self._streams:
            iterator: Iterator[bytes] = iter(chunks)
            inner.restore_from(iterator)
        else:
            inner.restore(b"".join(chunks))


def _one_each(name: str, results: list[object], commands: list[bytes]) -> list[object]:
    if len(results) != len(commands):
        raise UsageError(f"{name} returned {len(results)} results for {len(commands)} commands")
    return results
