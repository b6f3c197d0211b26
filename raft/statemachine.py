"""The state machine that a user writes, and the shell's way to call it, whichever optional parts it has.

Knows nothing of trio, threads, logs or roles; ``applier`` decides when and where these calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias

import attrs

from raft.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    CommandT = TypeVar("CommandT", default=bytes)
    CommandT_contra = TypeVar("CommandT_contra", default=bytes, contravariant=True)
    ResultT_co = TypeVar("ResultT_co", default=Any, covariant=True)
    AnswerT_co = TypeVar("AnswerT_co", default=Any, covariant=True)
else:  # TypeVar has no defaults before Python 3.13; only type checkers need them
    from typing import TypeVar

    CommandT, CommandT_contra = TypeVar("CommandT"), TypeVar("CommandT_contra", contravariant=True)
    ResultT_co, AnswerT_co = TypeVar("ResultT_co", covariant=True), TypeVar("AnswerT_co", covariant=True)

WRITE_BYTES = 1 << 20
"""Bytes at a time in which the result of ``snapshot`` is handed on."""

_METHODS: Final = (
    "apply", "apply_batch", "apply_entries", "query", "snapshot", "restore", "capture", "write", "restore_from")


class Sink(Protocol):
    """Takes a snapshot's bytes from ``write``, in pieces of any size."""

    def write(self, data: bytes) -> None: ...


@attrs.frozen
class Entries:
    """Committed commands that follow each other in the log, of one term: ``commands[i]`` is entry ``first + i``."""

    commands: list[bytes]
    term: int
    """Term of the leader that took the commands."""
    first: int
    """Index of the first command. Indexes rise but have gaps, since not every entry is a command."""
    time_ms: int
    """The leader's wall clock when it took them, in ms since the epoch. It is the same on every node, but that clock
    may be wrong, stand still or go back: use it for analysis, and never rely on it."""


@attrs.frozen
class Codec(Generic[CommandT]):
    """Turns commands into bytes of the log, and bytes into commands.

    ``decode`` must read what every earlier version of the program encoded, since the log lives longer. An error that it
    raises for bytes of the log stops the node, as one of ``apply`` does.
    """

    encode: Callable[[CommandT], bytes]
    decode: Callable[[bytes], CommandT]


class _Asked(Protocol[AnswerT_co]):
    """The part that ``StateMachine`` and ``EntryMachine`` share."""

    def query(self, data: bytes, /) -> AnswerT_co:
        """Answer a question and change nothing. Called after a read barrier; questions are not replicated."""
        raise UsageError(f"{type(self).__name__} has no query(data)")


class StateMachine(_Asked[AnswerT_co], Protocol[CommandT_contra, ResultT_co, AnswerT_co]):
    """A deterministic machine: the same commands in the same order give the same state and results everywhere.

    ``StateMachine[Command, Result, Answer]`` says what ``apply`` takes and returns, and what ``query`` returns; the
    node's ``propose`` and ``query`` have these types too. Commands are ``bytes`` unless the class has a ``codec``, a
    ``Codec[Command]``.

    Only ``apply`` is required (or ``apply_entries``, see ``EntryMachine``). Optional, found by name:

    ``apply_batch(commands: list[Command]) -> Sequence[Result]``
        Instead of ``apply`` for many at once; one result per command.
    ``snapshot() -> bytes`` and ``restore(data: bytes) -> None``
        For state that fits in memory twice.
    ``capture() -> view``, ``write(view, sink) -> None`` and ``restore_from(chunks: Iterator[bytes]) -> None``
        For larger state. ``capture`` is cheap and runs between two commands; ``write`` turns what it returned into
        bytes in a worker thread while commands go on being applied; ``restore_from`` runs in a worker thread, and
        replaces all state.
    ``threaded: bool``
        True: ``apply``, ``snapshot``, ``capture`` and ``restore`` block, so they run in a worker thread, one at a time.

    Without a way to make snapshots the log is never purged. An exception of ``apply`` stops the node: it becomes
    *faulted*, visibly, and skips nothing. So refuse bad commands with a result, not with an exception.
    """

    def apply(self, command: CommandT_contra, /) -> ResultT_co:
        """Carry out one committed command. The returned value is the result of ``propose``."""


class CodedMachine(StateMachine[CommandT, ResultT_co, AnswerT_co], Protocol[CommandT, ResultT_co, AnswerT_co]):
    """A ``StateMachine`` with a codec. Do not inherit from it: type checkers use it where commands are not bytes."""

    @property
    def codec(self) -> Codec[CommandT]: ...


class EntryMachine(_Asked[AnswerT_co], Protocol[ResultT_co, AnswerT_co]):
    """A state machine that must know which entry of the log each command is. All else is as in ``StateMachine``, but
    commands are bytes."""

    def apply_entries(self, entries: Entries, /) -> Sequence[ResultT_co]:
        """Carry out committed commands, in order, and return one result for each. Called instead of ``apply`` and
        ``apply_batch``.

        A frame of the log may come in several calls, but no call has commands of two frames.
        """


class Applies(Protocol):
    """The least that a state machine must have."""

    def apply(self, command: bytes, /) -> object: ...


class AppliesEntries(Protocol):
    """The least that an ``EntryMachine`` must have."""

    def apply_entries(self, entries: Entries, /) -> Sequence[object]: ...


AnyMachine: TypeAlias = CodedMachine[Any, Any, Any] | Applies | AppliesEntries
ApplyMany: TypeAlias = Callable[[list[bytes], int, int, int], list[object]]


@attrs.define(eq=False)
class Machine:
    """Gives every state machine the same methods. Raises ``UsageError`` for a machine that has half of a pair."""

    inner: AnyMachine
    encode: Callable[[Any], bytes] | None = attrs.field(init=False)
    """Turns a command into bytes; None: commands are bytes."""
    threaded: bool = attrs.field(init=False)
    snapshots: bool = attrs.field(init=False)
    """True if the machine can make and restore snapshots."""
    restore_in_thread: bool = attrs.field(init=False)
    apply_many: ApplyMany = attrs.field(init=False)
    """Applies commands in order, one result each: (commands, term, index of the first, leader's wall clock in ms)."""

    def __attrs_post_init__(self) -> None:
        inner: Any = self.inner
        codec = codec_of(inner)
        self.encode = codec.encode if codec is not None else None
        self._decode = codec.decode if codec is not None else None
        self.apply_many = self._found(inner, codec)
        for name in _METHODS:
            if iscoroutinefunction(getattr(inner, name, None)):
                raise UsageError(f"{name} of {type(inner).__name__} is an async function, and nobody awaits what it "
                                 "returns: make it a plain one; if it blocks, set threaded to True")
        streams = self._all_or_none("capture", "write", "restore_from")
        self.threaded = bool(getattr(inner, "threaded", False))
        self.snapshots = streams or self._all_or_none("snapshot", "restore")
        self.restore_in_thread = streams or self.threaded
        self._streams = streams

    _streams: bool = attrs.field(init=False)
    _decode: Callable[[bytes], Any] | None = attrs.field(init=False)

    def _all_or_none(self, *names: str) -> bool:
        missing = [name for name in names if not callable(getattr(self.inner, name, None))]
        if missing and len(missing) < len(names):
            raise UsageError(f"{type(self.inner).__name__} has some of {', '.join(names)} but not {', '.join(missing)}")
        return not missing

    @staticmethod
    def _found(inner: Any, codec: Codec[Any] | None) -> ApplyMany:
        """Return the way to apply that this machine has."""
        entries: Any = getattr(inner, "apply_entries", None)
        batch: Any = getattr(inner, "apply_batch", None)
        apply: Any = getattr(inner, "apply", None)

        def by_entries(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            given = len(commands)  # counted first, since the machine may change the list
            return _one_each("apply_entries", entries(Entries(commands, term, first, time_ms)), given)

        def by_batch(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            given = len(commands)
            return _one_each("apply_batch", batch(commands), given)

        def one_by_one(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            return [apply(command) for command in commands]

        def coded_batch(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            return _one_each("apply_batch", batch(list(map(decode, commands))), len(commands))

        def coded(commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
            return [apply(decode(command)) for command in commands]

        if isinstance(inner, type):
            raise UsageError(f"a state machine is an object, and this is its class: {inner.__name__}; make one of it")
        if callable(entries):
            if codec is not None:
                raise UsageError(f"{type(inner).__name__} has a codec, and apply_entries, which is given bytes")
            return by_entries
        if not callable(apply):
            raise UsageError(f"a state machine needs apply(command) or apply_entries(entries): {inner!r} has neither")
        if codec is not None:
            decode = codec.decode
            return coded if batch is None else coded_batch
        return one_by_one if batch is None else by_batch

    def check(self, command: bytes) -> None:
        """Raise ``UsageError`` for bytes that are no command of this machine: applying them would stop every node."""
        if self._decode is None:
            return
        try:
            self._decode(command)
        except Exception as error:
            raise UsageError(f"no command of {type(self.inner).__name__}: {type(error).__name__}: {error}") from error

    def capture(self) -> Any:
        """Return the present state, for ``write``. On the apply path."""
        inner: Any = self.inner
        if self._streams:
            return inner.capture()
        data = inner.snapshot()
        if not isinstance(data, (bytes, bytearray)):
            raise UsageError(f"snapshot() returned {type(data).__name__}, not bytes")
        return bytes(data)

    def write(self, view: Any, sink: Sink) -> None:
        """Write the state that ``capture`` returned, as bytes. Off the apply path."""
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


def _one_each(name: str, results: Sequence[object], given: int) -> list[object]:
    if len(results) != given:
        raise UsageError(f"{name} returned {len(results)} results for {given} commands")
    return results if isinstance(results, list) else list(results)


def codec_of(machine: object) -> Codec[Any] | None:
    """Return the codec of a machine, or of a class of machines; None: its commands are bytes."""
    codec = getattr(machine, "codec", None)
    return codec if isinstance(codec, Codec) else None


def query_of(machine: object) -> Callable[[bytes], object]:
    """Return the machine's own ``query``. Raises ``UsageError`` if it has none."""
    query: Callable[[bytes], object] | None = getattr(machine, "query", None)
    if query is None or getattr(query, "__func__", None) is _Asked.query:
        raise UsageError(f"{type(machine).__name__} has no query(data)")
    return query
