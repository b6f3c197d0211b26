"""The bugs that outsiders found by hand, each with the mutant that plants it and what must find it on its own."""

from __future__ import annotations

from typing import Final

import attrs

from tests.harness.planting import Planted
from tests.harness.rediscovery import Rediscovery
from tests.harness.simulation.brokers.mutants import PLANTED as BROKERS
from tests.harness.simulation.controllers.mutants import PLANTED as CONTROLLERS

BOUNDS: Final = "tests/harness/simulation/worlds/bounds.py"


def _named(name: str) -> Planted:
    """One that the simulators' own tables plant."""
    [found] = [each for each in (*BROKERS, *CONTROLLERS) if each.name == name]
    return found


ROWS: Final = (
    Rediscovery("A1", "A send is acknowledged that the master alone holds: the minimum is asked at the put, not at the "
                "release.", "brokers", _named("the minimum is asked at the put alone")),
    Rediscovery("A2", "A stale linearizable read: read tickets begin at 1 in every life of a process.", "raft",
                Planted("read tickets begin at 1 in every life", "raft/following.py",
                        "        self._asked = core.life\n", "        self._asked = 0\n", ("INV_R20", "INV_R21"),
                        "bounce")),
    Rediscovery("A3", "A young master shows what may vanish.", "brokers", _named("the veil is lifted at once")),
    Rediscovery("A4", "Two masters of one epoch: a copied directory started elsewhere is taken for its original.",
                "controllers", attrs.evolve(_named("whoever has the id is the process on record"),
                                            caught_by=("INV_B27",))),
    Rediscovery("A5", "A controller that lost acknowledged entries votes on as if it had them.", "raft",
                Planted("who lost what it acknowledged votes", "raft/voting.py",
                        "    if core.lapse is not None or peer", "    if core.faulted or peer",
                        ("INV_R35", "INV_R36"), "lapses")),
    Rediscovery("A7", "After a power cut a replica trusts what its log held and had not synced.", "brokers",
                _named("what was not synced is acknowledged")),
    Rediscovery("A7b", "A slave appends parts of records.", "brokers", _named("a slave stores parts of records")),
    Rediscovery("C9", "One quiet group keeps the shared log for ever.", "raft",
                Planted("nothing is carried forward", "raft/storage/segment.py",
                        "            self._to_carry = [number for number in holders if number not in self.damaged]\n",
                        "            self._to_carry = []\n", ("INV_R39",), "segment")),
    Rediscovery("C10", "A voter whose sync hangs across changes of leader queues replies without end.", "raft",
                Planted("every reply is held", "raft/held.py",
                        "        sends.pop(key, None)\n        sends[key] = send\n",
                        "        sends[key, send.after, id(send)] = send\n", ("INV_R38",), "hang")),
    Rediscovery("C11", "Master and active controller, killed together, cost up to 1.5 s.", f"{BOUNDS}:killed_together",
                Planted("who leads is asked once a second, whatever is told", "broker/replicas/leader.py",
                        "        if self._at_once_ns is None or now_ns >= self._at_once_ns + self._retry_ns:\n",
                        "        if False:\n", ("TOGETHER",), "servers")),
    Rediscovery("C12", "Outgoing memory has no bound: who does not read is kept.", f"{BOUNDS}:nobody_reads",
                Planted("the budget over all is never full", "remoting/backlog.py",
                        "        return self.bytes > self._budget\n", "        return False\n", ("OUTGOING",),
                        "servers")),
    Rediscovery("C13", "Half-open connections keep slaves from the HA port.", "crowded-port",
                Planted("who comes when all places are taken is sent away", "broker/ha/port.py",
                        "            self._close([Close(number, \"others need its place\")\n"
                        "                         for number in superfluous(there, self._config.connections_max)])",
                        "            self._close([Close(link.number, \"no place is left\") for _ in list(there)[:1]])",
                        ("recovery",))),
    Rediscovery("silent", "A master that hangs, or is cut off, is not replaced.", "controllers",
                _named("a silent master is never replaced unasked")),
    Rediscovery("stalled", "A disk whose writes hang moves no mastership.", "stalled-syncs",
                attrs.evolve(_named("nobody is told of a master's disk"), caught_by=("recovery",))),
    Rediscovery("full", "A full disk deletes acknowledged, unread, minutes-old messages.", "full-disks",
                Planted("a full disk makes room, whatever is young", "broker/store/retention.py",
                        "    forcibly = config.clean_file_forcibly_enable and used > config.young_go_above\n",
                        "    forcibly = used > config.young_go_above\n", ("queue",))),
)
