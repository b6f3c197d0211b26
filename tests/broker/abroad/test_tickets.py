"""Tickets say which master holds a checkpoint, and no number of a revive queue is one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.abroad.tickets import QUEUES, Acked, AckedHere, Ticket
from remoting.bodies.popping import AckMessage
from remoting.receipts import ORDERED

NAMES = st.text(min_size=1, max_size=40)
WORDS = st.text("abT%_@", min_size=1, max_size=9)
NUMBERS = st.integers(0, 2**63 - 1)


@given(NAMES, NAMES, st.integers(0, QUEUES - 1))
def test_a_ticket_is_a_number_that_clients_take(name: str, other: str, queue: int) -> None:
    ticket = Ticket.of(name, queue)
    assert 2**30 <= ticket.number < 2**31
    assert Ticket.read(ticket.number) == ticket and ticket.is_of(name)
    assert ticket.is_of(other) == (Ticket.of(other, 0).mark == ticket.mark)


@given(st.integers(0, 2**30 - 1))
def test_numbers_of_queues_are_none(number: int) -> None:
    assert Ticket.read(number) is None and Ticket.read(ORDERED) is None


def test_the_number_is_that_of_the_manual() -> None:
    assert Ticket.of("b", 3).number == 2**30 + 0xB0C4 * 2**10 + 3


@given(st.integers(0, 7), NUMBERS, NUMBERS, NUMBERS, NUMBERS, WORDS, WORDS, st.integers(0, 9))
def test_what_is_acknowledged_is_read_from_its_name(
        revive: int, invisible: int, popped: int, start: int, offset: int, group: str, topic: str, queue: int) -> None:
    each = Acked(AckMessage(offset, start, group, topic, queue, popped, "a"), revive, invisible)
    assert Acked.read(*each.thing, "a") == each
    known = AckedHere()
    known.add(each)
    known.add(each)
    assert list(known.of(each.found.key)) == [offset]
    known.drop(each)
    known.drop(each)
    assert not len(known) and not known.of(each.found.key)


@given(st.text(max_size=40))
def test_a_name_that_nobody_writes_is_none(name: str) -> None:
    found = Acked.read(name, 0, "a")
    assert found is None or found.found.broker_name == "a"
