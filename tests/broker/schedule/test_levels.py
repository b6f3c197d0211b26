"""Delay levels: their configuration, putting aside and restoring."""

from __future__ import annotations

import pytest

from broker.rules import Chain, Draft
from broker.schedule.levels import DEFAULT, DelayLevels, parse, restored
from broker.store.dispatch import DELAYS_MS
from remoting.record import Message, decode_properties, encode_properties


def test_the_default_is_what_the_store_counts_with() -> None:
    assert parse() == parse(DEFAULT) == DELAYS_MS
    assert parse("10ms".replace("ms", "m") + "  2d") == (600_000, 172_800_000)


@pytest.mark.parametrize(("text", "words"), [
    ("1s 5x", "messageDelayLevel: '5x' is no delay; 1s, 5m, 2h or 1d would be"),
    ("0s", "messageDelayLevel: '0s' is no delay; 1s, 5m, 2h or 1d would be"),
    ("-1s", "messageDelayLevel: '-1s' is no delay; 1s, 5m, 2h or 1d would be"),
    ("", "messageDelayLevel has 0 levels; 1 to 18 are possible"),
    ("1s " * 19, "messageDelayLevel has 19 levels; 1 to 18 are possible"),
])
def test_what_is_no_configuration(text: str, words: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse(text)
    assert str(raised.value) == words


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (18, 17), (19, 17), (1 << 40, 17)])
def test_put_aside_and_back(level: int, queue_id: int) -> None:
    draft = Draft("Orders", 3, values := {"UNIQ_KEY": "u", "DELAY": str(level)}, level=level)
    assert Chain(DelayLevels(18).rule).stops(draft) is None
    assert (draft.topic, draft.queue_id, values["DELAY"]) == ("SCHEDULE_TOPIC_XXXX", queue_id, str(queue_id + 1))
    aside = Message(b"SCHEDULE_TOPIC_XXXX", b"x", queue_id, encode_properties(values), reconsume_times=2)
    back = restored(aside)
    assert isinstance(back, Message)
    assert (back.topic, back.queue_id, back.body, back.reconsume_times) == (b"Orders", 3, b"x", 2)
    assert decode_properties(back.properties) == values


@pytest.mark.parametrize("properties", [
    {}, {"REAL_TOPIC": "t"}, {"REAL_QID": "1"}, {"REAL_TOPIC": "t", "REAL_QID": "x"},
    {"REAL_TOPIC": "t", "REAL_QID": "-1"}, {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}])
def test_what_has_nowhere_to_go(properties: dict[str, str]) -> None:
    assert isinstance(restored(Message(b"s", b"x", 0, encode_properties(properties))), str)
