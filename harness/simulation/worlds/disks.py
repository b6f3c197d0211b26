"""Disks of whole servers on virtual time, which can stall: then jobs wait without an error."""

from __future__ import annotations

import attrs

from broker.store.disk import InlineDisk, Job, Steps, Told


@attrs.define
class StallingDisk:
    """A ``broker.store.disk.Disk`` that works at once until it is stalled."""

    inline: bool = True
    _stalled: bool = attrs.field(default=False, init=False)
    _jobs: list[tuple[Job, Told]] = attrs.field(factory=list, init=False)
    _steps: list[tuple[Steps, Told]] = attrs.field(factory=list, init=False)
    _works: InlineDisk = attrs.field(factory=InlineDisk, init=False)

    def submit(self, job: Job, told: Told) -> None:
        self._jobs.append((job, told))
        self._go_on()

    def submit_steps(self, steps: Steps, told: Told) -> None:
        self._steps.append((steps, told))
        self._go_on()

    def settle(self) -> None:
        """Do all jobs even while stalled, so that no caller waits for ever."""
        stalled, self._stalled = self._stalled, False
        self._go_on()
        self._stalled = stalled

    def close(self) -> None:
        self.settle()

    def stall(self) -> None:
        """Keep all jobs waiting from now on."""
        self._stalled = True

    def resume(self) -> None:
        """Do all waiting jobs, and later ones at once again."""
        self._stalled = False
        self._go_on()

    def _go_on(self) -> None:
        while not self._stalled and self._jobs:
            self._works.submit(*self._jobs.pop(0))
        while not self._stalled and self._steps:
            self._works.submit_steps(*self._steps.pop(0))
