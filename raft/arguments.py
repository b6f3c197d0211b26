"""Checks what callers pass, in the call itself: a wrong type is named there, not where it first does harm.

Values that callers may change later are copied here. Knows types and words, and nothing of nodes, groups or disks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from raft.config import Read
from raft.errors import UsageError

NAME_BYTES_MAX: Final = 255
"""Longest id or cluster name, in bytes of UTF-8: a hello carries no more."""
_NO_LIST: Final = (str, bytes, bytearray, memoryview, Mapping, AbstractSet)
"""Types that can be iterated over, but are no list of commands."""


def data(what: str, given: object) -> bytes:
    """Return ``given`` if it is bytes, which nobody can change later."""
    if not isinstance(given, bytes):
        raise UsageError(f"{what} is bytes, not {type(given).__name__}")
    return given


def listed(given: Iterable[Any]) -> list[Any]:
    """Copy the caller's commands into a list, since the caller may change its own later."""
    if isinstance(given, _NO_LIST) or not isinstance(given, Iterable):
        raise UsageError(f"commands are given as a list, not as {type(given).__name__}")
    return list(given)


def timeout(given: int) -> int:
    """Return ``given`` if it is a timeout."""
    if type(given) is not int or given <= 0:
        raise UsageError(f"timeout_ms={given!r}: must be a whole number above 0")
    return given


def freshness(given: Read) -> Read:
    """Return ``given`` if it is a level of reading."""
    if not isinstance(given, Read):
        raise UsageError(f"level={given!r}: must be one of raft.Read, {', '.join(str(level) for level in Read)}")
    return given


def fits(text: object) -> bool:
    """Return whether this is text that a hello can carry."""
    # Printable, because names end up in logs, where a line break would begin a line of its own.
    return type(text) is str and text.isprintable() and len(text.encode("utf-8", "replace")) <= NAME_BYTES_MAX


def a_name(name: str, given: str) -> str:
    """Return ``given`` if it is a name that fits into a hello."""
    if not given or not fits(given):
        raise UsageError(f"{name}={given!r:.80}: must be printable text of 1 to {NAME_BYTES_MAX} bytes")
    return given


def copied(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a mapping from node ids. Its values are not checked."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{name} maps node ids, {{'n1': ...}}; it is no {type(given).__name__}")
    return dict(given)


def addresses(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """Copy an address book, which maps ids to addresses, all text."""
    book = copied(name, given)
    for node, address in book.items():
        a_name(f"an id in {name}", node)
        if type(address) is not str:
            raise UsageError(f"{name}: the address of {node!r} is text (host:port), not {address!r}")
    return book


def own_address(given: str) -> str:
    """Return ``given`` if it is an address of this node that fits into a hello, or "" for none."""
    return a_name("address", given) if given else given


def directory(given: Any) -> str:
    """Return the path of a directory, as text."""
    path = given.__fspath__() if hasattr(type(given), "__fspath__") else given
    if type(path) is not str or not path or "\0" in path:
        raise UsageError(f"data_dir={given!r}: must be the path of a directory, as text")
    return path


def kinds(**given: tuple[object, type]) -> None:
    """Check that each argument is None or of its kind."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name} is a {kind.__name__}, not {type(value).__name__}: {value!r:.80}")


def functions(**given: object) -> None:
    """Each argument can be called."""
    for name, value in given.items():
        if not callable(value):
            raise UsageError(f"{name} is a function, not {type(value).__name__}: {value!r:.80}")
