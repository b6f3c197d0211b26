"""The part that refuses requests that waited too long. The server knows how long they waited; ``late`` decides."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs
import trio

from broker.config import BrokerConfig, pick
from broker.journal import NEVER, NS_PER_MS
from broker.overload.keys import OverloadKeys
from broker.overload.late import Overload
from broker.part import OWN_CODES, Part, Parts, Shared

CALM_MS: Final = 1_000
"""Time after a slow write until all requests that came during it are read."""


class OverloadPart(Part):
    """Tells ``late``, which the server asks, of keys and slow writes."""

    keys: ClassVar[type[attrs.AttrsInstance] | None] = OverloadKeys

    def __init__(self, shared: Shared, before: Parts) -> None:
        self.late = Overload(OWN_CODES)
        self._journal, self._calm_ns = shared.journal, NEVER
        shared.journal.wrote = self._wrote

    def configure(self, config: BrokerConfig) -> None:
        self.late.configure(pick(config, OverloadKeys))

    def _wrote(self, took_ns: int) -> None:
        now = trio.current_time()
        self.late.wrote(now - took_ns / 1e9, now)
        self._calm_ns = self._journal.now_ns() + CALM_MS * NS_PER_MS

    def due_ns(self) -> int:
        return self._calm_ns

    def tick(self, now_ns: int) -> None:
        self._calm_ns = NEVER
        self.late.calm()
