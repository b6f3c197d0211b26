"""POP in the master's place: what is given out, acknowledged or given another time while the log takes nothing.

A checkpoint that this slave makes goes to a master of another group, which brings back what is not acknowledged; the
receipt's ticket says which (``broker.abroad.tickets``), and acknowledgements go there, also from the master that came
back. A POP is answered when its checkpoints are stored there, and the group's offset, behind what it gave, is on disk
here. Acknowledgements of what the master gave out are kept in the ledger: it puts them into its log when it is back.
It decides nothing about who may be given what.
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
from broker.pop.records import Records
from broker.puts import PutResult, Puts
from broker.rules import Chain, Refusal
from broker.standing import COMES_BACK, Standing
from broker.topics.names import group_fault, popped_from
from remoting.bodies.popping import COUNT_MAX, AckMessage, BatchAckMessage, CheckPoint
from remoting.codes import ResponseCode
from remoting.record import Message

NOT_HERE: Final = "this slave is not in its master's place any more"
BEHIND_NOTHING: Final = "a POP before it gave nothing"
NOT_IN_ORDER: Final = Refusal(
    ResponseCode.SYSTEM_BUSY, "nothing is given in order while the master of this group is away")
SETTLING_MAX: Final = 4_096
"""Acknowledgements that are put into a master's log at once."""
Ack = AckMessage | BatchAckMessage
Lent = Callable[[int | str], None]
"""Hears the number of the revive queue for receipts, or why nothing is given."""


class AckLedger(Protocol):
    """Has what is acknowledged in the master's place."""

    def acked(self, each: Acked) -> bool:
        """It is on disk when ``when_kept`` says so. False: there is no room for it."""

    def when_kept(self, call: Callable[[], None]) -> None: ...


@attrs.define(eq=False)
class _Given:
    """What one POP gave: its checkpoints are stored, those before them perhaps not."""

    checkpoints: Sequence[CheckPoint]
    links: Sequence[Underway]
    ticket: Ticket
    done: Lent


class Lending:
    """``enabled`` may be replaced at any time; ``ledger`` is joined later."""

    def __init__(self, abroad: Abroad, records: Records, chain: Checkpoints, offsets: OffsetTable, standing: Standing,
                 puts: Puts, no_right: Callable[[], str]) -> None:
        """``records`` are for this broker's log. ``no_right``: why nothing may be delivered here; "": it may."""
        self.enabled = False
        """``enableRemoteEscape``."""
        self.ledger: AckLedger | None = None
        self._abroad, self._own, self._chain, self._offsets = abroad, records, chain, offsets
        self._standing, self._puts, self._no_right = standing, puts, no_right
        self._records = attrs.evolve(records, rules=Chain())
        """As they are sent: whoever stores them lets them wait."""
        self._given: list[_Given] = []
        self._settling: set[tuple[str, int]] = set()

    @property
    def is_open(self) -> bool:
        """This slave is in its master's place, and what it must store goes elsewhere."""
        return self.enabled and self.ledger is not None and self._standing.role.acts

    @property
    def why_not(self) -> str:
        """Why nothing may be given, or noted, in the master's place; "": it may."""
        if not self.is_open:
            return NOT_HERE
        return COMES_BACK if self._offsets.frozen else self._no_right()

    # --- what is given ---------------------------------------------------------------------------------------

    def give(self, checkpoints: Sequence[CheckPoint], links: Sequence[Underway], done: Lent) -> None:
        """Of one POP. ``links`` are under way in the chain; ``done`` is called once."""
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
        """Those are answered to whose end the group's offset has moved, and those that it never will."""
        given, self._given = self._given, []
        for each in given:
            if all(link.settled for link in each.links):
                self._when_kept(partial(each.done, each.ticket.number))
            elif any(link.gone and not link.settled for link in each.links):
                # Of a queue whose offset has moved nobody else would give the messages: they come back.
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
        """What was not given is not to come back."""
        for each in checkpoints:
            ack = BatchAckMessage(each.offsets, each.start_offset, each.group, each.topic, each.queue_id,
                                  each.pop_time_ms, each.broker_name)
            self._send(ticket, [(ack, each.invisible_ms)], lambda why_not, stored: None)

    # --- what is acknowledged ----------------------------------------------------------------------------------

    def ack(self, ticket: Ticket, acks: Sequence[tuple[Ack, int]], told: Callable[[str], None]) -> None:
        """Of checkpoints that another group's master holds, with the times for which their messages were given."""
        self._send(ticket, acks, lambda why_not, stored: told(why_not))

    def _send(self, ticket: Ticket, acks: Sequence[tuple[Ack, int]], told: Told) -> None:
        self._abroad.store_at(ticket, [_made(
            self._records.ack(ack, 0, invisible_ms) if isinstance(ack, AckMessage)
            else self._records.batch_ack(ack, 0, invisible_ms)) for ack, invisible_ms in acks], told)

    def note(self, acks: Sequence[tuple[Ack, int]], revive_qid: int, told: Callable[[str], None]) -> None:
        """Of a checkpoint of the master's: the ledger has them."""
        why, ledger = self.why_not, self.ledger
        if ledger is None or why:
            told(why)
            return
        for ack, invisible_ms in acks:
            if group_fault(ack.group) is not None or len(ack.acked) > COUNT_MAX:
                told("no checkpoint has such a group, or so many messages")
                return
            for offset in ack.acked:
                if not ledger.acked(Acked(AckMessage(
                        offset, ack.start_offset, ack.group, ack.topic, ack.queue_id, ack.pop_time_ms,
                        ack.broker_name), revive_qid, invisible_ms)):
                    told("the ledger is full: what else is acknowledged waits for the master")
                    return
        ledger.when_kept(lambda: told(""))

    def change(self, checkpoint: CheckPoint, ack: AckMessage, revive_qid: int, invisible_ms: int, done: Lent) -> None:
        """The message comes back at another time: first the new checkpoint is stored, at the same master if that takes
        it, then the old one's acknowledgement. Only if that is surely not stored the new one is taken back."""
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
        """What a slave acknowledged in this master's place goes into its log, some of it now; ``done`` with each."""
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
