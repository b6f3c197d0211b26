"""The parts of a broker. Each line of ``PARTS`` is one; a new part is a folder of its own and a line here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from broker.config import BrokerConfig, extended
from broker.consumers.part import ClientsPart
from broker.filters.part import FiltersPart
from broker.groups.part import GroupsPart
from broker.locks.part import LocksPart
from broker.offsets.part import OffsetsPart
from broker.overload.part import OverloadPart
from broker.part import PartClass, Parts, Shared
from broker.pop.guests import GuestsPart
from broker.pop.orderlog import OrderPart
from broker.pop.part import PopPart
from broker.pop.reviving import RevivePart
from broker.pulling.part import PullingPart
from broker.query.part import QueriesPart
from broker.relay.codes import FORWARDED
from broker.replies.part import RepliesPart
from broker.runtimeinfo import RuntimeInfoPart
from broker.schedule.part import DelaysPart
from broker.sending.part import SendingPart
from broker.timer.part import TimersPart
from broker.topics.part import TopicsPart
from broker.transactions.part import HalvesPart, TransactionsPart

PARTS: Final[tuple[PartClass, ...]] = (
    TopicsPart,
    GroupsPart,
    FiltersPart,
    ClientsPart,
    LocksPart,
    OffsetsPart,
    HalvesPart,
    GuestsPart,
    TimersPart,
    DelaysPart,
    SendingPart,
    RepliesPart,
    TransactionsPart,
    PullingPart,
    OrderPart,
    PopPart,
    RevivePart,
    QueriesPart,
    OverloadPart,
    RuntimeInfoPart,
)
"""A part stands behind those that it uses. In this order they are made, and hear of roles, keys and connections."""


def configuration(kinds: Iterable[PartClass] = PARTS) -> type[BrokerConfig]:
    """The broker's configuration, with the keys that these parts bring."""
    return _configuration(tuple(kinds))


@cache  # a class takes as long to make as a broker to start
def _configuration(kinds: tuple[PartClass, ...]) -> type[BrokerConfig]:
    made = BrokerConfig
    for keys in (kind.keys for kind in kinds if kind.keys is not None):
        made = extended(made, keys)
    return made


def passed_on(kinds: Iterable[PartClass] = PARTS) -> frozenset[int]:
    """Codes that go on to the next master: RocketMQ's, and those that these parts bring."""
    return FORWARDED.union(*(kind.passed_on for kind in kinds))


def parts_of(shared: Shared, kinds: Iterable[PartClass] = PARTS) -> Parts:
    """Make the parts, configure them, and let them hear of the journal's moments.

    Raises ``ConfigError``, and ``WrongStore`` for a table that cannot be read."""
    journal = shared.journal
    made = Parts(shared.now_ns, journal.tick_by, journal.stir, lambda: journal.stirs)
    journal.ticks.join("parts", made.tick)
    journal.veil.lifted = made.all_seen
    for kind in kinds:
        made.add(kind(shared, made))
    made.configure(shared.config)
    return made
