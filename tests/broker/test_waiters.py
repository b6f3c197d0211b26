"""What waiting requests take: compiled expressions count, once for all who share one."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import attrs
import pytest

from broker import waiters
from broker.consumers.subscriptions import Subscribed, parse
from broker.filters.expressions import Expression
from broker.waiters import SMALL_BYTES, WaitingBytes
from remoting.codes import RequestCode
from remoting.command import Command, kept_bytes

USUAL = Command(RequestCode.POP_MESSAGE)


def by_sql(text: str) -> Subscribed:
    return attrs.evolve(parse("t", text, "SQL92"), filter=Expression(text))


def long_text(number: int, terms: int = 300) -> str:
    return " OR ".join(f"a = {number * terms + each}" for each in range(terms))


def test_expressions_fill_the_room_long_before_their_text_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "BYTES_MAX", 1 << 20)
    waiting, there = WaitingBytes(), list[tuple[int, Subscribed]]()
    for number in range(100):
        wanted = by_sql(long_text(number))
        own = waiting.take(USUAL, wanted)
        if own is None:
            break
        there.append((own, wanted))
    assert 2 <= len(there) <= 4
    assert waiting.take(USUAL, None) == kept_bytes(USUAL) < SMALL_BYTES, "one as clients send them"
    assert waiting.take(USUAL, there[0][1]) is not None, "nor does one whose expression is there already"
    waiting.free(kept_bytes(USUAL), there[0][1])
    for own, wanted in there:
        waiting.free(own, wanted)
    assert waiting.take(USUAL, by_sql(long_text(7))) is not None


@pytest.mark.parametrize("wanted", [by_sql(long_text(1)), parse("t", "||".join(map(str, range(500))), "TAG")])
def test_who_wants_the_same_shares_it(wanted: Subscribed) -> None:
    waiting = WaitingBytes()
    own = waiting.take(USUAL, wanted)
    assert own == kept_bytes(USUAL)
    first = waiting.total
    assert first > 50 * own
    for _ in range(10):
        assert waiting.take(USUAL, wanted) == own
    assert waiting.total == first + 10 * own
    for number in range(11):
        assert waiting.total == first + (10 - number) * own
        waiting.free(own, wanted)
    assert waiting.total == 0
    waiting.take(USUAL, wanted)
    assert waiting.total == first


@pytest.mark.parametrize("make", [
    lambda number: by_sql(long_text(number)), lambda number: by_sql(f"price{number} > 10 AND region IN ('eu', 'us')"),
    lambda number: parse("t", "||".join(f"tag{number}{each}" for each in range(500)), "TAG")])
def test_what_is_counted_is_about_what_is_taken(make: Callable[[int], Subscribed]) -> None:
    waiting = WaitingBytes()
    for number in range(2):
        make(number)
    gc.collect()
    tracemalloc.start()
    try:
        before, kept = tracemalloc.get_traced_memory()[0], []
        for number in range(10):
            kept.append(wanted := make(number + 10))
            waiting.take(USUAL, wanted)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = waiting.total - 10 * kept_bytes(USUAL)
    assert taken / 2 < counted < taken * 3
