"""Answers requests of administrators, slaves and clients about topics: codes 17, 18, 215, 351, 21 and 305.

A topic that was made or deleted is on disk when the answer goes, and positions in a deleted one are gone there. Checks
are Java's, in its order, with its codes and words. Where Java makes none of the topics in a list because one of them is
there already, the others are made here; a count of queues or a permission that no topic can have is refused.
Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import trio

from broker.topics.attributes import MESSAGE_TYPE, MIXED, AttributesIllegal, parse
from broker.topics.names import pop_retry_topic, topic_fault
from broker.topics.table import TopicTable
from remoting.bodies.namesrv import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicList
from remoting.bodies.topics import CreateTopicListRequestBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError
from remoting.headers.queries import TopicRequest
from remoting.headers.topics import (
    CreateTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
)

QUEUES_MAX: Final = 65_535
PERM_MAX: Final = 15
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")

Fault = tuple[ResponseCode, str]
Saved = Callable[[], Awaitable[None]]
"""Returns when something is on disk, or raises ``OSError``."""
Told = Callable[[], Awaitable[str]]
"""Returns when the next master is sure to know what was said: "", or why it may not know."""


class TopicAdmin:
    def __init__(self, topics: TopicTable, saved: Saved) -> None:
        self._topics, self._saved = topics, saved
        self.groups_of: Callable[[str], Iterable[str]] = lambda topic: ()
        """Groups that have read a topic."""
        self.cleaned: Saved = trio.lowlevel.checkpoint
        """Of positions in a deleted topic, which are gone."""
        self.told: Told = nobody
        """Of the deletion."""

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_many,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    # --- changing --------------------------------------------------------------------------------------------

    async def create(self, _: Connection, request: Command) -> Command:
        asked = CreateTopicRequest.from_ext(request.ext)
        try:
            changes = parse(asked.attributes)
        except AttributesIllegal as error:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
        return await self._create(request, [TopicConfig(
            asked.topic, asked.read_queue_nums, asked.write_queue_nums, asked.perm, asked.topic_filter_type,
            asked.topic_sys_flag or 0, asked.order, changes)])

    async def create_many(self, _: Connection, request: Command) -> Command:
        return await self._create(request, CreateTopicListRequestBody.from_json(request.body).topic_config_list)

    async def _create(self, request: Command, asked: Sequence[TopicConfig]) -> Command:
        final = []
        for topic in asked:
            if (fault := self._fault(topic)) is not None:
                return response(request, fault[0], remark=fault[1])
            try:
                final.append(self._topics.with_attributes(topic))
            except AttributesIllegal as error:
                return response(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
        self._topics.update(final)
        return await self._when_saved(request)

    def _fault(self, topic: TopicConfig) -> Fault | None:
        name = topic.topic_name
        if (fault := topic_fault(name)) is not None:
            return ResponseCode.INVALID_PARAMETER, fault
        if (kept := self._kept_for_the_system(name)) is not None:
            return kept
        if topic.attributes.get(f"+{MESSAGE_TYPE}") == MIXED and not self._topics.config.enable_mixed_message_type:
            return ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
        if not (0 <= topic.read_queue_nums <= QUEUES_MAX and 0 <= topic.write_queue_nums <= QUEUES_MAX):
            return ResponseCode.INVALID_PARAMETER, (
                f"topic {name}: {topic.read_queue_nums} queues to read and {topic.write_queue_nums} to write; "
                f"0 to {QUEUES_MAX} are allowed")
        if not 0 <= topic.perm <= PERM_MAX:
            return ResponseCode.INVALID_PARAMETER, (
                f"topic {name}: perm {topic.perm}; it is the sum of 4 to read, 2 to write, 1 to be inherited")
        if topic.topic_filter_type not in FILTER_TYPES:
            return ResponseCode.SYSTEM_ERROR, (
                f"topicFilterType = [{topic.topic_filter_type}] value invalid; {' or '.join(FILTER_TYPES)} is allowed")
        return None

    def _kept_for_the_system(self, name: str) -> Fault | None:
        if self._topics.config.validate_system_topic_when_update_topic and self._topics.is_system(name):
            return ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
        return None

    async def delete(self, _: Connection, request: Command) -> Command:
        name = TopicRequest.from_ext(request.ext).topic
        if not name.strip():
            return response(request, ResponseCode.INVALID_PARAMETER, remark="The specified topic is blank.")
        if (kept := self._kept_for_the_system(name)) is not None:
            return response(request, kept[0], remark=kept[1])
        cleared = self._topics.config.clear_retry_topic_when_delete_topic
        for gone in (name, *(self._pop_retry_topics(name) if cleared else ())):
            self._topics.delete(gone)
        return await when_deleted(request, self.told, self.cleaned, self._when_saved)

    def _pop_retry_topics(self, name: str) -> Iterator[str]:
        """Yield the topics to which messages of this one come back that groups popped, if they exist."""
        for group in self.groups_of(name):
            for v2 in (True, False):
                retry = pop_retry_topic(name, group, v2=v2)
                if self._topics.get(retry) is not None:
                    yield retry

    async def _when_saved(self, request: Command) -> Command:
        return await when_saved(request, self._saved, "topics.json")

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, _: Connection, request: Command) -> Command:
        name = GetTopicConfigRequest.from_ext(request.ext).topic
        found = self._topics.get(name)
        if found is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic in this broker. topic: {name}")
        return response(request, body=found.to_json())

    def get_all(self, _: Connection, request: Command) -> Command:
        """All, or the page that is asked for."""
        asked = GetAllTopicConfigRequest.from_ext(request.ext)
        config, version, topics = self._topics.config, self._topics.version, self._topics.topics
        total = len(topics)
        if config.enable_split_metadata and asked != GetAllTopicConfigRequest():
            seq = max(0, asked.topic_seq or 0) if is_version(asked.data_version, version) else 0
            most = config.split_metadata_size if asked.max_topic_num is None else asked.max_topic_num
            names = page(sorted(topics), seq, max(1, min(config.split_metadata_size, most)))
            topics = {name: topics[name] for name in names}
        return response(request, header=GetAllTopicConfigResponse(total),
                        body=TopicConfigSerializeWrapper(dict(topics), version).to_json())

    def system_topics(self, _: Connection, request: Command) -> Command:
        return response(request, body=TopicList(sorted(self._topics.system)).to_json())


async def when_saved(request: Command, saved: Saved, file: str, body: bytes = b"", *,
                     what: str = "done, and kept") -> Command:
    """The answer to a change that is on disk, or that is in memory only, since ``file`` cannot be written."""
    try:
        await saved()
    except OSError as error:
        return response(request, ResponseCode.SYSTEM_ERROR,
                        remark=f"{what} in memory only: {file} cannot be written, {error}")
    return response(request, body=body)


async def nobody() -> str:
    """There is nobody to be told."""
    return ""


async def when_deleted(
    request: Command, told: Told, cleaned: Saved, then: Callable[[Command], Awaitable[Command]],
) -> Command:
    """The answer to a deletion, behind the positions: after a kill, a topic or group of the name would go on there, and
    so it would at the next master that never heard of it."""
    answer = await when_told(response(request), "deleted", told, cleaned)
    saved = await then(request)
    return saved if saved.code else answer


async def when_told(answer: Command, what: str, told: Told, cleaned: Saved) -> Command:
    """The answer to a reset or a deletion, ``what``, when the next master knows of it and positions are on disk, or why
    that is not sure."""
    unknown, why = await told(), ""
    try:
        await cleaned()
    except OSError as error:
        why = f"{what}, and the positions in memory only: consumerOffset.json cannot be written, {error}"
    if unknown and not why:
        why = f"{what} here, and perhaps not on the next master: {unknown}"
    if why:
        answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, why
    return answer


def page(names: Sequence[str], seq: int, size: int) -> Sequence[str]:
    """``size`` names from ``seq`` on, or one more where that is the last: Java's reader stops one short of the end."""
    end = seq + size
    return names[seq : end + 1 if end == len(names) - 1 else end]


def is_version(text: str | None, version: DataVersion) -> bool:
    """Return whether ``text``, of a page's request, is the JSON of this version."""
    try:
        return bool(text) and DataVersion.from_json((text or "").encode()) == version
    except BodyError:
        return False
