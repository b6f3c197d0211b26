"""The replicas manager gets its id and is registered: from each crash point on, and whatever a controller says."""

from __future__ import annotations

import pytest

from broker.ha.taking import BecomeSlave
from broker.replicas.identity import Application, Identity
from broker.replicas.machine import SEASONED
from remoting.codes import RequestCode, ResponseCode
from remoting.command import response
from tests.broker.replicas.test_manager import POINTS, Broker, Controller, Crash


@pytest.mark.parametrize("point", POINTS)
def test_every_crash_point_of_the_first_boot_is_resumed(point: str) -> None:
    broker = Broker(Controller())
    broker.crash_at = point
    with pytest.raises(Crash):
        broker.run(5_000)
    broker.start()
    broker.run(10_000)
    assert broker.manager.machine.state in SEASONED
    assert broker.manager.broker_id == 1
    assert broker.identity == "c#b#1"
    assert broker.controller.next_id == 2, "no id was leaked"
    assert len(broker.roles) == 1


@pytest.mark.parametrize("code", [None, ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_ERROR])
def test_an_application_outlives_a_failure_that_says_nothing(code: int | None) -> None:
    """There the temporary file was removed, and the id leaked when the controller had granted it after all."""
    controller = Controller()
    broker = Broker(controller)
    broker.lose = {RequestCode.CONTROLLER_APPLY_BROKER_ID}
    broker.run(10)
    (sent,) = broker.held
    granted = controller.answer("ctl1", sent.command)
    assert granted is not None and granted.code == 0, "granted, and the answer is lost"
    broker.lose = set()
    broker.do(broker.manager.answered(sent.request, None if code is None else response(sent.command, code), broker.now))
    broker.run(5_000)
    assert broker.manager.broker_id == 1
    assert controller.next_id == 2


def test_an_id_that_is_another_brokers_is_given_up() -> None:
    controller = Controller(next_id=1, codes={1: "other;1"}, addresses={1: "other:1"}, master=1, epoch=4, set_epoch=7,
                            members=frozenset({1}))
    broker = Broker(controller)
    controller.next_id = 1
    broker.application = Application("c", "b", 1, "mine;1").to_text()
    broker.start()
    controller.next_id = 2
    broker.run(5_000)
    assert broker.identity == "c#b#2"
    assert broker.roles == [BecomeSlave(4, 1, "other:1")]


def test_a_group_that_the_controller_lost_is_named() -> None:
    broker = Broker(Controller())
    broker.identity = Identity("c", "b", 5).to_text()
    broker.start()
    broker.run(3_000)
    assert "does not know broker 5" in broker.reports[0]
    assert broker.fences == []
