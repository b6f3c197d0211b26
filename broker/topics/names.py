"""Names of topics and groups: which are allowed, and which the system keeps for itself.

Pure text. Source: ``TopicValidator`` and ``MixAll`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import re
from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"

AUTO_CREATE: Final = "TBW102"
"""The topic whose settings new topics get."""
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
SELF_TEST: Final = "SELF_TEST_TOPIC"
BENCHMARK: Final = "BenchmarkTest"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
TRACE: Final = "RMQ_SYS_TRACE_TOPIC"
HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER: Final = "rmq_sys_wheel_timer"
TIMER_DEAD: Final = "rmq_sys_timer_undeliverable"
"""Ours: timers that no topic can take."""
POP_ORDER: Final = "rmq_sys_POP_ORDER"
"""Ours: states of POP in order. The topic is made with its first record."""

POP_RESETS: Final = "rmq_sys_pop_resets"
"""Ours: resets of groups that pop, and topics and groups that are gone."""

SYSTEM: Final = frozenset({
    AUTO_CREATE, SCHEDULE, BENCHMARK, HALF, TRACE, OP_HALF, CHECK_MAX_TIME, SELF_TEST, OFFSET_MOVED_EVENT,
    "CHECKPOINT_TOPIC", TIMER, TIMER_DEAD, POP_ORDER, POP_RESETS,
})
"""System topics of every broker; those named after it and its cluster are added."""
NOT_FOR_SENDERS: Final = frozenset({
    SCHEDULE, HALF, OP_HALF, CHECK_MAX_TIME, SELF_TEST, OFFSET_MOVED_EVENT, TIMER, TIMER_DEAD, POP_ORDER, POP_RESETS})

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Group whose offsets say how far POP's revive queues are read."""

TOPIC_LENGTH_MAX: Final = 127
RETRY_OR_DLQ_LENGTH_MAX: Final = 255
GROUP_LENGTH_MAX: Final = 120
_ALLOWED: Final = "^[%|a-zA-Z0-9_-]+$"
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def topic_fault(name: str) -> str | None:
    """Return what is wrong with a topic's name, in Java's words; None if nothing is."""
    fault = _fault("topic", name)
    if fault is not None:
        return fault
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(name) > RETRY_OR_DLQ_LENGTH_MAX:
            return (f"The specified topic is DLQ or Retry topic: {name}, and it's longer than topic max length: "
                    f"{RETRY_OR_DLQ_LENGTH_MAX}")
    elif len(name) > TOPIC_LENGTH_MAX:
        return f"The specified topic: {name}, is longer than topic max length: {TOPIC_LENGTH_MAX}"
    return None


def group_fault(name: str) -> str | None:
    """Return what is wrong with a consumer group's name, in Java's words; None if nothing is."""
    fault = _fault("group", name)
    if fault is None and len(name) > GROUP_LENGTH_MAX:
        return f"The specified group: {name}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return fault


def _fault(what: str, name: str) -> str | None:
    if not name.strip():
        return f"The specified {what} is blank."
    if _LEGAL.fullmatch(name) is None:
        return f"The specified {what}: {name}, contains illegal characters, allowing only {_ALLOWED}"
    return None


def retry_topic(group: str) -> str:
    """Return the topic of messages that this group failed to consume, and tries again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of messages that this group has tried too often."""
    return DLQ_PREFIX + group


def revive_topic(cluster: str) -> str:
    """Return the topic of POP's checkpoints and acknowledgements."""
    return f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}"


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Return the topic of messages of ``topic`` that ``group`` popped and did not acknowledge.

    ``v2``: a name that no group's own retry topic can have."""
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def popped_from(retry: str, group: str) -> str:
    """Return the topic that such a retry topic is for; for any other topic itself."""
    for sign in "+_":
        if retry.startswith(f"{RETRY_PREFIX}{group}{sign}"):
            return retry.removeprefix(f"{RETRY_PREFIX}{group}{sign}")
    return retry
