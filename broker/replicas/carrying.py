"""Keeps the order in which outputs of the replicas manager are carried out; the shell and the simulation share it.

What follows from an output comes behind those that are there already. It knows outputs, and nothing of how one is
carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from broker.ha.insync import InSync
from broker.replicas.outputs import Output


class Carrier:
    """Carries out outputs one after the other: ``one`` carries out an output, ``in_sync`` returns the manager's sets.

    ``advance`` is called when the accepted or asked set, or the confirm offset, is not what replication was told."""

    def __init__(self, one: Callable[[Output], None], in_sync: Callable[[], InSync | None],
                 advance: Callable[[], None]) -> None:
        self._one, self._in_sync, self._advance = one, in_sync, advance
        self._outputs: deque[Output] = deque()
        self._busy = False
        self._known: tuple[int, ...] | None = None
        """The SyncStateSet that replication was told last."""

    def __call__(self, outputs: Iterable[Output]) -> None:
        self._outputs.extend(outputs)
        if self._busy:
            return
        self._busy = True
        try:
            while self._outputs:
                self._one(self._outputs.popleft())
        finally:
            self._busy = False
        assert not self._outputs, "what follows from an output is carried out with it"
        held = self._in_sync()
        known = None if held is None else (held.accepted_epoch, *held.asked, held.confirm)
        if known != self._known:
            self._known = known
            self._advance()
