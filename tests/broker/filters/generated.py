"""Expressions and properties made by chance: by the grammar, by words in any order, and with a character changed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

NAMES = ("a", "s", "b", "f", "big", "sp", "e", "x", "A", "$a", "_1", "e5", "E", "E5", "now", "TAGS", "nan", "hex", "u")
NUMBERS = ("0", "1", "5", "05", "0L", "5l", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
           "12345678901", "1.5", "5.", ".5", "0.0", "1e1", "1E-400", "1e309", "4.9e-324", "1.7976931348623157e308",
           "5.0", "9007199254740993", "9007199254740992.0", "00.5", "1e", "0x1")
TEXTS = ("''", "'abc'", "'b'", "'5'", "'it''s'", "'ünï'", "'true'", "'a", "'1.5'", "'line\nend'", "'5' 'x'")
SIGNS = ("=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-", "==", "!=", ";", "*", "/", "--", "-- c\n",
         "/*c*/", "/*", "%", "\"", "a.b", "a-b", "é", "\t", "\f", "\v", "\r")
WORDS = ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH",
         "not", "And", "like", "LIKE", "is not null", "IS NULL", "NOT IN ('5')", "IN ('a', 'b')", "BETWEEN 1 AND 9",
         "NOT CONTAINS 'b'", "escape")
VALUES = ("5", "-5", "+5", "abc", "true", "TRUE", "false", "1.5", "12345678901", " 5", "5 ", "", "NaN", "-NaN",
          "Infinity", "-Infinity", "0x1p3", "0x.8P1f", "1e1", "1_0", "٥", "５", "\U0001d7d3", "-0.0", "0.0", "0",
          "-0", "5f", "5.0D", ".5", "5.", ".", "e5", "+", "-", "2147483648", "-2147483648", "-9223372036854775808",
          "9223372036854775808",
          "0000000000000000000000005", "9007199254740993", "inf", "nan", "it's", "ünï", "1e400", "0x1", "\t5\n",
          "\x1f5", "\xa05", "tRue", "9" * 400)


def chance(rng: Random) -> tuple[str, dict[str, str]]:
    """An expression, and the properties of a message."""
    made = rng.choice((by_grammar, by_grammar, by_grammar, by_words, changed))(rng)
    return made, {name: rng.choice(VALUES) for name in NAMES if rng.random() < 0.7}


def as_stored(rng: Random, values: dict[str, str]) -> bytes:
    """These properties as the log may hold them: some twice, some without a part, some with bytes that are no text."""
    pairs = [f"{name}\x01{value}".encode() for name, value in values.items()]
    for _ in range(rng.randrange(4)):
        pair = f"{rng.choice(NAMES)}\x01{rng.choice(VALUES)}".encode()
        odd = rng.choice((pair, pair + pair, b"\x01" + pair, pair.split(b"\x01")[0], b"", b"\x01", pair + b"\xff",
                          b"\xc3" + pair, pair[:-1] + b"\xe2\x82"))
        pairs.insert(rng.randint(0, len(pairs)), odd)
    return b"\x02".join(pairs) + rng.choice((b"\x02", b"", b"\x02\x02"))


def by_grammar(rng: Random, depth: int = 3) -> str:
    return " ".join(_truth(rng, depth))


def by_words(rng: Random) -> str:
    """Most of them are nonsense."""
    pool = (NAMES, NUMBERS, TEXTS, SIGNS, WORDS, NAMES, WORDS)
    return rng.choice((" ", "", " ")).join(rng.choice(rng.choice(pool)) for _ in range(rng.randint(1, 7)))


def changed(rng: Random) -> str:
    text = by_grammar(rng)
    at, kind = rng.randrange(len(text) + 1), rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + rng.choice(" '()=<>-+.e5;é\n/*") + text[at:]
    return text[:at]


def _truth(rng: Random, depth: int) -> Iterator[str]:
    kind = rng.randrange(12) if depth else rng.randrange(4, 12)
    if kind == 0:
        yield from ("NOT", "(", *_truth(rng, depth - 1), ")")
    elif kind == 1:
        yield from ("(", *_truth(rng, depth - 1), ")", rng.choice(("=", "<>")), *_value(rng, depth - 1))
    elif kind in (2, 3):
        yield from _truth(rng, depth - 1)
        for _ in range(rng.randint(1, 3)):
            yield rng.choice(("AND", "OR"))
            yield from _truth(rng, depth - 1)
    elif kind in (4, 5, 6, 7):
        yield from (*_value(rng, depth), rng.choice(("=", "<>", "<", "<=", ">", ">=")), *_value(rng, depth))
    elif kind == 8:
        yield from (*_value(rng, 0), *_perhaps_not(rng), "BETWEEN", *_value(rng, 0), "AND", *_value(rng, 0))
    elif kind == 9:
        yield from (rng.choice(NAMES), *_perhaps_not(rng), "IN", "(", rng.choice(TEXTS), ",", rng.choice(TEXTS), ")")
    elif kind == 10:
        yield from (*_value(rng, depth), *_perhaps_not(rng), rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")),
                    rng.choice(TEXTS))
    else:
        yield from (*_value(rng, depth), "IS", *_perhaps_not(rng), "NULL")


def _perhaps_not(rng: Random) -> tuple[str, ...]:
    return ("NOT",) if rng.random() < 0.4 else ()


def _value(rng: Random, depth: int) -> Iterator[str]:
    kind = rng.randrange(16)
    if kind < 8:
        yield rng.choice(NAMES)
    elif kind < 11:
        yield rng.choice(NUMBERS)
    elif kind == 11:
        yield rng.choice(TEXTS)
    elif kind == 12:
        yield rng.choice(("TRUE", "FALSE", "NULL"))
    elif kind == 13 and depth > 0:
        yield from ("(", *_truth(rng, depth - 1), ")")
    else:
        yield rng.choice("+--")
        yield from _value(rng, depth - 1)
