"""Checks that controllers never give an impossible answer, against everything that brokers hear. No I/O.

    one master per epoch    a master epoch of a group has one master, whoever tells of it, and when
    epochs never fall       an answer of the active controller is not older than one that had come before it was asked
    ids are unique          an id of a group belongs to one broker, and stays its own
    the master is in sync   a SyncStateSet told together with its master contains it
"""

from __future__ import annotations

from collections import Counter

import attrs

from harness.fleet.broker import SimulatedBroker, View


@attrs.define(eq=False)
class Witness:
    """``violations`` says in words what was broken; ``checks`` how often each property was asked: 0 proves nothing."""

    violations: list[str] = attrs.field(factory=list)
    checks: Counter[str] = attrs.field(factory=Counter)
    _masters: dict[tuple[str, int], int] = attrs.field(factory=dict)
    _newest: dict[str, int] = attrs.field(factory=dict)
    _owners: dict[tuple[str, int], str] = attrs.field(factory=dict)

    def asked(self, group: str) -> int:
        """Return the newest epoch known as a question leaves, for ``answered``."""
        return self._newest.get(group, 0)

    def answered(self, group: str, view: View, asked: int) -> None:
        """Check the active controller's answer to a question."""
        self.checks["epochs never fall"] += 1
        if view.master_epoch < asked:
            self.violations.append(
                f"{group}: an answer has master epoch {view.master_epoch}; {asked} was told before the question left")
        self._newest[group] = max(self._newest.get(group, 0), view.master_epoch)
        self.told(group, view)

    def told(self, group: str, view: View) -> None:
        """Check a notification, which may be old, or the content of an answer."""
        if view.master is None:
            return
        self.checks["one master per epoch"] += 1
        known = self._masters.setdefault((group, view.master_epoch), view.master)
        if known != view.master:
            self.violations.append(
                f"{group}: master epoch {view.master_epoch} has two masters, {known} and {view.master}")
        self.checks["the master is in sync"] += 1
        if view.master not in view.in_sync:
            self.violations.append(f"{group}: master {view.master} of epoch {view.master_epoch} is not among the "
                                   f"SyncStateSet {sorted(view.in_sync)}")

    def given(self, broker: SimulatedBroker, broker_id: int) -> None:
        """Check an id that a controller bound to a broker."""
        self.checks["ids are unique"] += 1
        owner = self._owners.setdefault((broker.group.name, broker_id), broker.address)
        if owner != broker.address:
            self.violations.append(f"{broker.group.name}: id {broker_id} was given to {owner} and to {broker.address}")
