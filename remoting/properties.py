"""Java's properties: what configuration files and the bodies of 25, 26, 318, 319, 1009 and 1010 are written in.

Lines of ``key=value``, ``key:value`` or ``key value``; comments begin with ``#`` or ``!``; a backslash at the end of a
line continues it, elsewhere it escapes (``\\t \\n \\r \\f \\uXXXX``, any other character stands for itself). Unlike
``java.util.Properties`` the blanks at the end of a value are dropped, as nobody can see them. No I/O, and no knowledge
of any key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_LINES: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\(?s:.))*+")
_SEPARATOR: Final = re.compile(r"[ \t\f]*+[=:]?[ \t\f]*+")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|(?s:.))")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_MARKS: Final = "\\ =:#!"
_WRITTEN: Final = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}


def parse(text: str, *, told: bool = False) -> dict[str, str]:
    """Keys and values; of a key that comes twice the last value. Raises ``ValueError`` naming the line.

    ``told``: a server's answer. Java's escapes nothing there, so a backslash stands for itself in front of what
    ``encode`` never escapes, as in ``D:\\usr``; nothing is raised.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None
        separator = _SEPARATOR.match(line, match.end())
        assert separator is not None
        try:
            found[_unescaped(match[0], told)] = _unescaped(line[separator.end() :], told)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return found


def edited(text: str, changes: Mapping[str, str]) -> str:
    """``text`` with these values: a key's line is written anew where it stands, that of a new key behind all others.
    Every other line, comments among them, stays as it is. Raises ``ValueError`` naming the line."""
    lines, ends = _LINES.split(text), _LINES.findall(text)
    end = ends[0] if ends else "\n"
    places: dict[str, tuple[int, int]] = {}
    for number, count, line in _spans(lines):
        key = _KEY.match(line)
        assert key is not None
        places[_unescaped(key[0])] = number - 1, count  # the last line of a repeated key counts
    kept = [line + mark for line, mark in zip(lines, [*ends, end if lines[-1] else ""], strict=True)]
    for name in changes.keys() & places.keys():
        at, count = places[name]
        kept[at : at + count] = [_line(name, changes[name]) + end, *[""] * (count - 1)]
    before = "".join(kept)
    more = "".join(_line(name, changes[name]) + end for name in sorted(changes.keys() - places.keys()))
    last = before.rstrip("\r\n")
    unfinished = (len(last) - len(last.rstrip("\\"))) % 2 == 1
    return before + (end if more and unfinished else "") + more


def _line(key: str, value: str) -> str:
    return f"{_escaped_key(key)}={_escaped_value(value)}"


def encode(values: Mapping[str, str]) -> str:
    """Sorted lines of ``key=value`` that ``parse``, and Java, read back as the same."""
    return "".join(f"{_line(key, values[key])}\n" for key in sorted(values))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments, with their continuations, and the number each begins at."""
    return [(number, line) for number, _, line in _spans(_LINES.split(text))]


def _spans(text: Sequence[str]) -> list[tuple[int, int, str]]:
    """The same, and of how many lines each is made."""
    lines: list[tuple[int, int, str]] = []
    pieces: list[str] = []
    first = 0
    for number, line in enumerate(text, 1):
        line = line.lstrip(_BLANKS)
        if not pieces:
            if not line or line[0] in "#!":
                continue
            first = number
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pieces.append(line[:-1] if continued else line)
        if not continued:
            lines.append((first, len(pieces), _trimmed("".join(pieces))))
            pieces = []
    if pieces:
        lines.append((first, len(pieces), _trimmed("".join(pieces))))
    return lines


def _trimmed(line: str) -> str:
    """Without the blanks at its end, but for one that a backslash keeps."""
    kept = line.rstrip(_BLANKS)
    escaped = (len(kept) - len(kept.rstrip("\\"))) % 2 == 1
    return line[: len(kept) + 1] if escaped else kept


def _unescaped(text: str, told: bool = False) -> str:
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        escaped = found[1]
        if told and not (len(escaped) > 1 or escaped in _CONTROL or escaped in _MARKS):
            return found[0]
        if escaped == "u":
            raise ValueError(f"\\u needs four hexadecimal digits, in {text[:40]!r}")
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _CONTROL.get(escaped, escaped)

    plain = _ESCAPE.sub(one, text)
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")  # joins pairs
    except UnicodeDecodeError:
        if told:
            return text
        raise ValueError(f"half of a surrogate pair, in {text[:40]!r}") from None


def _escaped_value(value: str) -> str:
    text = "".join(_WRITTEN.get(sign, sign) for sign in value)
    if text.startswith(" "):
        text = "\\" + text
    if text.endswith(" ") and text != "\\ ":
        text = text[:-1] + "\\ "
    return text


def _escaped_key(key: str) -> str:
    return "".join("\\" + sign if sign in " =:#!" else _WRITTEN.get(sign, sign) for sign in key)
