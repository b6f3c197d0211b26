"""A store that is an older copy: controllers tell by the life on record, and its log is in doubt from then on."""

from __future__ import annotations

import contextlib

import attrs
import pytest

from broker.replicas.machine import REGISTERED
from broker.store.lives import ANY, LIVES_MAX
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.controller import RegisterBrokerToControllerRequest, RegisterBrokerToControllerResponse
from tests.broker.replicas.test_manager import Broker, Controller, Crash

MINE, BEFORE, LATER = 71, 70, 90
POINTS = ["before lives", "between doubt and lives", "after lives", "before 1003", "after 1003"]


@attrs.define
class Judging(Controller):
    """Compares the life on record with those that are told. ``judges``: an earlier release does not."""

    record: int = 0
    judges: bool = True
    refusals: int = 0

    def answer(self, address: str, command: Command) -> Command | None:
        if command.code == RequestCode.CONTROLLER_REGISTER_BROKER:
            who = RegisterBrokerToControllerRequest.from_ext(command.ext)
            if self.judges and who.known_lives is not None and self.record not in (0, who.broker_life):
                if str(self.record) not in who.known_lives.split(","):
                    self.refusals += 1
                    return response(command, ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                                    RegisterBrokerToControllerResponse(unknown_life=self.record), remark="it is older")
            self.record = who.broker_life or 0
        return Controller.answer(self, address, command)


def started(controller: Judging, lives: tuple[int, ...], life: int = MINE) -> Broker:
    """A broker that has its id, with these lives on its disk."""
    controller.codes, controller.next_id = {1: "10.0.0.1:10911;0"}, 2
    broker = Broker(controller, life=life, lives=lives)
    broker.identity = "c#b#1"
    broker.start()
    return broker


def registered(broker: Broker) -> bool:
    return broker.manager.machine.state in REGISTERED


def again(broker: Broker) -> None:
    """The next process."""
    assert broker.life is not None
    broker.life += 1
    broker.start()


def test_a_store_whose_last_life_is_on_record_is_in_no_doubt() -> None:
    controller = Judging(record=BEFORE)
    broker = started(controller, (BEFORE,))
    broker.run(100)
    assert registered(broker) and not broker.in_doubt and not controller.refusals
    assert broker.lives == (MINE,) and controller.registrations[0].known_lives == f"{BEFORE},{MINE}"


def test_an_older_copy_doubts_its_log_before_it_is_registered() -> None:
    """At once, without waiting for a retry; the doubt is on its disk when the controllers know the new life."""
    controller = Judging(record=LATER)
    broker = started(controller, (BEFORE,))
    broker.run(100)
    assert controller.refusals == 1 and registered(broker) and broker.in_doubt
    assert broker.lives == (MINE,) and "older" in broker.reports[0]
    assert [each.known_lives for each in controller.registrations] == [None]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_store_that_is_no_copy_is_never_in_doubt_wherever_it_is_killed(point: str, times: int) -> None:
    """An answer that was lost leaves a life on record that no process of this store lived to hear of."""
    controller = Judging(record=BEFORE)
    broker = started(controller, (BEFORE,))
    for _ in range(times):
        broker.crash_at = point
        with contextlib.suppress(Crash):
            broker.run(5_000)
        again(broker)
    broker.crash_at = ""
    broker.run(5_000)
    assert registered(broker) and not broker.in_doubt and not controller.refusals


@pytest.mark.parametrize("point", POINTS)
def test_an_older_copy_is_in_doubt_wherever_it_is_killed(point: str) -> None:
    controller = Judging(record=LATER)
    broker = started(controller, (BEFORE,))
    for _ in range(4):
        broker.crash_at = point
        with contextlib.suppress(Crash):
            broker.run(5_000)
        again(broker)
    broker.crash_at = ""
    broker.run(5_000)
    assert registered(broker) and broker.in_doubt


def test_a_store_of_an_earlier_release_is_judged_from_its_next_life_on() -> None:
    """Nobody noted with which life it was registered."""
    controller = Judging(record=LATER)
    broker = started(controller, (ANY,))
    broker.run(100)
    assert registered(broker) and not broker.in_doubt and broker.lives == (MINE,)
    broker.lives = (BEFORE,)
    again(broker)
    broker.run(100)
    assert registered(broker) and broker.in_doubt


def test_controllers_that_do_not_judge_register_it_as_before() -> None:
    controller = Judging(record=LATER, judges=False)
    broker = started(controller, (BEFORE,))
    broker.run(100)
    assert registered(broker) and not broker.in_doubt and broker.lives == (MINE,)


def test_who_comes_back_behind_another_process_of_its_id_doubts_its_log() -> None:
    """That one was registered meanwhile, and may have acknowledged more."""
    controller = Judging(record=BEFORE)
    broker = started(controller, (BEFORE,))
    broker.run(100)
    controller.record = LATER
    broker.do(broker.manager._give_way(5))
    broker.run(1_500)
    assert registered(broker) and broker.in_doubt and controller.record == MINE
    controller.record = LATER
    broker.do(broker.manager._give_way(6))
    broker.run(1_500)
    assert controller.refusals == 2, "it is judged each time"


def test_of_many_processes_that_died_on_their_way_the_last_lives_are_known() -> None:
    controller = Judging(record=BEFORE)
    broker = started(controller, (BEFORE,))
    for _ in range(2 * LIVES_MAX):
        broker.crash_at = "after lives"
        with pytest.raises(Crash):
            broker.run(5_000)
        again(broker)
    assert broker.lives is not None and len(broker.lives) == LIVES_MAX
    broker.run(100)
    assert registered(broker), "it is compared with a master, as the one before them is forgotten"
