"""The present role of a broker, for parts that answer by it. Only the code that changes the role sets it.

It is read at each request, and knows nothing of how roles come about.
"""

from __future__ import annotations

from typing import Final

import attrs

MASTER_ID: Final = 0

REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"
"""A slave's answer, with code 2, to requests that only a master carries out."""

COMES_BACK: Final = "the master of this group comes back: ask it"
"""Answer of an acting slave that learns nothing more, since its master comes back."""


@attrs.frozen
class Role:
    """The tasks of a broker in its group now. A part asks for one of these tasks, and never for a role's name."""

    broker_id: int
    """Broker id as name servers and clients know it: the master's is ``MASTER_ID``."""
    epoch: int
    """Epoch of the mastership that the role is part of; 0: there is none, or no controller counts them."""
    leads: bool
    """True: it is the group's master: tables begin here, and others copy them and the log."""
    takes_puts: bool
    """True: this broker takes messages, and what clients change."""
    serves_pulls: bool
    """True: it serves pulls, whatever ``slaveReadEnable`` says."""
    delivers: bool
    """True: this broker delivers messages that were delayed and are due."""
    listed: bool = True
    """True: name servers tell clients of this broker."""
    master_address: str = ""
    """For a slave: address of the master whose tables it copies, if known."""
    acts: bool = False
    """True: it stands in for a master that is away. It writes nothing to its log: what is due goes to other masters."""

    @classmethod
    def master(cls, epoch: int = 0) -> Role:
        return cls(MASTER_ID, epoch, leads=True, takes_puts=True, serves_pulls=True, delivers=True)

    @classmethod
    def slave(cls, broker_id: int, epoch: int = 0, master_address: str = "") -> Role:
        return cls(broker_id, epoch, leads=False, takes_puts=False, serves_pulls=False, delivers=False,
                   master_address=master_address)

    @classmethod
    def acting(cls, broker_id: int) -> Role:
        """Return the role of a slave whose group has no master now."""
        return attrs.evolve(cls.slave(broker_id), serves_pulls=True, delivers=True, acts=True)

    @classmethod
    def vacant(cls, broker_id: int, epoch: int = 0) -> Role:
        """Return the role of a broker that has none yet, or none any more: clients must find another one."""
        return attrs.evolve(cls.slave(broker_id, epoch), listed=False)


@attrs.define(eq=False)
class Standing:
    """This broker's identity, and its role now."""

    cluster_name: str
    broker_name: str
    address: str
    """Address for clients: ``host:port``."""
    role: Role = attrs.field(factory=Role.master)
