"""The replicated metadata as a simulated node's state machine. The watch compares its states between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from controller.metadata.codec import FormatTooNew
from controller.metadata.events import Applied
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Outcome
from raft.statemachine import Entries

if TYPE_CHECKING:
    from harness.simulation.controllers.watch import ControllerWatch


class SimMetadata(MetadataMachine):
    """The shipped state machine, which reports each entry to ``watch`` and each outcome to its owner."""

    def __init__(self, watch: ControllerWatch, name: str, reads: int) -> None:
        super().__init__(self._keep, reads=reads)
        self.watch, self.name = watch, name
        self.on_outcome: Callable[[Outcome], None] | None = None
        self._applied: Applied | None = None

    def _keep(self, applied: Applied) -> None:
        self._applied = applied

    def apply_entries(self, entries: Entries) -> list[object]:
        try:
            return self._apply_entries(entries)
        except FormatTooNew:
            raise
        except Exception as error:
            self.watch.found(error)  # the node would only stop: the run has to fail
            raise

    def restore_from(self, chunks: Iterator[bytes]) -> None:
        try:
            super().restore_from(chunks)
        except FormatTooNew:  # the node stops at once, so this is the last chance to note it
            self.watch.stopped(self, None)

    def _apply_entries(self, entries: Entries) -> list[object]:
        results: list[object] = []
        for number, data in enumerate(entries.commands):
            try:
                outcome = self.apply_at(data, entries.term)
            except FormatTooNew:
                self.watch.stopped(self, data)
                raise
            applied, self._applied = self._applied, None
            assert applied is not None
            self.watch.applied(entries.first + number, applied, self)
            if self.on_outcome is not None:
                self.on_outcome(outcome)
            results.append(outcome)
        return results
