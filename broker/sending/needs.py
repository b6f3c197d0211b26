"""The protocols of other parts that sends use. It knows none of those parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.store.tables import SubscriptionGroup


class Groups(Protocol):
    """The consumer groups of this broker."""

    def find(self, name: str) -> SubscriptionGroup | None:
        """Return the group, and make it if that is allowed; None: it is not."""
        ...


class GroupLocks(Protocol):
    """Tells which client holds which queue, for ordered consumption."""

    def held_by_group(self, group: str) -> bool: ...


class WhenSaved(Protocol):
    """Calls when the topics are on disk."""

    def when_saved(self, call: Callable[[], None]) -> None: ...
