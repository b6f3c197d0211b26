"""Decisions of one turn: which share a put."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.records import COMMITTED, ROLLED_BACK
from broker.transactions.together import COUNT_MAX, Decided, SharedPuts
from remoting.record import Message

BYTES_MAX = 10_000
COMMITS = st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 2 * BYTES_MAX))
CAME = st.lists(st.one_of(st.none(), COMMITS), max_size=300)


@given(CAME)
def test_a_put_has_bounds(came: list[tuple[bytes, int] | None]) -> None:
    gathering = SharedPuts(BYTES_MAX)
    for place, each in enumerate(came):
        final = None if each is None else Message(each[0], bytes(each[1]))
        first = gathering.add(ROLLED_BACK if final is None else COMMITTED,
                              Decided(place, 1_000 * place, final, lambda result: None))
        assert first == (place == 0)
    places = list[int]()
    for together in gathering.take():
        assert 0 < len(together.all) <= COUNT_MAX
        finals = [each.final for each in together.all if each.final is not None]
        assert len(finals) == (len(together.all) if together.decision is COMMITTED else 0)
        assert len({each.topic for each in finals}) <= 1
        assert len(finals) <= 1 or sum(len(each.body) for each in finals) <= BYTES_MAX
        places += [each.place for each in together.all]
        *stored, mark = together.messages(lambda places, why, firsts: Message(
            b"op", b"%d of %d" % (len(places), len(firsts)), 0, why.encode()))
        assert stored == finals and mark.body == b"%d of %d" % ((len(together.all),) * 2)
        assert [each.all for each in together.alone()] == [[each] for each in together.all]
    assert sorted(places) == list(range(len(came)))
    assert gathering.take() == []
