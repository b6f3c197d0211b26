"""What each answer and each error means for a send: the whole table."""

from __future__ import annotations

import pytest

from broker.client.outcomes import BY_CODE, Next, of_answer, of_error
from remoting.codes import ResponseCode
from remoting.errors import ConnectFailed, ConnectionClosed, FrameError, NotEncodable, RequestTimeout


def test_the_codes_on_which_java_tries_again_are_those_here() -> None:
    retried = {code for code, failure in BY_CODE.items() if failure.next is not Next.STOP}
    assert retried == {1, 2, 14, 16, 17, 204, 205, 1500}


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_but_not_as_safe_as_configured_is_unknown_and_final(code: int) -> None:
    failure = of_answer(code, None)
    assert failure.maybe_stored and failure.next is Next.STOP and failure.broker_is_well


@pytest.mark.parametrize("code", [2, 14, 1500])
def test_a_broker_that_is_away_is_waited_for(code: int) -> None:
    assert of_answer(code, None).next is Next.WAIT and not of_answer(code, None).maybe_stored


def test_a_defect_of_a_broker_may_come_after_storing() -> None:
    assert of_answer(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException").maybe_stored


def test_too_few_replicas_keep_nothing_and_pass() -> None:
    failure = of_answer(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    assert not failure.maybe_stored and failure.next is Next.WAIT
    assert of_answer(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough 1 are, 2 are needed") == failure
    assert of_answer(ResponseCode.MESSAGE_ILLEGAL, "in-sync replicas not enough") != failure


@pytest.mark.parametrize("code", [13, 29, 26, 23, 9999, -7])
def test_everything_else_refuses_this_message(code: int) -> None:
    failure = of_answer(code, None)
    assert failure.next is Next.STOP and not failure.maybe_stored and failure.broker_is_well


def test_errors_say_whether_the_request_may_have_been_carried_out() -> None:
    assert not of_error(ConnectFailed("a:1", "refused")).maybe_stored
    assert of_error(ConnectFailed("a:1", "refused")).next is Next.WAIT
    for error in (ConnectionClosed("a:1", "reset"), RequestTimeout("a:1", 310, 3_000), FrameError("bits")):
        assert of_error(error).maybe_stored and of_error(error).next is Next.RETRY
    assert of_error(NotEncodable("too large")).next is Next.STOP and not of_error(NotEncodable("x")).maybe_stored
