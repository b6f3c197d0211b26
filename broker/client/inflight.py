"""One queue of a consumer: what was pulled and is not settled yet, hence up to where it may be committed.

Sans-IO and without a clock. Source: ``ProcessQueue`` and ``DefaultMQPushConsumer``'s thresholds of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

import attrs

_NONE: Final = -1
Item = TypeVar("Item")


@attrs.frozen(kw_only=True)
class FlowLimits:
    """Limits above which a queue is not pulled. ``span``: from the first unsettled offset to the last."""

    messages: int = 1_000
    size_bytes: int = 100 << 20
    span: int = 2_000


class InFlight(Generic[Item]):
    """Messages in flight: offsets come in ascending order and are settled in any. The next pull is at ``next_offset``.
    """

    __slots__ = ("_items", "_order", "last", "next_offset", "size_bytes")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.size_bytes = 0
        self.last = _NONE
        self._order: deque[int] = deque()
        self._items: dict[int, tuple[int, Item]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(self, offset: int, size: int, item: Item) -> bool:
        """Take a message in; False: it is below what was pulled already, and must not be delivered twice."""
        if offset <= self.last:
            return False
        self.last = offset
        self._order.append(offset)
        self._items[offset] = size, item
        self.size_bytes += size
        return True

    def go_back(self, offset: int) -> None:
        """Pull again from ``offset`` on: forget messages there and after it, none before it."""
        order, items = self._order, self._items
        while order and order[-1] >= offset:
            found = items.pop(order.pop(), None)
            if found is not None:
                self.size_bytes -= found[0]
        self.last, self.next_offset = min(self.last, offset - 1), offset

    def settle(self, offset: int, item: Item) -> None:
        """Settle a message: it is acknowledged, or will be delivered again by somebody else. Nothing happens for an
        ``item`` that is not the one at that offset: it was replaced, or is of before a jump."""
        if not self.holds(offset, item):
            return
        self.size_bytes -= self._items.pop(offset)[0]
        order, items = self._order, self._items
        while order and order[0] not in items:
            order.popleft()

    def replace(self, offset: int, item: Item, by: Item) -> bool:
        """Put another delivery of a message in its place; False: that message is not here any more."""
        if not self.holds(offset, item):
            return False
        self._items[offset] = self._items[offset][0], by
        return True

    def holds(self, offset: int, item: Item) -> bool:
        """Return whether this very item is in flight and unsettled."""
        found = self._items.get(offset)
        return found is not None and found[1] is item

    @property
    def oldest(self) -> Item | None:
        """The unsettled message with the lowest offset."""
        return self._items[self._order[0]][1] if self._order else None

    @property
    def committable(self) -> int:
        """Everything below it is settled."""
        return self._order[0] if self._order else self.next_offset

    def full(self, limits: FlowLimits, *, ordered: bool = False) -> bool:
        """Return whether pulling must pause. In order, the number of messages counts instead of the span."""
        if not self._items:
            return False
        return (len(self._items) > limits.messages or self.size_bytes > limits.size_bytes
                or (not ordered and self.last - self._order[0] > limits.span))
