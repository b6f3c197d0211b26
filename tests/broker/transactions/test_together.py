"""Decisions that share a put: its messages, and those of each alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.transactions.records import COMMITTED, ROLLED_BACK
from broker.transactions.together import Decided, SharedPut
from remoting.record import Message


def mark(places: Sequence[int], why: str, firsts: Sequence[int]) -> Message:
    return Message(b"op", b"%s of %s" % (str(places).encode(), str(firsts).encode()), 0, why.encode())


def decided(place: int, final: Message | None = None) -> Decided:
    return Decided(place, 1_000 * place if place % 3 else None, final, lambda result: None)


def test_a_mark_stands_behind_all_that_it_names() -> None:
    finals = [Message(b"a", b"one", 0, b"pp"), Message(b"a", b"two", 0)]
    each = [decided(place, final) for place, final in enumerate(finals, 3)]
    together = SharedPut(COMMITTED, each)
    *stored, last = together.messages(mark)
    assert stored == finals and last.body == b"[3, 4] of [4000]"
    assert [alone.all for alone in together.alone()] == [[one] for one in each]
    assert [(one.topic, one.size_bytes) for one in each] == [(b"a", 5), (b"a", 3)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_rollback_is_a_mark(count: int) -> None:
    each = [decided(place) for place in range(count)]
    assert [message.topic for message in SharedPut(ROLLED_BACK, each).messages(mark)] == [b"op"]
    assert {(one.topic, one.size_bytes) for one in each} == {(b"", 0)}
