"""Timers that were delivered, as the log says: whoever becomes master passes them over.

*The idea.* A timer is delivered by a put of the message at its topic. That message bears a mark and says of which
message it was made: the offset of that one in the log (``broker.noted``). So the fact that it was delivered travels
with the delivered message itself, and every replica hears of it in the order of the log. A new master begins with the
first slot that is not done, as far as it knows, and asks here before each timer of that slot.

*Rejected.*

- To replicate only how far the wheel is, every few seconds, as RocketMQ does. A new master delivers all of the last
  seconds once more.
- A record of its own behind each delivery. A crash between the two leaves a message that was delivered and not noted,
  and the log grows by one more record for each timer.
- To look for the message at its topic before each delivery. Its queue may have millions, and consumers wait.
- To know timers by topic and unique id alone. A sender may send two with the same id, and both are to come. The offset
  tells them apart; topic and id are compared besides, so that no record can claim the timer of somebody else.

*Why it is right.*

- *What the log says is known before anything is delivered.* A master delivers nothing before it has heard all that its
  log shows (``hears_all``), so it passes over each timer whose delivered message it holds.
- *What the log lacks was not delivered*, for a replica that may become master: in the mode that waits for all members,
  what consumers have seen is in the log of every member. In other modes such a timer may come again, and does not
  get lost: it is still in its slot.
- *Nothing is forgotten too early.* A delivery is remembered until its message is in the wheel, in a slot that is done,
  and the disk says both (``pass_to``): nobody asks beyond that, nor does a later process, which begins to hear at the
  oldest that is remembered (``begins``). That its time is over is not enough. A replica that was away for a while is
  told how far its master is before it has put into its own wheel what was delivered meanwhile; that is late there, and
  asked for if this replica becomes master before it is told again. Where more than ``REMEMBERED_MAX`` are open at once,
  the oldest may come twice.
- *A cut of the log takes back what it took* (``cut``): such a timer is delivered anew.

It knows times and offsets, and does nothing itself.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.properties import REAL_TOPIC, TIMER_DONE
from broker.timer.letters import DEQUEUE_MS, TOPIC
from remoting.fields import decimal
from remoting.record import UNIQ_KEY, Outline, value_behind

_DONE: Final = f"{TIMER_DONE}\x01".encode()
_DEQUEUED: Final = f"{DEQUEUE_MS}\x01".encode()
_REAL_TOPIC: Final = f"{REAL_TOPIC}\x01".encode()
REMEMBERED_MAX: Final = 1_000_000
"""More come again, if a master is lost just then."""


class Delivered:
    """``hear`` takes what is shown, in the order of the log."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        """Hash of topic and unique id, by the offset of the timer's message."""
        self._order: deque[tuple[int, int, int]] = deque()
        """When it was delivered, that offset, and where the delivered message stands."""

    def __len__(self) -> int:
        return len(self._known)

    def hear(self, found: Outline) -> None:
        """A marked message; whose else it may be, it is passed over."""
        done = value_behind(found[7], _DONE)
        if done is None:  # it is a transaction's
            return
        offset, time_ms = decimal(done.decode(errors="replace")), decimal(_value(found, _DEQUEUED))
        if offset is None or time_ms is None or not 0 <= offset < found[0]:
            return
        topic = _value(found, _REAL_TOPIC) if found[6] == TOPIC else found[6].decode(errors="replace")
        self._known[offset] = hash((topic, _value(found, UNIQ_KEY)))
        self._order.append((time_ms, offset, found[0]))
        if len(self._order) > REMEMBERED_MAX:
            self._forget()

    def has(self, offset: int, topic: str, uniq_key: str) -> bool:
        """Whether the message at that offset was delivered. Topic and id must be its own: others may claim it."""
        return self._known.get(offset) == hash((topic, uniq_key))

    def pass_to(self, read_time_ms: int, below: int) -> None:
        """Slots before are done: nobody asks for what they held, if it stood in the log below that offset."""
        order = self._order
        while order and order[0][0] < read_time_ms and order[0][1] < below:
            self._forget()

    def _forget(self) -> None:
        _, offset, _ = self._order.popleft()
        self._known.pop(offset, None)

    def cut(self, end: int) -> None:
        """The log was cut: what stood behind was not delivered."""
        while self._order and self._order[-1][2] >= end:
            _, offset, _ = self._order.pop()
            self._known.pop(offset, None)

    def begins(self, heard: int) -> int:
        """Where in the log the next process is to begin to hear; this one heard everything below ``heard``."""
        return self._order[0][2] if self._order else heard


def _value(found: Outline, marker: bytes) -> str:
    """Of its properties; "" where it has none."""
    return (value_behind(found[7], marker) or b"").decode(errors="replace")
