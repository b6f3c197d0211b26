"""The table of a broker's role: it says what it means to say, whatever comes in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas.machine import (
    MOVES,
    REGISTERED,
    RETREATS,
    ROLELESS,
    TAKING,
    WRITES,
    Action,
    Event,
    Retreat,
    RoleMachine,
    State,
    Writes,
)


def lead(epoch: int) -> BecomeMaster:
    return BecomeMaster(epoch, frozenset({1}), epoch)


def follow(epoch: int) -> BecomeSlave:
    return BecomeSlave(epoch, 2, "m2:1")


def registered() -> RoleMachine:
    machine = RoleMachine(State.UNREGISTERED)
    machine.happened(Event.REGISTERED)
    return machine


# --- the tables ----------------------------------------------------------------------------------------------


def test_every_state_has_a_row_and_is_reached() -> None:
    assert set(MOVES) == set(WRITES) == set(State) and set(RETREATS) == set(Retreat)
    reached, more = set[State](), {State.NAMELESS}
    while more:
        reached |= more
        more = {after for state in more for after, _ in MOVES[state].values()} - reached
    assert reached == set(State) - {State.STOPPED}, "STOP leads to that one, from everywhere"
    assert {after for row in RETREATS.values() for after, _ in row.values()} == set(Retreat)


def test_every_event_is_in_a_table() -> None:
    told = {event for row in (*MOVES.values(), *RETREATS.values()) for event in row}
    assert told == set(Event) - {Event.STOP}


@pytest.mark.parametrize("state", [state for state in State if state in REGISTERED])
def test_another_process_of_this_id_ends_all_at_once(state: State) -> None:
    assert MOVES[state][Event.DISPLACED] == (State.UNREGISTERED, (Action.FORGET, Action.LEAVE))


def test_writes_open_in_no_state_that_replication_did_not_lead_to() -> None:
    for state, row in MOVES.items():
        for event, (after, _) in row.items():
            if WRITES[after] is not Writes.CLOSED:
                assert (event, after) in {(Event.TAKEN_MASTER, State.MASTER), (Event.TAKEN_SLAVE, State.SLAVE)}
                assert state in TAKING


def test_a_role_is_taken_while_writes_are_closed() -> None:
    taking = {after for row in MOVES.values() for after, actions in row.values() if Action.TAKE in actions}
    assert taking == TAKING and all(WRITES[state] is Writes.CLOSED for state in TAKING)
    assert not TAKING & ROLELESS


def test_who_hands_over_never_comes_back() -> None:
    assert not RETREATS[Retreat.HANDING_OVER]


def test_what_cannot_happen_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="TAKEN_MASTER cannot happen in IDLE"):
        registered().happened(Event.TAKEN_MASTER)


# --- the machine ---------------------------------------------------------------------------------------------


def test_what_another_role_has_outrun_is_no_role() -> None:
    machine = registered()
    assert Action.TAKE in machine.named(lead(1))
    assert Action.TAKE not in machine.named(follow(2)), "one at a time"
    assert machine.taken(lead(1)) == (Action.TAKE,)
    assert machine.state is State.ENTERING and machine.target == follow(2)
    machine.taken(follow(2))
    assert (machine.state.name, machine.role) == ("SLAVE", follow(2))


def test_what_this_broker_may_not_lead_by_now_is_left() -> None:
    machine = registered()
    machine.named(lead(1))
    assert machine.taken(lead(1), doubtful=True) == (Action.LEAVE,)
    assert machine.state is State.IDLE and machine.role is machine.target is None


@pytest.mark.parametrize("before", [None, follow(1)])
def test_a_role_of_an_epoch_that_is_over_is_left_though_it_is_being_taken(before: Become | None) -> None:
    machine = registered()
    if before is not None:
        machine.named(before)
        machine.taken(before)
    machine.named(lead(2))
    assert machine.masterless() == (Action.ELECT_BY_POLL,)
    assert machine.taken(lead(2)) == (Action.LEAVE,), "replication is in it by now"
    assert machine.state in ROLELESS and machine.role is machine.target is None


def test_a_role_that_is_named_behind_one_of_an_epoch_that_is_over_waits_for_its_end() -> None:
    machine = registered()
    machine.named(lead(2))
    machine.masterless()
    assert Action.TAKE not in machine.named(follow(4)), "one at a time"
    assert machine.taken(lead(2)) == (Action.TAKE,)
    machine.taken(follow(4))
    assert machine.state is State.SLAVE


def test_who_resigned_may_be_elected_when_that_epoch_is_over() -> None:
    machine = registered()
    assert (machine.doubted(), machine.retreat.name) == ((Action.ELECT, Action.POLL), "RESIGNING")
    machine.masterless()
    assert (machine.replaced(), machine.retreat.name) == ((Action.BEAT, Action.ELECT), "NONE")
    assert machine.replaced() == (), "nobody resigns"


def leading(*, alone: bool = False) -> RoleMachine:
    machine = RoleMachine(State.UNREGISTERED, alone=alone)
    machine.happened(Event.REGISTERED)
    machine.named(lead(1))
    machine.taken(lead(1))
    return machine


def test_a_master_that_yields_goes_on_where_nobody_follows() -> None:
    machine = leading()
    machine.hindered()
    assert (machine.retreat.name, machine.writes) == ("YIELDING", Writes.LEASED)
    assert (machine.relieved(), machine.retreat.name) == ((Action.BEAT,), "NONE")


def test_who_acknowledges_alone_writes_nothing_while_it_yields() -> None:
    machine = leading(alone=True)
    machine.hindered()
    assert machine.writes.name == "CLOSED"
    machine.relieved()
    assert machine.writes.name == "LEASED"


@pytest.mark.parametrize("retreat", [Retreat.RESIGNING, Retreat.HANDING_OVER])
def test_who_gives_mastership_up_already_yields_nothing(retreat: Retreat) -> None:
    assert not RETREATS[retreat].keys() & {Event.HINDERED, Event.RELIEVED}
    assert Event.HINDERED not in RETREATS[Retreat.YIELDING]


def test_only_a_master_has_something_to_yield() -> None:
    machine = registered()
    machine.named(follow(1))
    machine.taken(follow(1))
    assert machine.hindered() == () and not machine.yielding


@pytest.mark.parametrize("after", ["follow", "lead", "masterless", "displaced"])
def test_a_yield_ends_with_the_mastership(after: str) -> None:
    machine = leading()
    machine.hindered()
    match after:
        case "follow":
            machine.named(follow(2))
        case "lead":
            machine.named(lead(2))
        case "masterless":
            machine.masterless()
        case "displaced":
            machine.displaced()
    assert not machine.yielding


def test_who_yields_may_still_doubt_and_hand_over() -> None:
    machine = leading()
    machine.hindered()
    assert (machine.doubted(), machine.retreat.name) == ((Action.ELECT, Action.POLL), "RESIGNING")
    machine = leading()
    machine.hindered()
    machine.hand_over()
    assert machine.relieved() == () and machine.retreat is Retreat.HANDING_OVER


def test_nothing_moves_what_has_stopped() -> None:
    machine = registered()
    machine.named(lead(1))
    machine.stop()
    assert machine.taken(lead(1)) == machine.refused() == machine.named(lead(2)) == machine.displaced() == ()
    assert machine.state is State.STOPPED and machine.writes is Writes.CLOSED


class Replication:
    """Takes one role at a time, and leaves when it is told, after what it is at."""

    def __init__(self) -> None:
        self.todo: list[Become | None] = []
        """None: leave."""
        self.role: Become | None = None

    def act(self, machine: RoleMachine, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if action is Action.TAKE:
                assert machine.target is not None
                assert not any(role is not None for role in self.todo), "it takes one at a time"
                self.todo.append(machine.target)
            elif action is Action.LEAVE:
                self.todo.append(None)

    def leave(self) -> None:
        while self.todo and self.todo[0] is None:
            self.todo.pop(0)
            self.role = None


SCRIPTS = st.lists(st.sampled_from(
    ["lead", "follow", "taken", "taken", "refused", "masterless", "displaced", "registered", "registered", "doubted",
     "replaced", "hand over", "distrusted", "hindered", "relieved"]), max_size=40)


@settings(max_examples=400, deadline=None)
@given(SCRIPTS, st.booleans())
def test_whatever_comes_the_role_is_what_replication_is_in(script: list[str], alone: bool) -> None:
    """Where writes may be open, replication is in that role, and nothing is under way that would end it."""
    machine, replication, epoch, handed = RoleMachine(State.UNREGISTERED, alone=alone), Replication(), 0, False
    for what in script:
        actions: tuple[Action, ...] = ()
        replication.leave()
        if what in ("taken", "refused", "distrusted") and replication.todo:
            role = replication.todo.pop(0)
            assert role is not None
            replication.role = None if what == "refused" else role
            actions = machine.refused() if what == "refused" else machine.taken(role, doubtful=what == "distrusted")
        elif what == "registered" and machine.state is State.UNREGISTERED:
            actions = machine.happened(Event.REGISTERED)
        elif what in ("lead", "follow") and machine.state in REGISTERED:
            epoch += 1
            actions = machine.named(lead(epoch) if what == "lead" else follow(epoch))
            assert machine.retreat is not Retreat.RESIGNING
        elif what == "masterless" and machine.state in REGISTERED:
            actions = machine.masterless()
        elif what == "displaced" and machine.state in REGISTERED:
            actions = machine.displaced()
        elif what == "doubted":
            actions = machine.doubted()
        elif what == "replaced":
            actions = machine.replaced()
        elif what == "hindered":
            actions = machine.hindered()
        elif what == "relieved":
            actions = machine.relieved()
        elif what == "hand over":
            handed = True
            machine.hand_over()
        replication.act(machine, actions)
        assert (machine.target is not None) == (machine.state in TAKING)
        assert (machine.retreat is Retreat.HANDING_OVER) == handed
        assert not machine.yielding or machine.state is State.MASTER, "nobody else has anything to yield"
        if machine.writes is not Writes.CLOSED:
            assert machine.role == replication.role is not None and not replication.todo
            assert isinstance(machine.role, BecomeMaster) == (machine.state is State.MASTER)
            assert not (handed and machine.state is State.MASTER)
            assert not (machine.yielding and alone)
    replication.leave()
    while replication.todo:
        role = replication.todo.pop(0)
        if role is None:
            replication.role = None
        else:
            replication.role = role
            replication.act(machine, machine.taken(role))
    assert machine.state not in TAKING, "what is wanted is taken in the end"
