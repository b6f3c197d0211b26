"""Requests of a broker to controllers and members that are under way: numbered, and one of a kind at a time.

It knows times and who was asked, and neither what for nor what an answer means.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.replicas.outputs import Output, SendCommand
from broker.replicas.timetable import Kind, Timetable
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.header import Header

OnAnswer = Callable[[Command | None, int], list[Output]]
"""Handles the answer to the request of that number; None: none came in time. Returns the outputs that follow."""


@attrs.frozen
class Asked:
    """A request that waits for its answer."""

    address: str
    sent_ns: int
    on_answer: OnAnswer


class UnderWay:
    """Requests under way. ``number`` is that of the last one; ``times`` says when the next of each kind is due."""

    def __init__(self, timeout_ms: int) -> None:
        self.times = Timetable()
        self.number = 0
        self._timeout_ms = timeout_ms
        self._asked: dict[int, Asked] = {}

    def send(self, kind: Kind | None, address: str, code: RequestCode | int, header: Header | None, now_ns: int,
             on_answer: OnAnswer, body: bytes = b"", *, slot: str = "", timeout_ms: int = 0) -> list[Output]:
        """Send a request, unless one of its kind waits for its answer; one without a kind is always sent."""
        times = self.times
        if kind is not None and times.waits(kind, slot):
            return []

        def done(answer: Command | None, number: int) -> list[Output]:
            if kind is not None:
                times.answered(number, kind, slot)
            return on_answer(answer, number)

        assert kind is not None or not slot, "a slot is of a kind"
        self.number += 1
        if kind is not None:
            times.sent(self.number, kind, slot)
        self._asked[self.number] = Asked(address, now_ns, done)
        assert kind is None or times.waits(kind, slot), "no other of its kind leaves before its answer"
        return [SendCommand(self.number, address, request(code, header, body), timeout_ms or self._timeout_ms)]

    def ended(self, number: int) -> Asked | None:
        """Note that a request was answered, or never will be. Returns it; None: it counts no more."""
        assert number <= self.number, "only what was sent ends"
        return self._asked.pop(number, None)

    def forget(self) -> None:
        """Forget all requests: no answer counts any more."""
        self._asked.clear()
