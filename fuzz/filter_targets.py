"""Fuzz target of filters: whatever an expression and a message's properties are, there is a verdict or words.

The verdict is the same from the bytes and from the properties read one by one, and compiling costs no deep stack.
"""

from __future__ import annotations

from typing import Final

from broker.filters.expressions import FilterIllegal, Unreadable, compiled
from broker.filters.grammar import DEPTH_MAX
from fuzz.target import Target
from remoting.record import decode_properties


def check_filter(data: bytes) -> None:
    """An expression, 0, properties as in the log."""
    raw, _, properties = data.partition(b"\0")
    text = raw.decode(errors="surrogateescape")
    try:
        expression = compiled(text)
    except FilterIllegal as error:
        position, said = error.position, str(error)
        assert 0 <= position <= len(text) and len(said) < 300
        return
    assert expression.depth <= DEPTH_MAX
    try:
        wanted = expression.evaluate(decode_properties(properties)) is True
    except Unreadable:
        wanted = False
    assert expression.matches(properties) is wanted


def _seeds() -> list[bytes]:
    properties = b"\0a\x015\x02s\x01abc\x02f\x011.5\x02e\x01\x02"
    return [text + properties for text in (
        b"a > 3 AND s CONTAINS 'b'", b"NOT (a = 5 OR x IS NOT NULL) = TRUE", b"a BETWEEN -1 AND 9.5 -- c\n AND f<1e1",
        b"s NOT IN ('it''s', '') OR a<>5L /* c */ AND f >= .5", b"((((((a))))))", b"a = 5 garbage ;", b"")]


FILTER_TARGETS: Final[dict[str, Target]] = {
    "filter": Target("broker.filters: compiled, evaluate, matches", check_filter, _seeds, 400),
}
