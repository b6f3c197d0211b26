"""Operations of a user's clients, the random choices that make them, and their form on a tape.

A workload is a function from ``Choices`` to an ``Operation`` (or to a bare command, or None: nothing this time). The
tape keeps the operations, not the random numbers behind them, so a shrunk script names operations. Knows machines'
codecs; knows no cluster, no clients and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import attrs

from raft.config import Read
from raft.errors import UsageError
from raft.sim.tape import Chance, Value

HEX: Final = "hex:"
NEVER_REFUSED: Final = "\0never"
PLAIN: Final = (bool, int, float, str, type(None))


@attrs.frozen(kw_only=True)
class Operation:
    """One operation of a client: either a command to propose or a query to ask."""

    command: Any = None
    """Command for the machine's ``apply``: bytes, or an object that its codec encodes."""
    query: bytes | None = None
    """Question for the machine's ``query``, after a read barrier."""
    level: Read = Read.INDEX
    """Consistency level of the query."""
    f: str = ""
    """Name in histories, such as ``write``, ``read``, ``enqueue``; "" gives ``propose`` or ``query``."""
    key: Value = None
    """Key that it reads or writes: histories are checked key by key."""
    value: Value = None
    """Written value in histories. None: the history gets the result, as for a read."""
    refused: Value = NEVER_REFUSED
    """Result that means that nothing was done: the history then says ``fail``."""

    def __attrs_post_init__(self) -> None:
        if (self.command is None) == (self.query is None):
            raise UsageError("an operation has either a command or a query")
        if self.query is not None and not isinstance(self.query, bytes):
            raise UsageError(f"a query is bytes, not {type(self.query).__name__}")

    @property
    def name(self) -> str:
        """Name of the operation in histories."""
        return self.f or ("query" if self.command is None else "propose")

    def words(self) -> str:
        """Return the operation in words for people."""
        asked = shown(self.command if self.command is not None else self.query)
        about = [] if self.key is None else [f"key {self.key}"]
        return " ".join([*([] if self.name in ("propose", "query") else [self.name]), *about,
                         f"{'propose' if self.query is None else self.level.value + ' query'} {asked}"])


class Choices(Random):
    """A workload's source of chance: a ``random.Random`` whose numbers come from the run's seed.

    A run repeats only if nothing else decides what an operation is: no clock, no other chance, no counter of its own.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self._chance: Chance = Random(0).random
        self.serial = 0
        """Number that only this operation has in its run, for values that must differ between writes."""
        self.client = 0
        """Number of the client, from 0."""

    def point(self, chance: Chance, serial: int, client: int) -> Choices:
        """Set up for the next operation."""
        self._chance, self.serial, self.client = chance, serial, client
        self.gauss_next = None  # ``gauss`` keeps a second number for its next call
        return self

    def random(self) -> float:
        return self._chance()

    def getrandbits(self, k: int, /) -> int:
        bits = 0
        for _ in range(0, k, 32):
            bits = bits << 32 | int(self._chance() * 4_294_967_296)
        return bits >> -k % 32


Workload = Callable[[Choices], "Operation | Any | None"]
"""Makes the next operation: an ``Operation``, a bare command, or None for nothing."""


def operation_of(made: Any) -> Operation | None:
    """Return the result of a workload as an operation."""
    if made is None or isinstance(made, Operation):
        return made
    return Operation(command=made, value=json_value(made))


def json_value(value: Any) -> Value:
    """Return a value as JSON can hold it: bytes and objects become text."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (bytes, bytearray)):
        return text_of(bytes(value))
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    return repr(value)


def shown(value: Any) -> str:
    """Return a value as text for people, on one line that is not too long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:80]}… ({len(text)} characters)"


def text_of(data: bytes) -> str:
    """Return bytes as text that ``bytes_of`` reads: as they are if printable, else hexadecimal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return HEX + data.hex()
    return text if text.isprintable() and not text.startswith(HEX) else HEX + data.hex()


def bytes_of(text: str) -> bytes:
    """Return the bytes that ``text_of`` was given."""
    return bytes.fromhex(text[len(HEX):]) if text.startswith(HEX) else text.encode()


def to_tape(operation: Operation, encode: Callable[[Any], bytes] | None) -> dict[str, Value]:
    """Return the form of an operation on a tape."""
    out: dict[str, Value] = {}
    if operation.query is not None:
        out |= {"query": text_of(operation.query), "level": operation.level.value}
    else:
        data = operation.command if encode is None else encode(operation.command)
        if not isinstance(data, (bytes, bytearray)):
            raise UsageError(f"a command is bytes, or the machine has a codec: {shown(operation.command)} is neither")
        out["command"] = text_of(bytes(data))
    for name in ("f", "key", "value"):
        if (value := getattr(operation, name)) is not None and (name, value) != ("f", ""):
            out[name] = json_value(value)
    if operation.refused != NEVER_REFUSED:
        out["refused"] = json_value(operation.refused)
    return out


def from_tape(kept: dict[str, Value], decode: Callable[[bytes], Any] | None) -> Operation:
    """Return the operation that ``to_tape`` kept. Raises ``UsageError`` if this machine's codec does not read it."""
    try:
        if "query" in kept:
            what: dict[str, Any] = {"query": bytes_of(kept["query"]), "level": Read(kept["level"])}
        else:
            data = bytes_of(kept["command"])
            what = {"command": data if decode is None else decode(data)}
        return Operation(**what, **{name: kept[name] for name in ("f", "key", "value", "refused") if name in kept})
    except Exception as error:
        raise UsageError(f"the tape has {kept!r}, which this machine's codec does not read: {error!r}. "
                         "It was recorded with another machine; delete it") from error
