"""Lending: an acting slave serves POP while its master is away, although it may write nothing to its log.

The slave stores its checkpoints at another group's master, which brings back messages that are not acknowledged. The
ticket in a receipt names that master (``broker.abroad.tickets``); acknowledgements go there, also from this group's
master once it is back. A POP is answered when its checkpoints are stored there and the group's offset after its
messages is on disk here: a crash before loses no message. Acknowledgements of the master's own checkpoints go into the
ledger; the master puts them into its log when it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from broker.abroad.others import Abroad, Told
from broker.abroad.tickets import Acked, Ticket
from broker.offsets import OffsetTable
from broker.pop.chain import Checkpoints, Underway
from broker.pop.records import Ack, Records
from broker.puts import PutResult, Puts
from broker.rules import Chain, Refusal
from broker.standing import COMES_BACK, Standing
from broker.topics.names import group_fault, popped_from
from remoting.bodies.popping import COUNT_MAX, AckMessage, BatchAckMessage, CheckPoint
from remoting.codes import ResponseCode
from remoting.record import Message

NOT_HERE: Final = "this slave is not in its master's place any more"
BEHIND_NOTHING: Final = "an earlier POP of the queue stored no checkpoint, or the queue was reset"
NOT_IN_ORDER: Final = Refusal(
    ResponseCode.SYSTEM_BUSY, "nothing is given in order while the master of this group is away")
SETTLING_MAX: Final = 4_096
"""Puts of acknowledgements that may be in flight on a master at once."""
Lent = Callable[[int | str], None]
"""Called with the number of the revive queue for receipts, or with the reason why nothing is given."""


class AckLedger(Protocol):
    """Keeps what clients acknowledge while the master is away."""

    def acked(self, each: Acked) -> bool:
        """Write one entry; ``when_kept`` tells when it is on disk. False: the ledger is full."""

    def when_kept(self, call: Callable[[], None]) -> None: ...


@attrs.define(eq=False)
class _Given:
    """One POP whose checkpoints are stored; those before them in their queues perhaps are not."""

    checkpoints: Sequence[CheckPoint]
    links: Sequence[Underway]
    ticket: Ticket
    done: Lent


class Lending:
    """POP on an acting slave. ``enabled`` may be replaced at any time; ``ledger`` is joined later."""

    def __init__(self, abroad: Abroad, records: Records, chain: Checkpoints, offsets: OffsetTable, standing: Standing,
                 puts: Puts, no_right: Callable[[], str]) -> None:
        """``records`` makes messages for this broker's log. ``no_right`` returns why this broker may not deliver, or
        "" if it may."""
        self.enabled = False
        """The value of the key ``enableRemoteEscape``."""
        self.ledger: AckLedger | None = None
        self._abroad, self._own, self._chain, self._offsets = abroad, records, chain, offsets
        self._standing, self._puts, self._no_right = standing, puts, no_right
        self._records = attrs.evolve(records, rules=Chain())
        """Without rules of timers: the master that stores them delays them."""
        self._given: list[_Given] = []
        self._settling: set[tuple[str, int]] = set()

    @property
    def is_open(self) -> bool:
        """Return whether this broker is an acting slave and may store at other masters."""
        return self.enabled and self.ledger is not None and self._standing.role.acts

    @property
    def why_not(self) -> str:
        """Reason why this broker may neither give messages nor note acknowledgements as an acting slave; "": it may."""
        if not self.is_open:
            return NOT_HERE
        return COMES_BACK if self._offsets.frozen else self._no_right()

    # --- giving messages -------------------------------------------------------------------------------------

    def give(self, checkpoints: Sequence[CheckPoint], links: Sequence[Underway], done: Lent) -> None:
        """Store the checkpoints of one POP elsewhere. ``links`` are its links of the chain; ``done`` is called once."""
        first = checkpoints[0]
        self._abroad.store(
            popped_from(first.topic, first.group), [self._checkpoint(each) for each in checkpoints],
            partial(self._stored, checkpoints, links, done), partial(self._take_back, checkpoints))

    def _checkpoint(self, found: CheckPoint) -> Message:
        return _made(self._records.checkpoint(found, 0))

    def _stored(self, checkpoints: Sequence[CheckPoint], links: Sequence[Underway], done: Lent,
                outcome: Ticket | str) -> None:
        if isinstance(outcome, str):
            self._refuse(links)
            done(outcome)
        elif (why := self.why_not) or any(link.gone for link in links):
            self._refuse(links)
            self._take_back(checkpoints, outcome)
            done(why or BEHIND_NOTHING)
        else:
            self._given.append(_Given(checkpoints, links, outcome, done))
            self._chain.stored_elsewhere(links)
        self.look()

    def _refuse(self, links: Sequence[Underway]) -> None:
        for link in reversed(links):
            self._chain.refused(link)

    def look(self) -> None:
        """Answer each POP whose offsets have all moved, or one of whose offsets can move no more."""
        given, self._given = self._given, []
        for each in given:
            if all(link.settled for link in each.links):
                self._when_kept(partial(each.done, each.ticket.number))
            elif any(link.gone and not link.settled for link in each.links):
                # Settled checkpoints stay stored: their offset has moved, so only they bring the messages back.
                self._take_back([checkpoint for checkpoint, link in zip(each.checkpoints, each.links, strict=True)
                                 if not link.settled], each.ticket)
                each.done(self.why_not or BEHIND_NOTHING)
            else:
                self._given.append(each)

    def _when_kept(self, call: Callable[[], None]) -> None:
        if self.ledger is None:
            call()
        else:
            self.ledger.when_kept(call)

    def _take_back(self, checkpoints: Sequence[CheckPoint], ticket: Ticket) -> None:
        """Acknowledge messages that were not given after all, so that they do not come back."""
        for each in checkpoints:
            ack = BatchAckMessage(each.offsets, each.start_offset, each.group, each.topic, each.queue_id,
                                  each.pop_time_ms, each.broker_name)
            self._send(ticket, [(ack, each.invisible_ms)], lambda why_not, stored: None)

    # --- acknowledgements --------------------------------------------------------------------------------------

    def ack(self, ticket: Ticket, acks: Sequence[tuple[Ack, int]], told: Callable[[str], None]) -> None:
        """Send acknowledgements to the master that holds the checkpoints. Each comes with its invisible time in ms."""
        self._send(ticket, acks, lambda why_not, stored: told(why_not))

    def _send(self, ticket: Ticket, acks: Sequence[tuple[Ack, int]], told: Told) -> None:
        self._abroad.store_at(ticket, [_made(
            self._records.ack(ack, 0, invisible_ms)) for ack, invisible_ms in acks], told)

    def note(self, acks: Sequence[tuple[Ack, int]], revive_qid: int, told: Callable[[str], None]) -> None:
        """Write acknowledgements of the master's own checkpoints into the ledger."""
        why, ledger = self.why_not, self.ledger
        if ledger is None or why:
            told(why)
            return
        for ack, invisible_ms in acks:
            if group_fault(ack.group) is not None or len(ack.acked) > COUNT_MAX:
                told("the group's name is illegal, or there are more messages than a checkpoint can have")
                return
            for offset in ack.acked:
                if not ledger.acked(Acked(AckMessage(
                        offset, ack.start_offset, ack.group, ack.topic, ack.queue_id, ack.pop_time_ms,
                        ack.broker_name), revive_qid, invisible_ms)):
                    told("the ledger is full: acknowledge again when the master is back")
                    return
        ledger.when_kept(lambda: told(""))

    def change(self, checkpoint: CheckPoint, ack: AckMessage, revive_qid: int, invisible_ms: int, done: Lent) -> None:
        """Change when a message comes back: store the new checkpoint, at the same master if it takes it, then the
        acknowledgement of the old one. The new one is taken back only if that is certainly not stored."""
        old = Ticket.read(revive_qid)

        def stored(outcome: Ticket | str) -> None:
            if isinstance(outcome, str):
                done(outcome)
            elif old is not None:
                self._send(old, [(ack, invisible_ms)], partial(told, outcome))
            else:
                self.note([(ack, invisible_ms)], revive_qid, partial(told, outcome))

        def told(ticket: Ticket, why_not: str, stored: bool = False) -> None:
            if why_not and not stored:
                self._take_back([checkpoint], ticket)
            done(why_not or ticket.number)

        self._abroad.store(
            popped_from(checkpoint.topic, checkpoint.group), [self._checkpoint(checkpoint)], stored,
            partial(self._take_back, [checkpoint]), old)

    # --- the master is back ------------------------------------------------------------------------------------

    def settle(self, acked: Iterable[Acked], done: Callable[[Acked], None]) -> None:
        """Put acknowledgements that an acting slave took into this master's log, at most ``SETTLING_MAX`` at once;
        ``done`` is called for each that is stored. Call again for the rest."""
        for each in acked:
            if len(self._settling) >= SETTLING_MAX:
                break
            if each.thing in self._settling:
                continue
            message = self._own.ack(each.found, each.revive_qid, each.invisible_ms)
            if isinstance(message, Message):
                self._settling.add(each.thing)
                self._puts.put([message], partial(self._settled, each, done))

    def _settled(self, each: Acked, done: Callable[[Acked], None], result: PutResult) -> None:
        self._settling.discard(each.thing)
        if result.puts:
            done(each)


def _made(message: Message | Refusal) -> Message:
    assert isinstance(message, Message), "no rule stands in its way"
    return message
