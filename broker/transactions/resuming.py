"""Request 323: puts a given-up half back into the half queue, so that its producers are asked again.

Source: ``AdminBrokerProcessor.resumeCheckHalfMessage`` of RocketMQ 5.5.0, which also puts back decided ones.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.puts import PutResult, Puts
from broker.sending.answers import STORED
from broker.store.errors import OffsetGone
from broker.store.log import Log
from broker.transactions import records
from broker.transactions.ending import Author
from broker.transactions.feeding import Feed
from broker.transactions.records import Half, read_half
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.headers.transactions import ResumeCheckHalfMessageRequest
from remoting.record import Record, parse_message_id

FAILED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class Resuming:
    """Handles 323. ``open``: this broker is master and knows all decisions."""

    def __init__(self, feed: Feed, log: Log, puts: Puts, author: Author,
                 how_it_ended: Callable[[Half, int], str]) -> None:
        """``how_it_ended`` returns what table and log say of a transaction, by a half and the first one's offset."""
        self._how_it_ended = how_it_ended
        self._feed, self._log, self._puts, self._author = feed, log, puts, author
        self.open = False

    def resume(self, connection: Connection, request: Command) -> Command | None:
        """Put a given-up half back. None: the answer follows when it is stored."""
        asked = ResumeCheckHalfMessageRequest.from_ext(request.ext)
        if not self.open:
            return _refused(request, f"{FAILED} This broker is no master, or does not know all decisions yet.")
        try:
            record = self._log.record(parse_message_id(asked.msg_id)[1])
        except (MessageIllegal, OffsetGone, DamagedRecord) as error:
            return _refused(request, f"{FAILED} There is no such message: {error}")
        self._feed.feed_all()
        half = _given_up(record)
        if isinstance(half, str):
            return _refused(request, f"{FAILED} {half}")
        first = self._first(half)
        halves = self._feed.halves
        if first is not None and (known := halves.of(first)) is not None and not known.given_up:
            return _refused(request, f"{FAILED} Its transaction is open.")
        if first is not None and halves.of(first) is None and (
                halves.ended(first) is not None or first >= halves.since
                or self._how_it_ended(half, first) in (records.COMMITTED, records.ROLLED_BACK)):
            return _refused(request, f"{FAILED} Its transaction was decided.")
        back = records.resumed(record, first, self._author.store_host, self._author.wall_ms())
        self._puts.put([back], lambda result: connection.reply(request, _answer(request, result)))
        return None

    def _first(self, half: Half) -> int | None:
        if half.first is not None:
            return half.first
        found = [each.first for each in self._feed.halves
                 if each.given_up and (each.half.unique, each.half.born_ms) == (half.unique, half.born_ms)]
        return found[0] if found else None


def _given_up(record: Record) -> Half | str:
    """The given-up half in ``record``, or why it is none."""
    if record.message.topic != records.GIVEN_UP_TOPIC:
        return "It is not in the topic of given-up halves."
    return read_half(attrs.evolve(record, message=attrs.evolve(record.message, topic=records.HALF_TOPIC)))


def _answer(request: Command, result: PutResult) -> Command:
    return response(request) if result.status in STORED else _refused(
        request, f"{FAILED} {result.words}")


def _refused(request: Command, words: str) -> Command:
    return response(request, ResponseCode.SYSTEM_ERROR, remark=words)
