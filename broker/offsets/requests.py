"""Answers requests of consumers, slaves and administrators for offsets: codes 14, 15, 43, 222, 314 and 308.

Codes and words are Java's. Differences: a group that never said where it is begins at 0 in a queue that shows no
message; a queue id that no queue of the topic can have is refused; 314 clones what it was asked to clone also where no
topic is named, and 308 neither fails for a group that is alone with its offsets nor deletes those it is not to look at.
Source: ``ConsumerManageProcessor``, ``AdminBrokerProcessor``, ``Broker2Client`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import attrs
import trio

from broker.groups import GroupTable
from broker.offsets.table import OffsetTable
from broker.standing import COMES_BACK, Standing
from broker.store.messages import StoredMessages
from broker.topics import TopicTable
from broker.topics.admin import Saved, Told, nobody, when_told
from broker.veil import Veil
from remoting.bodies.consumers import CorrectionOffsets, MessageQueue, ResetOffsetBody
from remoting.codes import Language, RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.consumers import CloneGroupOffsetRequest, QueryCorrectionOffsetRequest, ResetOffsetRequest
from remoting.headers.pulling import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest

NOT_FOUND: Final = 2**63 - 1
"""Answer to 308: the group is behind all others, so nothing has to be corrected."""


class Subscribers(Protocol):
    """Tells what the members of groups subscribe to."""

    def is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether its members, if there are any, want messages of the topic."""

    def push_reset(self, asked: ResetOffsetRequest, offsets: dict[MessageQueue, int], *, as_list: bool) -> str | None:
        """Tell all members where to go on. Returns why that cannot be done; None: it was."""


class OffsetRequests:
    """Handles these codes. ``queue_end`` returns the end of a queue in the log, visible or not, if it is known.

    ``memory``: messages count as in memory up to so many bytes before the end of the log."""

    def __init__(self, offsets: OffsetTable, *, groups: GroupTable, topics: TopicTable, messages: StoredMessages,
                 queue_end: Callable[[bytes, int], int | None], standing: Standing, subscribers: Subscribers,
                 veil: Veil, memory: int = 1 << 62) -> None:
        self._offsets, self._groups, self._topics, self._messages = offsets, groups, topics, messages
        self._queue_end = queue_end
        self._standing, self._subscribers, self._veil, self._memory = standing, subscribers, veil, memory
        self.when_kept: Callable[[Command], Command | Coroutine[Any, Any, Command]] = lambda answer: answer
        """Returns the answer to a commit when the commit is kept."""
        self.told: Told = nobody
        """Of a reset."""
        self.cleaned: Saved = trio.lowlevel.checkpoint
        """Of the table."""
        self._reset_behind_veil = veil.behind(self._reset)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._veil.behind(self.query),
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correct,
        }

    # --- consumers -------------------------------------------------------------------------------------------

    def query(self, _: Connection, request: Command) -> Command:
        """Answer 14. A group without an offset begins at 0 in a young queue, else where its client wants.

        A queue that shows no message is young: else a client that asks for its end next would pass over messages that
        are seen meanwhile."""
        asked = QueryConsumerOffsetRequest.from_ext(request.ext)
        offset = self._offsets.query(asked.consumer_group, asked.topic, asked.queue_id)
        if offset is not None:
            return response(request, header=OffsetResponse(offset))
        if asked.set_zero_if_not_found is False:
            return response(request, ResponseCode.QUERY_NOT_FOUND,
                            remark="Not found, do not set to zero, maybe this group boot first")
        if self._is_young(asked.topic, asked.queue_id):
            return response(request, header=OffsetResponse(0))
        return response(request, ResponseCode.QUERY_NOT_FOUND, remark="Not found, maybe this group consumer boot first")

    def _is_young(self, name: str, queue_id: int) -> bool:
        """Return whether the queue has its first message in memory, or, as a master knows, is yet to show it.

        A message that is in the log alone is seen before its client's next question."""
        topic = name.encode(errors="replace")
        if self._standing.role.leads and self._topics.get(name) is not None and (
                self._queue_end(topic, queue_id) is not None and self._messages.max_offset(topic, queue_id) == 0):
            return True
        return self._messages.min_offset(topic, queue_id) <= 0 and self._messages.is_recent(
            topic, queue_id, 0, self._memory)

    def update(self, _: Connection, request: Command) -> Command | Coroutine[Any, Any, Command]:
        """Commit an offset (15); most clients want no answer."""
        asked = UpdateConsumerOffsetRequest.from_ext(request.ext)
        group, name, queue_id = asked.consumer_group, asked.topic, asked.queue_id
        if self._groups.get(group) is None:
            return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"Group {group} not exist!")
        topic = self._topics.get(name)
        if topic is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {name} not exist!")
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if not 0 <= queue_id < queues:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"topic {name} has {queues} queues, and none of id {queue_id}"))
        if self._offsets.config.use_server_side_reset_offset and self._offsets.is_reset(group, name, queue_id):
            return response(request, remark="Offset has been previously reset")
        if self._offsets.frozen:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=COMES_BACK)
        self._offsets.commit(group, name, queue_id, asked.commit_offset)
        return self.when_kept(response(request))

    # --- slaves ----------------------------------------------------------------------------------------------

    def get_all(self, _: Connection, request: Command) -> Command:
        """Code 43: the offsets of all groups. A master that comes back takes what was said to its acting slave."""
        table = attrs.evolve(self._offsets.snapshot(), reset_table=None)
        if self._offsets.knows_more and not self._standing.role.takes_puts:
            table = attrs.evolve(table, data_version=self._offsets.version_ahead, true_version=table.data_version)
        return response(request, body=table.to_json())

    # --- administrators --------------------------------------------------------------------------------------

    async def reset(self, connection: Connection, request: Command) -> Command:
        """Reset a group's offsets (222); the answer follows when replicas know of it."""
        answer = self._reset_behind_veil(connection, request)
        if not isinstance(answer, Command):
            answer = await answer
        if answer.code != ResponseCode.SUCCESS:
            return answer
        return await when_told(answer, "reset", self.told, self.cleaned)

    def _reset(self, _: Connection, request: Command) -> Command:
        """Reset a group's offsets, here or by telling its members; it waits until a new master shows all."""
        asked = ResetOffsetRequest.from_ext(request.ext)
        if not self._offsets.config.use_server_side_reset_offset:
            return self._reset_in_clients(request, asked)
        if not self._standing.role.takes_puts:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="Can not reset offset in slave broker")
        topic = self._topics.get(asked.topic)
        if topic is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {asked.topic} does not exist")
        if self._groups.get(asked.group) is None:
            return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                            remark=f"Group {asked.group} does not exist")
        if asked.queue_id >= topic.read_queue_nums:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"topic {asked.topic} has {topic.read_queue_nums} queues, and none of id {asked.queue_id}"))
        if asked.queue_id >= 0 and asked.offset is not None and asked.offset != -1:
            offset, key = asked.offset, asked.topic.encode()
            least, most = self._messages.min_offset(key, asked.queue_id), self._messages.max_offset(key, asked.queue_id)
            if offset > most and self._veil.on:
                offset = min(offset, self._kept(asked.group, asked.topic, asked.queue_id, most))
                most = max(most, offset)
            if not least <= offset <= most:
                return response(request, ResponseCode.SYSTEM_ERROR, remark=(
                    f"Target offset {offset} not in consume queue range [{least}-{most}]"))
            found = {asked.queue_id: offset}
        else:
            queues = range(topic.read_queue_nums) if asked.queue_id < 0 else (asked.queue_id,)
            found = {queue_id: self._kept(asked.group, asked.topic, queue_id, self._at(
                asked.topic, queue_id, asked.timestamp)) for queue_id in queues}
        if not found:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="No queues to reset.")
        for queue_id, offset in found.items():
            self._offsets.reset(asked.group, asked.topic, queue_id, offset)
        return response(request, body=ResetOffsetBody(self._by_queue(asked.topic, found)).to_json())

    def _reset_in_clients(self, request: Command, asked: ResetOffsetRequest) -> Command:
        topic = self._topics.get(asked.topic)
        if topic is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={asked.topic}"))
        found: dict[int, int] = {}
        for queue_id in range(topic.write_queue_nums):
            present = self._offsets.query(asked.group, asked.topic, queue_id)
            if present is None:
                return response(request, ResponseCode.SYSTEM_ERROR, remark=(
                    f"The consumer group <{asked.group}> has no offset in queue {queue_id} of {asked.topic}"))
            meant = self._kept(asked.group, asked.topic, queue_id, self._at(asked.topic, queue_id, asked.timestamp))
            found[queue_id] = meant if asked.is_force else min(meant, present)
        offsets = self._by_queue(asked.topic, found)
        failure = self._subscribers.push_reset(asked, offsets, as_list=request.language == Language.CPP)
        if failure is not None:
            return response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark=failure)
        return response(request, body=ResetOffsetBody(offsets).to_json())

    def _at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the offset of the first message of that time or later; a negative time gives the queue's end."""
        if time_ms < 0:
            return self._messages.max_offset(topic.encode(), queue_id)
        return self._messages.offset_by_time(topic.encode(), queue_id, time_ms)

    def _kept(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Keep the group where it is, if only the end of what a new master shows would send it back."""
        if self._veil.on and offset >= self._messages.max_offset(topic.encode(), queue_id):
            return max(offset, self._offsets.query(group, topic, queue_id) or 0)
        return offset

    def _by_queue(self, topic: str, found: dict[int, int]) -> dict[MessageQueue, int]:
        name = self._standing.broker_name
        return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in found.items()}

    def clone(self, _: Connection, request: Command) -> Command:
        """Code 314: give one group's offsets to another."""
        asked = CloneGroupOffsetRequest.from_ext(request.ext)
        named = asked.topic is not None and asked.topic.strip()
        for topic in [asked.topic or ""] if named else self._offsets.topics_of(asked.src_group):
            if self._topics.get(topic) is not None and (
                    asked.offline or self._subscribers.is_subscribed(asked.src_group, topic)):
                self._offsets.clone(asked.src_group, asked.dest_group, topic)
        return response(request)

    def correct(self, _: Connection, request: Command) -> Command:
        """Answer 308: in each queue the least offset of all groups, unless the compared group is before it."""
        asked = QueryCorrectionOffsetRequest.from_ext(request.ext)
        without = {name for name in (asked.filter_groups or "").split(",") if name}
        key = asked.topic.encode(errors="replace")
        least = self._offsets.least(asked.topic, without, lambda queue_id: self._messages.min_offset(key, queue_id))
        for queue_id, offset in self._offsets.of(asked.compare_group or "", asked.topic).items():
            if least.get(queue_id, NOT_FOUND) > offset:
                least[queue_id] = NOT_FOUND
        return response(request, body=CorrectionOffsets(least).to_json())
