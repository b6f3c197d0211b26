"""Which requests are answered in place of being carried out, and in which words of Java's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import from_properties, pick
from broker.overload.keys import OverloadKeys
from broker.overload.late import PATIENT, SENDS, Overload
from broker.parts import configuration
from broker.standing import REJECTED
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.command import Command, request

NOW = 1_000.0


def overload(**given: str) -> Overload:
    made = Overload({61_011})
    made.configure(pick(from_properties(given, start=configuration()()), OverloadKeys))
    return made


def asked(made: Overload, code: int, waited_s: float) -> Command | None:
    """As an endpoint does."""
    if waited_s < made.after_s:
        return None
    return made.answer(request(code), NOW - waited_s, waited_s, 7)


@pytest.mark.parametrize(("code", "limit_s"), [
    (Code.SEND_MESSAGE, 0.2), (Code.SEND_MESSAGE_V2, 0.2), (Code.SEND_BATCH_MESSAGE, 0.2),
    (Code.CONSUMER_SEND_MSG_BACK, 0.2), (Code.PULL_MESSAGE, 5), (Code.LITE_PULL_MESSAGE, 5), (Code.HEART_BEAT, 31),
    (Code.END_TRANSACTION, 3), (Code.ACK_MESSAGE, 3), (Code.UPDATE_AND_CREATE_TOPIC, 5), (Code.LOCK_BATCH_MQ, 5)])
def test_each_kind_waits_as_long_as_in_java(code: int, limit_s: float) -> None:
    made = overload()
    assert asked(made, code, limit_s - 0.001) is None
    answer = asked(made, code, limit_s)
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {limit_s * 1e3:.0f}ms, size of queue: 7"))


@pytest.mark.parametrize("code", [*sorted(PATIENT), 61_011])
def test_some_wait_for_ever(code: int) -> None:
    assert asked(overload(), code, 1e6) is None


def test_nothing_is_thrown_out_where_the_key_says_so() -> None:
    made = overload(brokerFastFailureEnable="false")
    assert made.after_s == math.inf
    made.wrote(NOW - 3, NOW)
    rejected = asked(made, Code.SEND_MESSAGE, 1)
    assert rejected is not None
    assert rejected.remark == REJECTED, "what came while a write took too long is rejected all the same, as in Java"
    assert asked(made, Code.SEND_MESSAGE, 2.5) is None


def test_a_slow_write_turns_sends_away_that_came_meanwhile() -> None:
    made = overload(osPageCacheBusyTimeOutMills="500")
    made.wrote(NOW - 2, NOW - 1)  # busy from 1.5 s ago to 1 s ago
    assert asked(made, Code.SEND_MESSAGE, 0.1) is None
    for waited_s, begins in ((1.2, "[REJECTREQUEST]system busy"), (1.7, "[PCBUSY_CLEAN_QUEUE]broker busy")):
        for code in SENDS:
            answer = asked(made, code, waited_s)
            assert answer is not None
            assert answer.remark is not None
            assert answer.remark.startswith(begins)
    assert asked(made, Code.PULL_MESSAGE, 1.7) is None
    made.calm()
    assert made.after_s == 0.2


def test_a_write_that_is_quick_enough_turns_nobody_away() -> None:
    made = overload()
    made.wrote(NOW - 1, NOW)
    assert asked(made, Code.SEND_MESSAGE, 0.1) is None


@given(code=st.sampled_from([*map(int, Code)]), waited_s=st.floats(0, 100), slow_s=st.floats(0, 10))
def test_what_is_not_asked_about_would_not_have_been_answered(code: int, waited_s: float, slow_s: float) -> None:
    made = overload()
    if slow_s:
        made.wrote(NOW - slow_s - 200, NOW - 200)
        made.calm()
    if waited_s < made.after_s:
        assert made.answer(request(code), NOW - waited_s, waited_s, 0) is None
