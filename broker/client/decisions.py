"""The decisions about one client's transactions: who made them, what brokers that ask are told, what contradicts.

Sans-IO and without a clock. A transaction is known by its message id, whatever becomes of its half at the brokers.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from broker.client.errors import Contradicted
from remoting.headers.transactions import UNDECIDED
from remoting.record import COMMIT, ROLLBACK

KEPT: Final = 10_000


class Decision(Enum):
    """Decisions about a transaction's message; values are those of the wire."""

    COMMIT = COMMIT
    """Consumers get it."""
    ROLLBACK = ROLLBACK
    """Nobody ever sees it."""
    UNDECIDED = UNDECIDED
    """Not known yet: the broker asks again."""


class Decisions:
    """One decision for each transaction, once made, as long as it is remembered: the ``kept`` last ones are."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._busy: set[str] = set()
        self._made: dict[str, tuple[Decision, object]] = {}
        """Decisions by message id, each with the connection over which it was confirmed."""

    def begin(self, message_id: str) -> None:
        """Its body is about to run: nobody else decides until it is ``over``."""
        self._busy.add(message_id)

    def decide(self, message_id: str, decision: Decision) -> bool:
        """Note a decision. Returns whether it is new. Raises ``Contradicted`` where the other decision was made."""
        assert decision is not Decision.UNDECIDED
        before = self.of(message_id)
        if before is None:
            self._made[message_id] = decision, None
            if len(self._made) > self._kept:
                del self._made[next(iter(self._made))]
        elif before is not decision:
            raise Contradicted(message_id, f"{decision.name} follows {before.name}")
        return before is None

    def busy(self, message_id: str) -> bool:
        """Return whether the transaction's body, or its decision, is on its way."""
        return message_id in self._busy

    def of(self, message_id: str) -> Decision | None:
        """The decision, whoever made it; None: none is remembered."""
        return self._made.get(message_id, (None, None))[0]

    def confirmed(self, message_id: str, by: object) -> None:
        """A broker answered, over the connection ``by``, that it has the decision."""
        if message_id in self._made:
            self._made[message_id] = self._made[message_id][0], by

    def over(self, message_id: str) -> None:
        """Its body has told the broker as well as it could, or does not know: brokers that ask get an answer now."""
        self._busy.discard(message_id)

    def told(self, message_id: str, by: object = None) -> Decision | None:
        """Return what a broker is told that asks over the connection ``by``; None: the checker is asked.

        Nothing, while the body or its decision is on its way, and over the connection where a commit was confirmed:
        Java's broker asks for some seconds after it was told, and would deliver twice. Another life of a master may
        have lost what the one before confirmed.
        """
        if message_id in self._busy:
            return Decision.UNDECIDED
        decision, confirmed = self._made.get(message_id, (None, None))
        twice = decision is Decision.COMMIT and confirmed is not None and confirmed is by
        return Decision.UNDECIDED if twice else decision
