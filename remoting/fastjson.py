"""The JSON dialect of Java peers: whatever fastjson 1 and 2 emit is read, strict JSON is written.

``loads`` tries strict JSON first, then strict JSON after bare numeric keys were put in quotes (which is all that most
bodies need), then a parser of its own. Beyond JSON it takes

* numbers and identifiers as keys: ``{1:"a",b:2}``; every key that is no object or array comes as a string;
* strings in single quotes, raw control characters in them, the escapes ``\\'``, ``\\v``, ``\\0`` and ``\\x41``;
* a comma before a closing bracket;
* objects and arrays as keys: ``{{"topic":"t","queueId":0}:5}`` comes as ``Pairs``;
* ``{"$ref":"$.brokerDatas[0]"}`` for a value that was written before: the same object comes again, never a copy.

Every step is linear in the size of the input. Limits: bytes, nesting, and values that references repeat; a reference
that would contain itself is refused. This module does no I/O and knows no body.

Source: ``JSONSerializer``, ``SerialContext`` and ``DefaultJSONParser`` of fastjson 1.2, ``JSONReader`` of fastjson 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import attrs
import orjson

from remoting.errors import BodyError

BODY_BYTES_MAX: Final = 16 << 20
"""As much as a frame can bring."""
TOLERATED_BYTES_MAX: Final = 1 << 20
"""Largest body for the parser below, which takes up to half a second for each megabyte."""
DEPTH_MAX: Final = 1_024
"""Brackets within brackets; orjson's own limit."""
REPEATED_VALUES_MAX: Final = 100_000
"""Values that all references of a body may stand for, and at most 16 for each of its bytes.

Otherwise a small body could become a huge one, or keep its reader busy."""


@attrs.frozen
class Pairs:
    """An object some of whose keys are objects or arrays. ``items`` are its (key, value) in their order."""

    items: list[tuple[Any, Any]]


# --- writing -------------------------------------------------------------------------------------------------

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def dumps(value: Any, *, ascii_only: bool = False) -> bytes:
    """Strict JSON with sorted keys and without nulls of objects; ``Pairs`` alone are written as they were read.

    ``ascii_only``: other characters as ``\\uXXXX``. Raises ``BodyError`` for what has no JSON form.
    """
    try:
        raw = orjson.dumps(value, _pairs, orjson.OPT_SORT_KEYS)
        if b"null" in raw:
            raw = orjson.dumps(_without_nulls(value), _pairs, orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError) as error:
        raise BodyError(f"no JSON form: {error}") from None
    if ascii_only and not raw.isascii():
        raw = _NOT_ASCII.sub(_escaped, raw.decode()).encode()
    return raw


def _pairs(value: Any) -> orjson.Fragment:
    if type(value) is not Pairs:
        raise TypeError(f"a value of type {type(value).__name__}")
    return orjson.Fragment(b"{%b}" % b",".join(b"%b:%b" % (dumps(key), dumps(each)) for key, each in value.items))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if not _is_null(each)}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in value]
    return value


def _is_null(value: Any) -> bool:
    """Return whether orjson writes the value as null."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# --- reading -------------------------------------------------------------------------------------------------

_STRING: Final = re.compile(rb'("(?:[^"\\]++|\\(?s:.)?+)*+(?:"|\Z))')
"""One that does not end goes to the end of the input, so that no byte is looked at twice."""
_UNREAD: Final = object()
_NUMERIC_KEY: Final = re.compile(rb"([{,]\s*+)(-?[0-9]++)(?=\s*+:)")


def loads(data: bytes, bytes_max: int = BODY_BYTES_MAX, tolerated_bytes_max: int = TOLERATED_BYTES_MAX) -> Any:
    """The value of a body. Raises ``BodyError``, which says where it stops making sense."""
    if len(data) > bytes_max:
        raise BodyError(f"body of {len(data)} bytes; {bytes_max} are allowed")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        value = _loads_quoted(data)
        if value is _UNREAD:
            if len(data) > tolerated_bytes_max:
                raise BodyError(f"body of {len(data)} bytes is no JSON: {error}") from None
            value = _loads_tolerant(data)
    return _resolved(value, len(data)) if b"$ref" in data and isinstance(value, dict | list | Pairs) else value


def _loads_quoted(data: bytes) -> Any:
    """With bare numeric keys put in quotes, where that is all that is wrong; else ``_UNREAD``."""
    pieces = _STRING.split(data)  # text between strings and strings alternate
    between = b"\0".join(pieces[::2])
    if b"'" not in between and between.count(b"\0") == len(pieces) // 2:
        pieces[::2] = _NUMERIC_KEY.sub(rb'\1"\2"', between).split(b"\0")
        try:
            return orjson.loads(b"".join(pieces))
        except orjson.JSONDecodeError:
            pass
    return _UNREAD


def _loads_tolerant(data: bytes) -> Any:
    try:
        return _Parser(data.decode()).whole()
    except UnicodeDecodeError as error:
        raise BodyError(f"body is not UTF-8 at byte {error.start}") from None


_SPACE: Final = re.compile(r"[ \t\r\n\f\ufeff]*+")
_SCALAR: Final = re.compile(
    r"""(?P<string>"[^"\\]*+(?:\\(?s:.)[^"\\]*+)*+"|'[^'\\]*+(?:\\(?s:.)[^'\\]*+)*+')"""
    r"|(?P<number>-?[0-9]++(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+)"
    r"|(?P<name>[A-Za-z_$][\w$.-]*+)",
    re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|((?s:.)))")
_ESCAPES: Final = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    **{str(number): chr(number) for number in range(8)},
}
_NAMES: Final = {"true": True, "false": False, "null": None}
_CLOSING: Final = {"{": "}", "[": "]"}
_NO_KEY: Final = object()


class _Open:
    """An object or array that is being read."""

    __slots__ = ("closing", "key", "keys", "values")

    def __init__(self, closing: str) -> None:
        self.closing = closing
        self.key: Any = _NO_KEY
        self.keys: list[Any] = []
        self.values: list[Any] = []

    def value(self) -> Any:
        if self.closing == "]":
            return self.values
        if all(type(key) is str for key in self.keys):
            return dict(zip(self.keys, self.values, strict=True))
        return Pairs(list(zip(self.keys, self.values, strict=True)))


class _Parser:
    """Parses input that is not strict JSON. One pass, no recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Any:
        value = self._value()
        if self._peek():
            self._fail("the end of the body")
        return value

    def _value(self) -> Any:
        stack: list[_Open] = []
        while True:
            sign = self._peek()
            top = stack[-1] if stack else None
            if sign in _CLOSING:
                if len(stack) == DEPTH_MAX:
                    raise BodyError(f"body nests more than {DEPTH_MAX} objects and arrays")
                self._at += 1
                stack.append(_Open(_CLOSING[sign]))
                continue
            if top is not None and sign == top.closing and top.key is _NO_KEY:
                self._at += 1
                stack.pop()
                value = top.value()
            else:
                value = self._scalar(is_key=top is not None and top.closing == "}" and top.key is _NO_KEY)
            # The value is complete: its kind decides what may follow.
            if not stack:
                return value
            self._place(stack[-1], value)

    def _place(self, into: _Open, value: Any) -> None:
        if into.closing == "}" and into.key is _NO_KEY:
            into.key = value
            if self._peek() != ":":
                self._fail("':' behind a key")
            self._at += 1
            return
        if into.closing == "}":
            into.keys.append(into.key)
            into.key = _NO_KEY
        into.values.append(value)
        sign = self._peek()
        if sign == ",":
            self._at += 1
        elif sign != into.closing:
            self._fail(f"',' or '{into.closing}'")

    def _scalar(self, *, is_key: bool) -> Any:
        found = _SCALAR.match(self._text, self._at)
        if found is None:
            self._fail("a key" if is_key else "a value")
        text = found[0]
        value: Any
        if found.lastgroup == "string":
            value = self._unescaped(text[1:-1]) if "\\" in text else text[1:-1]
        elif is_key:
            value = text
        elif found.lastgroup == "number":
            value = self._number(text)
        elif text in _NAMES:
            value = _NAMES[text]
        else:
            self._fail("a value")
        self._at = found.end()
        return value

    def _number(self, text: str) -> int | float:
        try:
            number = int(text) if text.lstrip("-").isdecimal() else float(text)
        except ValueError:  # Python refuses thousands of digits
            self._fail("a shorter number")
        if isinstance(number, float) and math.isinf(number):
            self._fail("a smaller number")
        return number

    def _unescaped(self, text: str) -> str:
        def one(found: re.Match[str]) -> str:
            digits = found[1] or found[2]
            if digits:
                return chr(int(digits, 16))
            if found[3] not in _ESCAPES:
                self._fail(f"no escape such as \\{found[3]}")
            return _ESCAPES[found[3]]

        plain = _ESCAPE.sub(one, text)
        try:
            return plain.encode("utf-16", "surrogatepass").decode("utf-16")  # joins pairs
        except UnicodeDecodeError:
            self._fail("no half of a surrogate pair")

    def _peek(self) -> str:
        """The next character that is no space, or nothing at the end."""
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _fail(self, wanted: str) -> NoReturn:
        rest = self._text[self._at : self._at + 20]
        raise BodyError(f"body makes no sense at character {self._at}: {rest!r} where {wanted} is needed")


# --- references ----------------------------------------------------------------------------------------------

_STEP: Final = re.compile(r"""\.((?:[^.\[\\]|\\(?s:.))++)|\[(-?[0-9]++|'[^']*+'|"[^"]*+")\]""")
_BACKSLASH: Final = re.compile(r"\\(.)", re.DOTALL)


def _resolved(root: Any, size: int) -> Any:
    """``root`` with each reference replaced by what it names in the body as it was written."""
    if _reference(root) is not None:
        raise BodyError("body is nothing but a reference")
    found: list[tuple[Any, Any, str]] = []
    stack: list[Any] = [root]
    while stack:
        holder = stack.pop()
        for place, value in _places(holder):
            path = _reference(value)
            if path is not None:
                found.append((holder, place, path))
            elif isinstance(value, dict | list | Pairs):
                stack.append(value)
    targets = [_followed(root, path) for _, _, path in found]
    for (holder, place, _), target in zip(found, targets, strict=True):
        if type(holder) is Pairs:
            holder.items[place] = (holder.items[place][0], target)
        else:
            holder[place] = target
    _check_repeated(targets, min(16 * size, REPEATED_VALUES_MAX))
    return root


def _places(holder: Any) -> Iterable[tuple[Any, Any]]:
    if type(holder) is dict:
        return holder.items()
    return enumerate(holder) if type(holder) is list else ((at, value) for at, (_, value) in enumerate(holder.items))


def _reference(value: Any) -> str | None:
    if type(value) is dict and len(value) == 1:
        path = value.get("$ref")
        if type(path) is str:
            return path
    return None


def _followed(root: Any, path: str) -> Any:
    """Return the value at ``path``. ``$``, ``..`` and ``@`` would name a value that holds the reference itself."""
    value, at = root, 1
    while path[:1] == "$" and (step := _STEP.match(path, at)) is not None:
        at = step.end()
        key = _BACKSLASH.sub(r"\1", step[1]) if step[1] is not None else step[2].strip("'\"")
        try:
            value = value[int(key)] if type(value) is list else value[key]
        except (LookupError, ValueError, TypeError):
            break
        if _reference(value) is not None:
            break
        if at == len(path):
            return value
    raise BodyError(f"body has a reference to {path[:40]!r}, which it does not hold")


def _check_repeated(targets: list[Any], most: int) -> None:
    """A value that holds itself has no end, so this finds it too."""
    left = most
    stack = list(targets)
    while stack:
        value = stack.pop()
        left -= 1
        if left < 0:
            raise BodyError(f"body has references that repeat more than {most} values")
        if isinstance(value, dict | list | Pairs):
            stack.extend(each for _, each in _places(value))
