"""The judge of decisions knows what who decides could know, and when."""

from __future__ import annotations

import pytest

from harness.simulation.brokers.acting.clients import Decided
from harness.simulation.brokers.acting.machine import MemberProcess
from harness.simulation.brokers.acting.plan import draw_acting
from harness.simulation.brokers.acting.scene import ActingScene
from raft.config import MS
from raft.invariants import InvariantViolation
from raft.sim.tape import Tape
from remoting.record import COMMIT, ROLLBACK

KNOWS = "INV_B59: decides otherwise than it knows"


class Town:
    """A master and its slave; nobody has the right to decide yet, which is not looked at then."""

    def __init__(self) -> None:
        tape = Tape(3, {})
        self.scene = ActingScene(tape, draw_acting(tape))
        self.judge, self.begun = self.scene.decisions, Decided(1, b"1", COMMIT)
        self.later()
        self.master, self.slave = (self._process(number) for number in (0, 1))

    def _process(self, number: int) -> MemberProcess:
        process = self.scene.groups[0].members[number].member
        assert process is not None
        return process

    def later(self) -> None:
        self.scene.play(self.scene.world.now + 100 * MS)

    def rolls_back(self) -> None:
        """The master rolls back, and its slave has no copy of that yet."""
        self.judge.decides(self.master, self.begun, ROLLBACK)
        self.later()

    def sends(self) -> None:
        self.judge.sends(self.slave, self.begun)
        self.later()

    def copies(self) -> None:
        self.judge.shown(self.slave, self.begun)
        self.later()


def test_a_mark_that_comes_when_the_message_of_a_commit_is_sent_comes_too_late() -> None:
    """Nothing calls the message back, so the slave has decided when it sends it."""
    town = Town()
    town.rolls_back()
    town.sends()
    town.copies()
    town.judge.decides(town.slave, town.begun, COMMIT)
    assert town.begun.apart


def test_a_ledger_that_is_read_when_the_message_of_a_commit_is_sent_is_read_too_late() -> None:
    town = Town()
    town.sends()
    town.rolls_back()
    town.judge.read(town.slave, town.master.host.address)
    town.judge.decides(town.slave, town.begun, COMMIT)
    assert town.begun.apart


def test_a_slave_whose_log_has_the_mark_sends_no_message() -> None:
    town = Town()
    town.rolls_back()
    town.copies()
    with pytest.raises(InvariantViolation, match=KNOWS):
        town.sends()


def test_a_slave_whose_message_nobody_took_goes_by_what_it_heard_since() -> None:
    """The put failed, so it has not decided; then its producer says the opposite."""
    town = Town()
    town.sends()
    town.judge.decides(town.master, town.begun, COMMIT)
    town.copies()
    with pytest.raises(InvariantViolation, match=KNOWS):
        town.judge.decides(town.slave, town.begun, ROLLBACK)


def test_who_sent_the_message_before_it_was_asked_has_told_it() -> None:
    town = Town()
    town.sends()
    town.judge.read(town.master, town.slave.host.address)
    town.later()
    town.rolls_back()
    with pytest.raises(InvariantViolation, match=KNOWS):
        town.judge.decides(town.slave, town.begun, COMMIT)
