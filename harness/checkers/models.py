"""Sequential specifications: the answers of a system that does one operation after the other.

A state is any hashable value. ``step`` gets operations that were ``ok``, with their results, and those of unknown
outcome, with UNKNOWN: then any result is possible. A user's own model is a class with the same three methods. Knows no
history and no search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

import attrs


class _Nothing:
    """A value that equals only itself."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


ILLEGAL: Final = _Nothing("ILLEGAL")
"""Returned in place of a state: this answer is not possible."""
UNKNOWN: Final = _Nothing("UNKNOWN")
"""In place of a result: no client got it."""

NAN: Final = _Nothing("NaN")
"""Of every NaN, since it is not equal to itself."""

State = Hashable


@attrs.frozen
class Call:
    """An operation for a model. ``result`` is UNKNOWN if its outcome is."""

    f: str
    value: Any
    result: Any


class Model(Protocol):
    """The specification of one key. ``reads`` names operations that never change the state if they are possible."""

    def begin(self) -> State:
        """The state before the first operation."""
        ...

    def step(self, state: State, asked: Call) -> State:
        """The state after it; ILLEGAL if it cannot be answered so. Raises ``UnknownOperation``."""
        ...

    def reads(self, asked: Call) -> bool:
        """Return whether it surely changes nothing. False is always correct, but slower."""
        ...


class UnknownOperation(ValueError):
    """A model does not know such an operation."""


class Base:
    """Base class of the models. ``functions``: each known function name -> the name in ``step``."""

    functions: ClassVar[Mapping[str, str]] = {}

    def begin(self) -> State:
        """The state before the first operation."""
        raise NotImplementedError

    def step(self, state: State, asked: Call) -> State:
        """The state after it, or ILLEGAL."""
        raise NotImplementedError

    def known(self, asked: Call) -> str:
        """The function's name in ``step``. Raises ``UnknownOperation``."""
        found = self.functions.get(asked.f)
        if found is None:
            raise UnknownOperation(f"{type(self).__name__.lower()} knows {', '.join(dict.fromkeys(self.functions))}, "
                                   f"not {asked.f}")
        return found

    def reads(self, asked: Call) -> bool:
        """Return whether it surely changes nothing."""
        return self.known(asked) == "read"

    def tells(self, asked: Call) -> bool:
        """Return whether its answer can be wrong: what was written and never read says nothing of a system."""
        return True

    def words(self, state: State) -> str:
        """A state, in words for people."""
        return repr(thawed(state))

    def idle(self, unknown: Sequence[Call], known: Sequence[Call]) -> Iterable[int]:
        """Indexes in ``unknown`` of operations that no answer shows: any order is also one without them."""
        return ()


_READ: Final = {"read": "read", "get": "read", "r": "read"}
_WRITE: Final = {"write": "write", "put": "write", "set": "write", "w": "write"}
_CAS: Final = {"cas": "cas", "compare-and-set": "cas"}


class Register(Base):
    """One value: read, write, and cas of [old, new]. It begins with nothing.

    A cas that is ``ok`` changed the value; with the result false it found another value.
    """

    functions: ClassVar[Mapping[str, str]] = {
        **_READ, **_WRITE, **_CAS}

    def __init__(self, initial: Any = None) -> None:
        self._initial = frozen(initial)

    def begin(self) -> State:
        return self._initial

    def step(self, state: State, asked: Call) -> State:
        does = self.known(asked)
        if does == "read":
            return state if asked.result is UNKNOWN or frozen(asked.result) == state else ILLEGAL
        if does == "write":
            return frozen(asked.value)
        old, new = _pair(asked)
        if asked.result is False:
            return ILLEGAL if frozen(old) == state else state
        return frozen(new) if frozen(old) == state else ILLEGAL

    def reads(self, asked: Call) -> bool:
        return self.known(asked) == "read" or (self.known(asked) == "cas" and asked.result is False)

    def tells(self, asked: Call) -> bool:
        return self.known(asked) in ("read", "cas")

    def idle(self, unknown: Sequence[Call], known: Sequence[Call]) -> Iterable[int]:
        if any(each.result is False for each in known):
            return ()  # any write may explain why a cas failed
        seen = {frozen(each.result) for each in known if self.known(each) == "read"}
        seen |= {frozen(_pair(each)[0]) for each in (*known, *unknown) if self.known(each) == "cas"}
        return [place for place, each in enumerate(unknown) if _left(self.known(each), each) not in seen]


def _left(does: str, asked: Call) -> State:
    """The value that a write or a cas leaves."""
    return frozen(_pair(asked)[1] if does == "cas" else asked.value)


def _pair(asked: Call) -> tuple[Any, Any]:
    if not isinstance(asked.value, list | tuple) or len(asked.value) != 2:
        raise UnknownOperation(f"the value of {asked.f} is [old, new], not {asked.value!r}")
    old, new = asked.value
    return old, new


def _elements(asked: Call) -> Iterable[Any]:
    """The elements that a read was told; none of nothing. Raises ``UnknownOperation`` for what has no elements."""
    if asked.result is None:
        return ()
    if not isinstance(asked.result, list | tuple | set | frozenset):
        raise UnknownOperation(f"a {asked.f} of a set or a log is answered with a list, not {asked.result!r}: name "
                               "another model with --model, perhaps one of your own, FILE.py:CLASS")
    return asked.result


class Sets(Base):
    """A set: add and remove an element, read all of them, or contains."""

    functions: ClassVar[Mapping[str, str]] = {
        **_READ, "add": "add", "insert": "add", "remove": "remove", "contains": "contains"}

    def __init__(self) -> None:
        self._bits: dict[State, int] = {}

    def begin(self) -> State:
        return 0

    def _bit(self, element: Any) -> int:
        return 1 << self._bits.setdefault(frozen(element), len(self._bits))

    def step(self, state: State, asked: Call) -> State:
        assert isinstance(state, int)
        does = self.known(asked)
        if does == "read":
            return state if asked.result is UNKNOWN or self._all(_elements(asked)) == state else ILLEGAL
        bit = self._bit(asked.value)
        if does == "contains":
            return state if asked.result is UNKNOWN or bool(state & bit) == bool(asked.result) else ILLEGAL
        return state | bit if does == "add" else state & ~bit

    def _all(self, elements: Iterable[Any]) -> int:
        found = 0
        for element in elements:
            found |= self._bit(element)
        return found

    def reads(self, asked: Call) -> bool:
        return self.known(asked) in ("read", "contains")

    def tells(self, asked: Call) -> bool:
        return self.reads(asked)

    def words(self, state: State) -> str:
        assert isinstance(state, int)
        return "{" + ", ".join(repr(thawed(each)) for each, place in self._bits.items() if state >> place & 1) + "}"

    def idle(self, unknown: Sequence[Call], known: Sequence[Call]) -> Iterable[int]:
        if any(self.known(each) in ("remove", "contains") for each in (*known, *unknown)):
            return ()
        seen = {frozen(element) for each in known if self.known(each) == "read" for element in _elements(each)}
        return [place for place, each in enumerate(unknown) if frozen(each.value) not in seen]


class Log(Base):
    """A growing list: append an element, read all elements in order. An append's result may be its place."""

    functions: ClassVar[Mapping[str, str]] = {
        **_READ, "append": "append"}

    def __init__(self) -> None:
        self._after: dict[tuple[int, State], int] = {}
        self._length = [0]

    def begin(self) -> State:
        return 0

    def _next(self, state: int, element: Any) -> int:
        made = self._after.setdefault((state, frozen(element)), len(self._length))
        if made == len(self._length):
            self._length.append(self._length[state] + 1)
        return made

    def step(self, state: State, asked: Call) -> State:
        assert isinstance(state, int)
        if self.known(asked) == "append":
            placed = _is_place(asked) and asked.result != self._length[state]
            return ILLEGAL if placed else self._next(state, asked.value)
        if asked.result is UNKNOWN:
            return state
        found = 0
        for element in _elements(asked):
            found = self._next(found, element)
        return state if found == state else ILLEGAL

    def tells(self, asked: Call) -> bool:
        return self.known(asked) == "read" or _is_place(asked)

    def words(self, state: State) -> str:
        before: dict[State, tuple[int, State]] = {made: at for at, made in self._after.items()}
        found = []
        while state != 0:
            state, element = before[state]
            found.append(thawed(element))
        return repr(found[::-1])

    def idle(self, unknown: Sequence[Call], known: Sequence[Call]) -> Iterable[int]:
        if any(self.known(each) == "append" and _is_place(each) for each in known):
            return ()  # any append may explain the place that another one got
        seen = {frozen(element) for each in known if self.known(each) == "read" for element in _elements(each)}
        return [place for place, each in enumerate(unknown) if frozen(each.value) not in seen]


def _is_place(append: Call) -> bool:
    """Return whether the answer to an append tells a place: a number that is not the element itself."""
    return type(append.result) is int and frozen(append.result) != frozen(append.value)


class KeyValue(Base):
    """The value of one key: get, put, delete, cas of [old, new], append to a string or list, and txn.

    An append to nothing makes a string of a string, and a list of anything else.

    A txn is a list of [f, key, value] that happen at once, all of one key: r, w and append.
    """

    functions: ClassVar[Mapping[str, str]] = {
        **_READ, **_WRITE, **_CAS, "delete": "delete", "append": "append", "txn": "txn"}

    def __init__(self) -> None:
        self._register = Register()

    def begin(self) -> State:
        return None

    def step(self, state: State, asked: Call) -> State:
        does = self.known(asked)
        if does == "txn":
            return self._txn(state, asked)
        if does == "delete":
            return None
        if does == "append":
            return _appended(state, asked.value)
        if does == "read" and state is None and asked.result in ("", None):
            return state  # stores answer differently where a value is missing
        return self._register.step(state, asked)

    def _txn(self, state: State, asked: Call) -> State:
        parts = _parts(asked)
        if asked.result is not UNKNOWN and not (is_txn(asked.result) and len(asked.result) == len(parts)):
            raise UnknownOperation(f"the answer to {asked.f} {parts!r} is a list of as many [f, key, value], not "
                                   f"{asked.result!r}")
        told = [UNKNOWN] * len(parts) if asked.result is UNKNOWN else [result for _, _, result in asked.result]
        for (f, _, value), result in zip(parts, told, strict=True):
            state = self.step(state, Call(str(f), value, result))
            if state is ILLEGAL:
                break
        return state

    def reads(self, asked: Call) -> bool:
        does = self.known(asked)
        if does == "txn":
            return all(self.known(Call(str(f), None, None)) == "read" for f, _, _ in _parts(asked))
        return does == "read" or (does == "cas" and asked.result is False)

    def tells(self, asked: Call) -> bool:
        does = self.known(asked)
        if does == "txn":
            return any(self.tells(Call(str(f), None, None)) for f, _, _ in _parts(asked))
        return does in ("read", "cas")

    def idle(self, unknown: Sequence[Call], known: Sequence[Call]) -> Iterable[int]:
        both = (*known, *unknown)
        nothing = any(self.known(each) == "write" and each.value in (None, "") for each in both)  # reads miss it
        plain = {self.known(each) for each in both} <= {"read", "write", "cas"}
        return self._register.idle(unknown, known) if plain and not nothing else ()


def is_txn(value: Any) -> bool:
    """Return whether it is a list of [f, key, value]."""
    return isinstance(value, list | tuple) and all(isinstance(part, list | tuple) and len(part) == 3 for part in value)


def _parts(txn: Call) -> Sequence[Any]:
    """The operations of a transaction. Raises ``UnknownOperation`` for what has none."""
    if not is_txn(txn.value):
        raise UnknownOperation(f"the value of {txn.f} is a list of [f, key, value], not {txn.value!r}")
    found: Sequence[Any] = txn.value
    return found


def _appended(state: State, value: Any) -> State:
    if isinstance(value, str) and (state is None or isinstance(state, str)):
        return (state or "") + value
    if state is None or isinstance(state, tuple):
        return (*(state or ()), frozen(value))
    return ILLEGAL


class Fifo(Base):
    """A queue: enqueue at its end, dequeue at its head; a dequeue without a result found it empty."""

    functions: ClassVar[Mapping[str, str]] = {
        "enqueue": "enqueue", "push": "enqueue", "dequeue": "dequeue", "pop": "dequeue"}

    def begin(self) -> State:
        return ()

    def step(self, state: State, asked: Call) -> State:
        assert isinstance(state, tuple)
        if self.known(asked) == "enqueue":
            return (*state, frozen(asked.value))
        if asked.result is UNKNOWN:
            return state[1:]
        if asked.result is None:
            return ILLEGAL if state else state
        return state[1:] if state and state[0] == frozen(asked.result) else ILLEGAL

    def reads(self, asked: Call) -> bool:
        return self.known(asked) == "dequeue" and asked.result is None

    def tells(self, asked: Call) -> bool:
        return self.known(asked) == "dequeue"

    def idle(self, unknown: Sequence[Call], known: Sequence[Call]) -> Iterable[int]:
        seen = {frozen(each.result) for each in known if self.known(each) == "dequeue"}
        return [place for place, each in enumerate(unknown)
                if self.known(each) == "enqueue" and frozen(each.value) not in seen]


class Mutex(Base):
    """A lock: acquire and release."""

    functions: ClassVar[Mapping[str, str]] = {
        "acquire": "acquire", "lock": "acquire", "release": "release", "unlock": "release"}

    def begin(self) -> State:
        return False

    def step(self, state: State, asked: Call) -> State:
        held = self.known(asked) == "acquire"
        return ILLEGAL if state is held else held


MODELS: Final[Mapping[str, type[Base]]] = {
    "register": Register, "set": Sets, "log": Log, "kv": KeyValue, "fifo": Fifo, "mutex": Mutex}


def frozen(value: Any) -> State:
    """A hashable value that is equal where ``value`` is. Numbers stay apart from truth values, on which Python does not
    insist; 1 and 1.0 are one number, as in JSON, and NaN, which EDN has, equals NaN."""
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return frozenset((frozen(name), frozen(of)) for name, of in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(frozen, value))
    made: State = value if value == value else NAN
    return made


def thawed(state: State) -> Any:
    """The value from which ``frozen`` made a state."""
    if isinstance(state, tuple):
        is_bool = len(state) == 2 and state[0] == "bool" and isinstance(state[1], bool)
        return state[1] if is_bool else [*map(thawed, state)]
    return state
