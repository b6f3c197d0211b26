"""The replicated metadata as a simulated node's state machine: every entry is compared with what others made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.metadata.events import Applied
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Outcome
from raft.statemachine import Entries

if TYPE_CHECKING:
    from harness.controllers.watch import Watch


class SimMetadata(MetadataMachine):
    """Tells ``watch`` of each entry, and its owner of each outcome."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(self._keep)
        self.watch = watch
        self.on_outcome: Callable[[Outcome], None] | None = None
        self._applied: Applied | None = None

    def _keep(self, applied: Applied) -> None:
        self._applied = applied

    def apply_entries(self, entries: Entries) -> list[object]:
        try:
            return self._apply_entries(entries)
        except Exception as error:
            self.watch.found(error)  # a node only stops of it
            raise

    def _apply_entries(self, entries: Entries) -> list[object]:
        results: list[object] = []
        for number, data in enumerate(entries.commands):
            outcome = self.apply_at(data, entries.term)
            applied, self._applied = self._applied, None
            assert applied is not None
            self.watch.applied(entries.first + number, applied, self)
            if self.on_outcome is not None:
                self.on_outcome(outcome)
            results.append(outcome)
        return results
