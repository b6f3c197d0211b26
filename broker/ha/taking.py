"""Tables the steps by which a role is taken, by the role before and the new one. ``broker.ha.switching`` takes them.

Each role begins from no role: a master drops its slaves and a slave leaves its master first, so nobody is ever both. A
master goes on in a new epoch with the slaves that it has, and a slave changes its master without being anything else.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import attrs


@attrs.frozen
class BecomeMaster:
    """Begin ``epoch`` as master, whatever the role was."""

    epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


@attrs.frozen
class BecomeSlave:
    """Follow that master, whatever the role was."""

    epoch: int
    master_id: int
    master_address: str


Become = BecomeMaster | BecomeSlave


class Step(enum.Enum):
    """Steps of taking over; each is done before the next one begins."""

    LEAVE = "leave the role before: no slave is served and no master followed"
    STORE = "wait until all that was appended is stored, and synced where puts wait for that"
    CUT = "cut off a last message of which only a part came"
    RECORD = "write the epoch to disk, beginning where the log ends"
    CONFIRM = "confirm what is known to be confirmed, and veil the rest"
    SHOW = "wait until consumers see all that is confirmed"
    OPEN = "serve slaves, and let writes open"
    FOLLOW = "follow the master"


class From(enum.Enum):
    """The role that replication is in when it begins."""

    NONE = "no role"
    MASTER = "master"
    SLAVE = "slave"


class To(enum.Enum):
    """The role that replication is to be in."""

    MASTER = "master"
    SLAVE = "slave"


_LEAD: Final = (Step.CONFIRM, Step.SHOW, Step.OPEN)

STEPS: Final[Mapping[tuple[From, To], tuple[Step, ...]]] = {
    (From.NONE, To.MASTER): (Step.LEAVE, Step.STORE, Step.CUT, Step.RECORD, *_LEAD),
    (From.SLAVE, To.MASTER): (Step.LEAVE, Step.STORE, Step.CUT, Step.RECORD, *_LEAD),
    (From.MASTER, To.MASTER): (Step.STORE, Step.RECORD, *_LEAD),
    (From.NONE, To.SLAVE): (Step.LEAVE, Step.STORE, Step.FOLLOW),
    (From.MASTER, To.SLAVE): (Step.LEAVE, Step.STORE, Step.FOLLOW),
    (From.SLAVE, To.SLAVE): (Step.FOLLOW,),
}
"""The steps in their order. If a step fails, ``LEAVE`` follows, and the role is refused."""


def steps(before: From, role: Become) -> tuple[Step, ...]:
    found = STEPS[before, To.MASTER if isinstance(role, BecomeMaster) else To.SLAVE]
    assert Step.OPEN not in found[:-1], "writes open when all else is done"
    return found
