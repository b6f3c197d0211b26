"""What a user writes: a state machine. And how the shell calls it, whichever of the optional parts it has.

Knows nothing of trio, threads, logs or roles; ``applier`` decides when and where these calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import attrs

from raft.errors import UsageError

WRITE_BYTES = 1 << 20
"""Piece in which the ``snapshot`` shortcut hands its bytes on."""


class Sink(Protocol):
    """Where ``write`` puts a snapshot's bytes, in pieces of any size."""

    def write(self, data: bytes) -> None: ...


class StateMachine(Protocol):
    """A deterministic machine: the same commands in the same order give the same state and results everywhere.

    Only ``apply`` is required. Optional, found by name:

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


@attrs.define(eq=False)
class Machine:
    """One shape for every state machine. Raises ``UsageError`` for a machine that has half of a pair."""

    inner: StateMachine
    threaded: bool = attrs.field(init=False)
    snapshots: bool = attrs.field(init=False)
    """Whether it can make and restore snapshots."""
    restore_in_thread: bool = attrs.field(init=False)
    apply_many: Callable[[list[bytes]], list[object]] = attrs.field(init=False)
    """Apply in order, one result each."""

    def __attrs_post_init__(self) -> None:
        inner = self.inner
        if not callable(getattr(inner, "apply", None)):
            raise UsageError(f"a state machine needs apply(command): {inner!r} has none")
        streams = self._all_or_none("capture", "write", "restore_from")
        self.threaded = bool(getattr(inner, "threaded", False))
        self.snapshots = streams or self._all_or_none("snapshot", "restore")
        self.restore_in_thread = streams or self.threaded
        batch: Callable[[list[bytes]], list[object]] | None = getattr(inner, "apply_batch", None)
        self.apply_many = self._one_by_one if batch is None else self._checked(batch)
        self._streams = streams

    _streams: bool = attrs.field(init=False)

    def _all_or_none(self, *names: str) -> bool:
        missing = [name for name in names if not callable(getattr(self.inner, name, None))]
        if missing and len(missing) < len(names):
            raise UsageError(f"{type(self.inner).__name__} has some of {', '.join(names)} but not {', '.join(missing)}")
        return not missing

    def _one_by_one(self, commands: list[bytes]) -> list[object]:
        apply = self.inner.apply
        return [apply(command) for command in commands]

    @staticmethod
    def _checked(batch: Callable[[list[bytes]], list[object]]) -> Callable[[list[bytes]], list[object]]:
        def apply_many(commands: list[bytes]) -> list[object]:
            results = batch(commands)
            if len(results) != len(commands):
                raise UsageError(f"apply_batch returned {len(results)} results for {len(commands)} commands")
            return results

        return apply_many

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
