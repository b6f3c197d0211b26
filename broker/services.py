"""Which parts a broker has. Each line of ``PARTS`` is one; a new part is a folder of its own and a line here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.consumers.part import ClientsPart
from broker.groups.part import GroupsPart
from broker.offsets.part import OffsetsPart
from broker.part import Kind, Parts, Shared
from broker.pulling.part import PullingPart
from broker.query.part import QueriesPart
from broker.runtime import RuntimePart
from broker.schedule.part import DelaysPart
from broker.sending.part import SendingPart
from broker.topics.part import TopicsPart

PARTS: Final[tuple[Kind, ...]] = (
    TopicsPart,
    GroupsPart,
    ClientsPart,
    OffsetsPart,
    DelaysPart,
    SendingPart,
    PullingPart,
    QueriesPart,
    RuntimePart,
)
"""A part stands behind those that it uses. In this order they are made, and hear of roles, keys and connections."""


def parts_of(shared: Shared, kinds: Iterable[Kind] = PARTS) -> Parts:
    """Made, configured, and told of the journal's moments. Raises ``ConfigError``, and ``WrongStore`` for a table that
    cannot be read."""
    made = Parts(shared.now_ns)
    shared.journal.ticks.append(made.tick)
    shared.journal.veil.lifted.append(made.all_seen)
    for kind in kinds:
        made.add(kind(shared, made))
    made.configure(shared.config)
    return made
