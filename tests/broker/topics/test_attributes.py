"""Attributes of topics: parsing, and what a change makes of what is there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.topics.attributes import KNOWN, AttributesIllegal, changed, parse

WORD = st.text("abcdefghijklmnopqrstuvwxyz.", min_size=1, max_size=12)


@given(st.dictionaries(WORD, st.one_of(st.none(), WORD), max_size=5))
def test_what_is_written_is_parsed(changes: dict[str, str | None]) -> None:
    text = ",".join(f"-{key}" if value is None else f"+{key}={value}" for key, value in changes.items())
    assert parse(text) == {
        f"-{key}" if value is None else f"+{key}": value or "" for key, value in changes.items()}


@given(st.text("+-=,ab", max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parsed = parse(text)
    except AttributesIllegal:
        return
    for key, value in parsed.items():
        assert key.startswith("+") or (key.startswith("-") and not value)


@given(st.dictionaries(st.sampled_from(sorted(KNOWN)), st.just("NORMAL")),
       st.dictionaries(st.one_of(WORD, st.sampled_from(["+message.type", "-message.type", "+queue.type", "--", "+"])),
                       st.sampled_from(["NORMAL", "FIFO", "SimpleCQ", ""])))
def test_a_refused_change_changes_nothing(current: dict[str, str], changes: dict[str, str]) -> None:
    before = dict(current)
    try:
        after = changed(current, changes)
    except AttributesIllegal:
        assert current == before
        return
    assert set(after) <= set(before) | {key[1:] for key in changes}
    assert all(f"-{key}" not in changes for key in after)


@pytest.mark.parametrize(("current", "text", "expected"), [
    (None, "", {}),
    (None, "+message.type=FIFO,+queue.type=SimpleCQ", {"message.type": "FIFO", "queue.type": "SimpleCQ"}),
    ({"message.type": "FIFO"}, "+message.type=DELAY", {"message.type": "DELAY"}),
    ({"message.type": "FIFO"}, "-message.type", {}),
    ({}, "+lite.topic.expiration=-1", {"lite.topic.expiration": "-1"}),
    (None, "message.type=FIFO", "attribute 'message.type=FIFO': +key=value sets it, -key removes it"),
    (None, "message.type", "attribute 'message.type': +key=value sets it, -key removes it"),
    (None, "+message.type=FIFO,+message.type=FIFO", "key duplication: +message.type"),
    ({"message.type": "FIFO"}, "+message.type=FIFO,-message.type", "alter duplication key. key: message.type"),
    (None, "-message.type", "only add attribute is supported while creating topic. key: message.type"),
    ({}, "-message.type", "attempt to delete a nonexistent key: message.type"),
    ({}, "+colour=red", "unsupported key: colour; queue.type, cleanup.policy, message.type, reserve.time, "
                        "lite.topic.expiration are known"),
    ({}, "+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.type"),
    (None, "+queue.type=BatchCQ", "attribute queue.type is 'BatchCQ'; it must be one of SimpleCQ"),
    (None, "+cleanup.policy=COMPACTION", "attribute cleanup.policy is 'COMPACTION'; it must be one of DELETE"),
    (None, "+reserve.time=1", "attribute reserve.time is not supported by this broker"),
    (None, "+lite.topic.expiration=x", "attribute lite.topic.expiration is 'x'; a whole number is needed, -1 or more"),
])
def test_changes(current: dict[str, str] | None, text: str, expected: dict[str, str] | str) -> None:
    if isinstance(expected, dict):
        assert changed(current, parse(text)) == expected
    else:
        with pytest.raises(AttributesIllegal) as raised:
            changed(current, parse(text))
        assert str(raised.value) == expected
