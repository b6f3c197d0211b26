"""Pulls, codes 11 and 361: from the check to the answer, or to the wait for a message.

A pull is answered in the turn that it comes in, without a task. Codes and words are Java's. Two differences: a pull
that is sent to a reset offset does not overwrite it by the offset that it brings, and pulls that are held are answered
at once when the broker becomes a slave.
Source: ``PullMessageProcessor``, ``DefaultPullMessageResultHandler`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from broker.consumers.members import Consumers
from broker.consumers.subscriptions import Subscribed
from broker.filters.table import Filters
from broker.groups import GroupTable
from broker.journal import Journal
from broker.offsets import OffsetTable
from broker.pulling.checks import PullConfig, PullRefusal, check, no_group
from broker.pulling.filtering import read_filtered
from broker.pulling.holding import Holding
from broker.pulling.laggards import Laggards
from broker.pulling.reading import Found, ReadConfig, Status, read
from broker.standing import MASTER_ID, REJECTED, Role, Standing
from broker.store.errors import StoreError
from broker.store.tables import SubscriptionGroup
from broker.topics import TopicTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE, Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import DamagedRecord
from remoting.headers.pulling import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessageRequest, PullMessageResponse

logger = logging.getLogger("broker")

_CODES: Final = {
    Status.FOUND: ResponseCode.SUCCESS,
    Status.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


_BEYOND: Final = frozenset({
    Status.OFFSET_OVERFLOW_BADLY, Status.NO_MATCHED_LOGIC_QUEUE, Status.NO_MESSAGE_IN_QUEUE})


def code_of(status: Status, offset: int) -> ResponseCode:
    """Return the code of the answer. A new reader (offset 0) is at the end of a queue without messages; for another
    reader the queue has moved."""
    if status is Status.NO_MATCHED_LOGIC_QUEUE or status is Status.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[status]


def _ask_again(request: Command) -> Command:
    """Answer that there is nothing now: the next pull is read when there is room for its answer."""
    offset = PullMessageRequest.from_ext(request.ext).queue_offset
    return response(request, ResponseCode.PULL_RETRY_IMMEDIATELY, PullMessageResponse(
        MASTER_ID, offset, offset, offset), remark=Status.NO_MATCHED_MESSAGE.value)


@attrs.define
class Given:
    """Counts of what was given to consumers. They only ever rise."""

    pulls: int = 0
    """Pulls that found a message."""
    misses: int = 0
    """Looks that found nothing, those of held pulls included."""
    messages: int = 0
    bytes: int = 0


class Pulling:
    """Handles pulls; ``run`` must be running. ``config`` and ``reads`` may be replaced at any time.

    ``now_ns`` is monotonic; ``memory``: messages count as in memory up to so many bytes before the end of the log."""

    def __init__(self, config: PullConfig, reads: ReadConfig, *, journal: Journal, topics: TopicTable,
                 groups: GroupTable, offsets: OffsetTable, consumers: Consumers, filters: Filters,
                 standing: Standing, now_ns: Callable[[], int], memory: int = 1 << 62) -> None:
        self.config, self.reads, self.memory = config, reads, memory
        self.holding = Holding(self._again)
        self.given, self.laggards = Given(), Laggards()
        self.on_found: Callable[[str, str, int, int], None] | None = None
        """Called with group, topic, and how many messages and bytes were given."""
        self._messages, self._veil, self._mend = journal.messages, journal.veil, journal.mender.ask
        self._topics, self._groups, self._offsets, self._consumers = topics, groups, offsets, consumers
        self._filters, self._standing, self._now_ns = filters, standing, now_ns
        self._finishing = False
        journal.arrived.call = self.holding.arrived
        topics.narrowed.join("waiting", self.holding.wake_topics)
        groups.gone.join("waiting", self._group_gone)
        groups.barred.join("waiting", self.holding.wake_groups)
        offsets.on_reset = lambda group, topic, queue_id: self.holding.wake_queue(topic, queue_id)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let held pulls go at their time, until cancelled."""
        await self.holding.run(task_status=task_status)

    def role_changed(self) -> None:
        """Try held pulls again: the role has changed."""
        self.holding.wake_all()

    def all_seen(self) -> None:
        """Try held pulls again: the veil is lifted."""
        self.holding.wake_all()

    def finish(self) -> None:
        """The broker stops: answer held pulls, and hold none any more."""
        self._finishing = True
        self.holding.wake_all()

    def _group_gone(self, name: str) -> None:
        """The group is deleted. Another try would make it anew."""
        def refuse(connection: Connection, request: Command) -> None:
            refusal = no_group(name)
            connection.reply(request, response(request, refusal.code, PullMessageResponse(), remark=refusal.remark))

        self.holding.wake_groups((name,), refuse)

    def pull(self, connection: Connection, request: Command) -> Command | None:
        """Answer a pull; None: it is held."""
        return self._pull(connection, request, first=True)

    def _again(self, connection: Connection, request: Command) -> None:
        """Answer a pull that was held."""
        try:
            answer = _ask_again(request) if connection.congested else self._pull(connection, request, first=False)
        except Exception as error:  # a defect in one request must not end others that wait
            logger.exception("a pull of %s that was held", connection.peer)
            answer = response(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        assert answer is not None, "held once"
        connection.reply(request, answer)

    def _pull(self, connection: Connection, request: Command, *, first: bool) -> Command | None:
        role = self._standing.role
        if not role.serves_pulls and not self.config.slave_read_enable:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = PullMessageRequest.from_ext(request.ext)
        checked = check(
            asked, lite=request.code == RequestCode.LITE_PULL_MESSAGE, leads=role.leads, config=self.config,
            groups=self._groups, topics=self._topics, consumers=self._consumers, filters=self._filters)
        if isinstance(checked, PullRefusal):
            return response(request, checked.code, PullMessageResponse(forbidden_type=checked.forbidden_type),
                            remark=checked.remark)
        group, topic, wanted = checked
        if asked.sys_flag & SUBSCRIPTION:
            plain = wanted if wanted.filter is None else attrs.evolve(wanted, filter=None)
            self._consumers.pulled(asked.consumer_group, asked.topic, plain, self._now_ns())
        try:
            found = self._read(asked, wanted, role)
        except StoreError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, PullMessageResponse(), remark=str(error))
        except DamagedRecord as damage:
            outcome = self._mend(asked.topic.encode(), asked.queue_id)
            return response(request, ResponseCode.SYSTEM_ERROR, PullMessageResponse(), remark=f"{damage}: {outcome}")
        self._note(asked, found, first)
        code, suggested = code_of(found.status, asked.queue_offset), self._suggested(group, found)
        if code is ResponseCode.PULL_NOT_FOUND and first and asked.sys_flag & SUSPEND and not self._finishing:
            timeout_ms = asked.suspend_timeout_millis if self.config.long_polling_enable \
                else self.config.short_polling_time_mills
            if self.holding.hold(
                    connection, request, (asked.topic, asked.queue_id), asked.consumer_group, asked.queue_offset,
                    wanted, timeout_ms):
                return None
        if code is ResponseCode.PULL_OFFSET_MOVED and found.status is not Status.OFFSET_RESET and (
                not self._corrects(role)):
            code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
        elif found.status is Status.OFFSET_TOO_SMALL:
            self._offsets.on_moved(
                asked.consumer_group, asked.topic, asked.queue_id, asked.queue_offset, found.next_offset)
        return Command(code, request.opaque, RESPONSE, {
            "suggestWhichBrokerId": str(suggested), "nextBeginOffset": str(found.next_offset),
            "minOffset": str(found.min_offset), "maxOffset": str(found.max_offset),
            "topicSysFlag": str(topic.topic_sys_flag), "groupSysFlag": str(group.group_sys_flag),
        }, found.data, found.status.value, encoding=request.encoding)

    def _read(self, asked: PullMessageRequest, wanted: Subscribed, role: Role) -> Found:
        topic, queue_id = asked.topic.encode(), asked.queue_id
        reset = self._offsets.take_reset(asked.consumer_group, asked.topic, queue_id)
        if reset is not None and self._offsets.config.use_server_side_reset_offset:
            return Found(Status.OFFSET_RESET, reset, self._messages.min_offset(topic, queue_id),
                         self._messages.max_offset(topic, queue_id))
        if wanted.filter is None:
            found = read(
                self._messages, topic, queue_id, asked.queue_offset, codes=wanted.codes, count=asked.max_msg_nums,
                bytes_max=asked.max_msg_bytes, config=self.reads, memory=self.memory, correct=self._corrects(role))
        else:
            found = read_filtered(
                self._messages, topic, queue_id, asked.queue_offset, wanted=wanted, count=asked.max_msg_nums,
                bytes_max=asked.max_msg_bytes, config=self.reads, memory=self.memory, correct=self._corrects(role))
        if self._veil.on and found.status in _BEYOND:  # the former master may have shown that message
            return attrs.evolve(found, status=Status.OFFSET_OVERFLOW_ONE, next_offset=asked.queue_offset)
        return found

    def _corrects(self, role: Role) -> bool:
        """Return whether offsets out of range are corrected: a slave may lag, and not know an offset yet."""
        return role.leads or self.reads.offset_check_in_slave

    def _note(self, asked: PullMessageRequest, found: Found, first: bool) -> None:
        group, topic, queue_id = asked.consumer_group, asked.topic, asked.queue_id
        if found.status is Status.OFFSET_RESET:
            return
        self._offsets.pulled(group, topic, queue_id, found.next_offset)
        self.looked(group, topic, queue_id, found.behind)
        if first and asked.sys_flag & COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, asked.commit_offset)
        if found.count:
            self.gave(group, topic, found.count, len(found.data))
        else:
            self.given.misses += 1

    def looked(self, group: str, topic: str, queue_id: int, behind: int) -> None:
        """Note that a member of the group, by any kind of request, read so many bytes before the end of the log."""
        if self.config.disable_consume_if_consumer_read_slowly:
            self.laggards.note(group, topic, queue_id, behind)

    def gave(self, group: str, topic: str, count: int, size: int) -> None:
        """Count messages and bytes of the topic that a member of the group got, by any kind of request."""
        given = self.given
        given.pulls += 1
        given.messages += count
        given.bytes += size
        if self.on_found is not None:
            self.on_found(group, topic, count, size)

    def _suggested(self, group: SubscriptionGroup, found: Found) -> int:
        """Return the id of the broker to pull from next."""
        if not self.config.slave_read_enable:
            return MASTER_ID
        return group.which_broker_when_consume_slowly if found.behind > self.memory else group.broker_id
