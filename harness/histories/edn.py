"""Reads and writes EDN, Clojure's notation: whole forms from a stream of lines, each with its line.

Our own, since Python's library (edn_format, last released in 2020) reads only whole texts, reports no lines, and needs
two more libraries. Tags are dropped: histories have them only for records and times. Knows no history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

import attrs

from harness.histories.events import DEPTH_MAX, HistoryError, short


class Keyword(str):
    """A keyword, without its colon; equal to the string."""

    __slots__ = ()


class Symbol(str):
    """A symbol; equal to the string of its name."""

    __slots__ = ()


_TOKEN: Final = re.compile(r"""
    [\s,]+ | ;[^\n]*
  | (?P<open>\#\{|[(\[{])
  | (?P<close>[)\]}])
  | "(?P<string>(?:[^"\\]|\\.)*)"
  | (?P<discard>\#_)
  | \\(?P<char>newline|space|tab|return|u[0-9a-fA-F]{4}|.)
  | (?P<tag>\#[A-Za-z][\w.*+!?$%&=<>/-]*)
  | (?P<atom>[^\s,()\[\]{}";\\]+)
""", re.VERBOSE | re.DOTALL)
_HALF: Final = re.compile("[\ud800-\udfff]")
_INTEGER: Final = re.compile(r"[+-]?\d+N?")
_FLOAT: Final = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_WORDS: Final[Mapping[str, Any]] = {
    "nil": None, "true": True, "false": False, "##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan")}
_ESCAPES: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_CHARS: Final[Mapping[str, str]] = {"newline": "\n", "space": " ", "tab": "\t", "return": "\r"}
_CLOSED_BY: Final[Mapping[str, str]] = {"(": ")", "[": "]", "{": "}", "#{": "}"}
_DISCARD: Final = object()
"""Marks that the next form is left out."""


@attrs.define
class _Open:
    """A form that is not closed yet."""

    kind: str
    line: int
    inside: list[Any] = attrs.field(factory=list)


def forms(lines: Iterable[str], *, unwrap: bool = False) -> Iterator[tuple[int, Any]]:
    """Every whole form, with the line on which it begins, from 1. Raises ``HistoryError``.

    With ``unwrap`` a vector or list around everything is passed over, and its elements come one by one.
    """
    top = _Open("", 0)
    stack = [top]
    wrapped = False
    for line, kind, text in _tokens(lines):
        if kind == "open":
            if unwrap and not wrapped and len(stack) == 1 and text in "[(":
                wrapped = True
                continue
            if len(stack) > DEPTH_MAX:
                raise HistoryError(line, f"forms within forms, {DEPTH_MAX} deep")
            stack.append(_Open(text, line))
            continue
        began = line
        if kind == "close":
            if len(stack) == 1 and wrapped and text in ")]":
                continue
            began = stack[-1].line
            _put(_close(stack, text, line), stack[-1])
        else:
            _put(_scalar(kind, text, line), stack[-1])
        if len(stack) == 1 and top.inside and top.inside[-1] is not _DISCARD:
            yield began, top.inside.pop()
    if len(stack) > 1:
        _cut(stack[1].line)


def _tokens(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Tokens with a meaning as (line, kind, text); a string may span several lines."""
    pending, began = "", 0
    for number, line in enumerate(lines, 1):
        text, began = (pending + line, began) if pending else (line, number)
        pending, at = "", 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                if text[at] != '"':
                    raise HistoryError(number, f"no EDN: {short(text[at:].strip())}")
                pending = text[at:]
                break
            at = found.end()
            kind = found.lastgroup
            if kind is not None and kind != "tag":
                yield began, kind, found[kind]
    if pending:
        _cut(began)


def _cut(line: int) -> NoReturn:
    raise HistoryError(line, f"the file ends within what begins here: it was cut; `head -n {line - 1}` keeps what is "
                             "whole")


def _put(value: Any, into: _Open) -> None:
    if into.inside and into.inside[-1] is _DISCARD and value is not _DISCARD:
        into.inside.pop()
    else:
        into.inside.append(value)


def _close(stack: list[_Open], closing: str, line: int) -> Any:
    if len(stack) == 1:
        raise HistoryError(line, f"{closing!r} closes nothing")
    form = stack.pop()
    assert form.kind in _CLOSED_BY
    if _CLOSED_BY[form.kind] != closing:
        raise HistoryError(line, f"{closing!r} closes what {form.kind!r} opened at line {form.line}")
    if form.kind == "{":
        if len(form.inside) % 2:
            raise HistoryError(line, "a map has as many values as keys")
        return {_key(name): value for name, value in zip(form.inside[::2], form.inside[1::2], strict=True)}
    return frozenset(map(_key, form.inside)) if form.kind == "#{" else form.inside


def _key(value: Any) -> Any:
    """A hashable form of a value, for keys and sets."""
    if isinstance(value, list):
        return tuple(map(_key, value))
    return frozenset((_key(name), _key(of)) for name, of in value.items()) if isinstance(value, dict) else value


def _scalar(kind: str, text: str, line: int) -> Any:
    if kind == "string":
        plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", lambda found: _unescape(found[1], line), text, flags=re.DOTALL)
        return _letters(plain, line)
    if kind == "char":
        plain = chr(int(text[1:], 16)) if len(text) == 5 and text[0] == "u" else _CHARS.get(text, text)
        return _letters(plain, line)
    if kind == "discard":
        return _DISCARD
    if text.startswith(":"):
        return Keyword(text[1:])
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        try:
            return int(text.rstrip("N"))
        except ValueError:
            raise HistoryError(line, f"no number has {len(text):,} digits") from None
    return float(text.rstrip("M")) if _FLOAT.fullmatch(text) else Symbol(text)


def _letters(text: str, line: int) -> str:
    """The text with the letters that two escapes make of two halves, as in Java. Raises ``HistoryError`` for a half."""
    if not _HALF.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise HistoryError(line, f"{text!a} has half a letter") from None


def _unescape(escape: str, line: int) -> str:
    if escape[0] == "u" and len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPES:
        raise HistoryError(line, f"no string has \\{escape}")
    return _ESCAPES[escape]


def text_of(value: Any) -> str:
    """A value in EDN, on one line. Raises ``TypeError`` for what EDN has not."""
    if value is None or isinstance(value, bool):
        return "nil" if value is None else "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, Symbol):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(name)} {text_of(of)}" for name, of in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(text_of, value)) + "]"
    if isinstance(value, set | frozenset):
        return "#{" + " ".join(sorted(map(text_of, value))) + "}"
    raise TypeError(f"EDN has no {type(value).__name__}")


def _quoted(text: str) -> str:
    escapes = {ord(of): f"\\{escape}" for escape, of in _ESCAPES.items()}
    return '"' + text.translate(escapes) + '"'


def _number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return "##NaN" if value != value else "##Inf" if value > 0 else "##-Inf"
    return repr(value)
