"""Remembers on every replica which timers were delivered, so that a new master does not deliver them again.

*The idea.* A timer is delivered by a put of its message into its topic. The delivered message is noted
(``broker.noted``) and says from which message it was made, by that one's offset in the log. So the fact of the delivery
travels in the log with the delivered message, and every replica hears it. A new master begins with the first slot that
is not done, as far as it knows, and asks here before each timer of that slot.

*Rejected.*

- Replicate only the progress of the wheel, every few seconds, as RocketMQ does: a new master delivers all timers of the
  last seconds twice.
- Write a second record after each delivery: a crash between the two leaves a delivery that is not noted, and the log
  grows by one more record for each timer.
- Look for the message in its topic before each delivery: the queue may have millions of messages, and consumers wait.
- Identify timers by topic and unique id alone: a sender may send two with the same id, and both must come. The offset
  tells them apart. Topic and id are compared as well, so that no message can claim the timer of another sender.

*Why it is right.*

- *A master knows all deliveries in its log before it delivers.* It waits until it has heard all that its log shows
  (``hears_all``), so it skips each timer whose delivered message it holds.
- *A delivery that is not in its log was not seen by consumers*, in the mode that waits for all members: what consumers
  have seen is in the log of every member that can be elected. In other modes such a timer may come twice. It is not
  lost in any mode, since it is still in its slot.
- *No delivery is forgotten too early.* It is remembered until its timer is in the wheel, in a slot that is done, and
  the disk says both (``pass_to``). After that no process asks for it, nor does the next one, which begins to hear at
  the oldest remembered delivery (``begins``). A slot that is done is not enough. A replica that was away hears its
  master's progress before it has put the timers into its own wheel; these are late there, and it asks for them if it
  becomes master. If more than ``REMEMBERED_MAX`` deliveries are open, the oldest timers may come twice.
- *A cut of the log undoes the deliveries that it removes* (``cut``): such a timer is delivered again.

A core: it knows times and offsets.
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
"""Deliveries that are remembered; older ones may come twice after a failover."""


class Delivered:
    """The remembered deliveries. ``hear`` takes messages in the order of the log, as they are shown."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        """Hash of topic and unique id, by the log offset of the timer's message."""
        self._order: deque[tuple[int, int, int]] = deque()
        """Time of the delivery, log offset of the timer's message, and that of the delivered message."""

    def __len__(self) -> int:
        return len(self._known)

    def hear(self, found: Outline) -> None:
        """Take a noted message; those of other parts are ignored."""
        done = value_behind(found[7], _DONE)
        if done is None:  # noted for another part
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
        """Return whether the timer whose message is at that offset was delivered. Topic and id must match as well."""
        return self._known.get(offset) == hash((topic, uniq_key))

    def pass_to(self, read_time_ms: int, below: int) -> None:
        """Forget deliveries before ``read_time_ms`` whose timers' messages stand below that offset of the log."""
        order = self._order
        while order and order[0][0] < read_time_ms and order[0][1] < below:
            self._forget()

    def _forget(self) -> None:
        _, offset, _ = self._order.popleft()
        self._known.pop(offset, None)

    def cut(self, end: int) -> None:
        """The log was cut at ``end``: messages after it were not delivered."""
        while self._order and self._order[-1][2] >= end:
            _, offset, _ = self._order.pop()
            self._known.pop(offset, None)

    def begins(self, heard: int) -> int:
        """Offset of the log from which the next process must hear; this one heard all below ``heard``."""
        return self._order[0][2] if self._order else heard


def _value(found: Outline, marker: bytes) -> str:
    """A property of the message; "" if it is missing."""
    return (value_behind(found[7], marker) or b"").decode(errors="replace")
