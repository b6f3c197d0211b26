"""Names of topics and groups: charset and lengths, with Java's words."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.topics.names import (
    DLQ_PREFIX,
    NOT_FOR_SENDERS,
    RETRY_PREFIX,
    SYSTEM,
    dlq_topic,
    group_fault,
    retry_topic,
    topic_fault,
)

LEGAL = string.ascii_letters + string.digits + "%|_-"


@given(st.text(LEGAL, min_size=1, max_size=127).filter(lambda name: not name.startswith("%")))
def test_legal_names(name: str) -> None:
    assert topic_fault(name) is None
    assert topic_fault(retry_topic(name)) is None
    assert topic_fault(dlq_topic(name)) is None
    assert (group_fault(name) is None) == (len(name) <= 120)


@given(st.text(LEGAL, max_size=20), st.characters().filter(lambda sign: sign not in LEGAL), st.text(max_size=20))
def test_one_other_character_makes_it_illegal(front: str, sign: str, back: str) -> None:
    name = front + sign + back
    for fault, what in ((topic_fault(name), "topic"), (group_fault(name), "group")):
        assert fault in (
            f"The specified {what} is blank.",
            f"The specified {what}: {name}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
        assert ("blank" in (fault or "")) == (not name.strip())


@pytest.mark.parametrize(("name", "fault"), [
    ("", "The specified topic is blank."),
    (" \t", "The specified topic is blank."),
    ("t" * 127, None),
    ("t" * 128, f"The specified topic: {'t' * 128}, is longer than topic max length: 127"),
    (RETRY_PREFIX + "g" * 248, None),
    (DLQ_PREFIX + "g" * 250, None),
    (RETRY_PREFIX + "g" * 249, f"The specified topic is DLQ or Retry topic: %RETRY%{'g' * 249}, "
                               "and it's longer than topic max length: 255"),
    ("a\n", "The specified topic: a\n, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
    ("../x", "The specified topic: ../x, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
])
def test_faults_in_words(name: str, fault: str | None) -> None:
    assert topic_fault(name) == fault


def test_what_nobody_may_send_to_belongs_to_the_system() -> None:
    assert NOT_FOR_SENDERS < SYSTEM
