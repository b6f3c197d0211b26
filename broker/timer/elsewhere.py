"""Remembers which timers other members of the group delivered, so that this one delivers the others alone.

*The idea.* A slave that acts says a time, and two offsets of the log. It has delivered every timer that was due before
the time and whose message stands between the offsets. A timer that it had not copied stands at or beyond the second;
one that it never had, since it copied its master's last file alone, stands in front of the first. A member that comes
back opens its slots as always, from the first one that is not done on its own disk, and asks here before each timer.

*Rejected.*

- Skip all slots before the time, as RocketMQ does: a timer that only the returning master has is never delivered.
- Cut the wheel at the offset, and put what stands behind it in anew: what the master itself delivered before it died
  is late then, and comes again. Slots that are done on its disk are not opened here, and ``Delivered`` knows the rest.
- Keep the later time and the smaller offset of two slaves that acted in turn: what the first one delivered, and the
  second one lacks, comes again. So each says its own, which is kept unless another one says all of it.

*Why it is right.*

- *No timer is passed over that nobody delivered.* The bounds are what one member says of itself at one moment: whatever
  lies within all of them is done there. A timer must lie within the bounds of one member (``has``); they are not mixed.
- *What is said late, or not at all, costs a second delivery and no message*: the timer is still in its slot here.
- *Nothing is forgotten too early.* Bounds go when the disk says that all slots before its time are done
  (``pass_to``): after that no process asks for them. Until then it is in a file, for the next process.

A core: it knows times and offsets.
"""

from __future__ import annotations

from typing import Final

import attrs

from remoting.body import Body, body
from remoting.fields import Int64

PATH: Final = "config/timersElsewhere.json"
EVERY: Final = (1 << 63) - 1
"""The offset of a member that lacks no timer."""


@body
class TimersDone(Body):
    """Timers that were delivered: due before ``time_ms``, their messages from offset ``begin`` of the log on, and below
    ``below``."""

    time_ms: Int64 = 0
    below: Int64 = 0
    begin: Int64 = 0


@body
class DoneElsewhere(Body):
    """The file, so that the next process knows them too."""

    done: list[TimersDone] = attrs.field(factory=list)


class Elsewhere:
    """What other members delivered. Slots are given as times in ms."""

    def __init__(self, kept: DoneElsewhere) -> None:
        self._known = list(kept.done)

    def table(self) -> DoneElsewhere:
        return DoneElsewhere(list(self._known))

    def add(self, new: TimersDone) -> bool:
        """Another member delivered this. False: that is known."""
        if any(_says(each, new) for each in self._known):
            return False
        self._known = [each for each in self._known if not _says(new, each)]
        self._known.append(new)
        return True

    def has(self, slot_ms: int, offset: int) -> bool:
        """Whether another member delivered the timer of this slot whose message stands at that offset of the log."""
        return any(slot_ms < each.time_ms and each.begin <= offset < each.below for each in self._known)

    def pass_to(self, read_time_ms: int) -> bool:
        """Forget what was due before this time: the disk says that these slots are done. False: there is nothing."""
        before, self._known = self._known, [each for each in self._known if each.time_ms > read_time_ms]
        return len(self._known) < len(before)


def _says(one: TimersDone, other: TimersDone) -> bool:
    """Return whether ``one`` has all timers that ``other`` has."""
    return one.time_ms >= other.time_ms and one.begin <= other.begin and one.below >= other.below
