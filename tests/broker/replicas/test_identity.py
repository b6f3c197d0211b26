"""Identity files as values, and what follows from answered heartbeats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replicas.identity import Application, Identity, IdentityError, load
from broker.replicas.lease import Gate, Lease

MINE = Identity("c", "b", 3)
ASKED = Application("c", "b", 4, "h:1;17")


def test_texts_are_javas() -> None:
    assert MINE.to_text() == "c#b#3"
    assert ASKED.to_text() == "c#b#4#h:1;17"
    assert ASKED.granted == Identity("c", "b", 4)


@pytest.mark.parametrize(("identity", "application", "found"), [
    (None, None, None),
    (None, ASKED.to_text(), ASKED),
    (MINE.to_text(), None, MINE),
    (MINE.to_text() + "\n", ASKED.to_text(), MINE),
    (None, "c#b#4", None),  # torn: that id is lost, the next one will do
    (None, "", None),
])
def test_where_registration_goes_on(identity: str | None, application: str | None, found: object) -> None:
    assert load("c", "b", identity, application) == found


@pytest.mark.parametrize(("identity", "application", "words"), [
    ("c#b", None, "3 fields"),
    ("c#b#x", None, "the third a number"),
    ("c#b#" + "9" * 5000, None, "the third a number"),
    ("", None, "identity file holds ''"),
    ("other#b#3", None, "cluster 'other'"),
    (None, "c#other#3#x", "broker 'other'"),
])
def test_a_wrong_file_stops_the_broker(identity: str | None, application: str | None, words: str) -> None:
    with pytest.raises(IdentityError, match=words):
        load("c", "b", identity, application)


@pytest.mark.parametrize("name", ["", " ", "a#b", "a\nb"])
def test_names_that_would_break_the_file(name: str) -> None:
    with pytest.raises(IdentityError, match="broker name"):
        Identity("c", name, 1)


def test_the_lease_counts_from_the_sending() -> None:
    lease = Lease(5_000)
    lease.answered(1_000, None)
    assert lease.holds(10**12), "a Java controller knows of none"
    lease.answered(1_000, False)
    assert not lease.holds(1_001), "where leases are granted, it has none yet"
    lease.answered(1_000, True)
    assert lease.holds(5_499), "a tenth less than the controllers count"
    assert not lease.holds(5_500)
    lease.answered(500, True)
    assert lease.until_ns == 5_500, "an older answer that comes late"
    off = Lease(0)
    off.answered(1, False)
    assert off.holds(10**12)


@given(st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=12))
def test_the_gate_is_never_below_what_a_controller_may_believe(first: int, script: list[tuple[bool, int]]) -> None:
    """Heartbeats carry what is announced; the controller believes the last one that it got, answered or not."""
    gate, believed = Gate(first), first
    under_way = [(0, first)]
    for answered, least in script:
        if answered:
            generation, believed = under_way.pop(0) if len(under_way) > 1 else under_way[0]
            gate.answered(generation)
        else:
            gate.announce(least)
            under_way.append((gate.generation, least))
        assert gate.in_force >= believed
        assert gate.in_force >= gate.announced
