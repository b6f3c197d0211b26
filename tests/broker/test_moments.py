"""Moments: who is told in which order, and that nothing else in the broker keeps a list of listeners."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from trio.testing import MockClock

import broker
from broker.ha.acks import QuorumConfig
from broker.moments import ORDERS, WATCH, Moment
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from tests.broker.sending.test_sending import Slaves
from tests.broker.sending.world import running, send

BROKER = Path(broker.__file__).parent


def test_the_orders() -> None:
    """Whoever changes one has read why it was so."""
    assert {name: list(order.places) for name, order in ORDERS.items()} == {
        "Journal.grown": ["role", "copying"],
        "Journal.settled": ["puts", "role"],
        "Journal.ticks": ["puts", "parts", "demand", "role", "copying"],
        "Journal.noted": ["parts"],
        "Journal.cutting": ["parts", "role"],
        "Journal.was_cut": ["parts"],
        "Journal.disk_changed": ["role", "copying"],
        "Journal.on_failure": ["role", "server"],
        "Group.changed": ["role", "parts"],
        "TopicTable.on_delete": ["queues", "parts", "sends"],
        "TopicTable.narrowed": ["waiting"],
        "GroupTable.gone": ["waiting"],
        "GroupTable.barred": ["waiting"],
        "TopicTable.on_change": ["file", "sends", "name servers"],
    }


@pytest.mark.parametrize("name", ORDERS)
def test_the_place_counts_and_not_who_came_first(name: str) -> None:
    moment: Moment[[]] = Moment(name)
    places = [*ORDERS[name].places, WATCH]
    told: list[str] = []
    for place in reversed(places):
        moment.join(place, partial(told.append, place))
    moment()
    assert told == places


def test_who_shares_a_place_is_told_in_the_order_of_coming() -> None:
    moment: Moment[[int]] = Moment("Journal.ticks")
    told: list[tuple[str, int]] = []

    def first(now_ns: int) -> None:
        told.append(("first", now_ns))

    moment.join("role", first)
    moment.join("role", lambda now_ns: told.append(("second", now_ns)))
    moment(7)
    assert told == [("first", 7), ("second", 7)]
    moment.leave("role", first)
    moment(8)
    assert told[2:] == [("second", 8)]


def test_who_joins_or_leaves_meanwhile_is_heard_the_next_time() -> None:
    moment: Moment[[]] = Moment("Journal.grown")
    told: list[str] = []

    def copying() -> None:
        told.append("copying")

    def role() -> None:
        told.append("role")
        moment.leave("role", role)
        moment.leave("copying", copying)
        moment.join(WATCH, lambda: told.append("new"))

    moment.join("copying", copying)
    moment.join("role", role)
    moment()
    assert told == ["role", "copying"]
    moment()
    assert told[2:] == ["new"]


def test_nobody_joins_where_there_is_no_place() -> None:
    moment: Moment[[]] = Moment("Journal.grown")
    with pytest.raises(KeyError):
        moment.join("nowhere", lambda: None)
    with pytest.raises(KeyError):
        Moment[[]]("Journal.unknown")


async def test_a_put_that_is_late_is_late_whoever_acknowledges_in_that_tick(autojump_clock: MockClock) -> None:
    async with running(quorum=QuorumConfig(3, 2, 2, slave_timeout_ms=1_000)) as world:
        world.topics.update([TopicConfig("Orders", 4, 4)])
        slaves, journal = Slaves(), world.journal
        late_ns = journal.now_ns() + 1_000_000_000

        def acknowledges(now_ns: int) -> None:
            if now_ns > late_ns:
                slaves.acknowledges = True
                world.puts.advanced()

        journal.ticks.leave("puts", world.puts._expire)
        journal.ticks.join("role", acknowledges)
        journal.ticks.join("puts", world.puts._expire)
        world.puts.serve(slaves)
        assert (await world.ask(send())).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert slaves.acknowledges


# --- the code of the broker ----------------------------------------------------------------------------------


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(BROKER.rglob("*.py")):
        yield path.relative_to(BROKER).as_posix(), path.read_text()


def test_every_place_of_every_moment_is_somebodys() -> None:
    joined: dict[str, set[str]] = {}
    for _, text in sources():
        for call in ast.walk(ast.parse(text)):
            if (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "join"
                    and isinstance(call.func.value, ast.Attribute) and len(call.args) == 2
                    and isinstance(call.args[0], ast.Constant)):
                joined.setdefault(call.func.value.attr, set()).add(str(call.args[0].value))
    assert joined == {name.rpartition(".")[2]: set(order.places) for name, order in ORDERS.items()}


def test_nothing_else_keeps_a_list_of_listeners() -> None:
    """One listener is an attribute that is called; several are a moment, whose order is written down, or a set, which
    has none."""
    assert {path: found for path, text in sources()
            if (found := re.findall(r"(\w+): (?:list|deque|tuple)\[Callable", text))
            and path != "moments.py"} == {}
