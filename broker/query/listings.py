"""Lists clients for clients and administrators: codes 38, 203, 204, 328, 300, 343 and 345.

Codes and words are Java's. Source: ``ConsumerManageProcessor``, ``AdminBrokerProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.consumers.members import NS_PER_MS, Consumers, Member, Producers
from broker.offsets import OffsetTable
from broker.standing import Standing
from remoting.bodies.consumers import (
    ClientConnection,
    ConsumerConnection,
    ConsumerIdList,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from remoting.bodies.namesrv import TopicList
from remoting.codes import Language, RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.consumers import ConsumerGroupRequest, GroupRequest, ProducerGroupRequest, TopicGroupRequest
from remoting.headers.queries import TopicRequest

if TYPE_CHECKING:
    from remoting.connection import Connection
    from remoting.endpoint import Handler

_LANGUAGES: Final = {int(language): language.name for language in Language}


class Listings:
    """Handles these codes. ``now_ns`` is monotonic, ``wall_ms`` is for people."""

    def __init__(self, consumers: Consumers, producers: Producers, offsets: OffsetTable, standing: Standing, *,
                 now_ns: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        self._consumers, self._producers, self._offsets, self._standing = consumers, producers, offsets, standing
        self._now_ns, self._wall_ms = now_ns, wall_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    # --- members ---------------------------------------------------------------------------------------------

    def consumer_ids(self, connection: Connection, request: Command) -> Command:
        """Answer 38 with a group's members. None is an error, since for an empty list clients give up their queues."""
        name = ConsumerGroupRequest.from_ext(request.ext).consumer_group
        self._consumers.balances(name, connection)
        group = self._consumers.groups.get(name)
        if group is None:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {name}")
        return response(request, body=ConsumerIdList(group.client_ids()).to_json())

    def consumers(self, _: Connection, request: Command) -> Command:
        """Code 203: a group's consumers and their connections."""
        name = ConsumerGroupRequest.from_ext(request.ext).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            return response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark=f"the consumer group[{name}] not online")
        return response(request, body=ConsumerConnection(
            _connections(group.members.values()),
            {topic: wanted.data for topic, wanted in group.subscriptions.items()},
            group.consume_type, group.message_model, group.consume_from_where).to_json())

    def producers(self, _: Connection, request: Command) -> Command:
        """Code 204: a group's producers."""
        name = ProducerGroupRequest.from_ext(request.ext).producer_group
        members = self._producers.groups.get(name)
        if members is None:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=f"the producer group[{name}] not exist")
        return response(request, body=ProducerConnection(_connections(members.values())).to_json())

    def all_producers(self, _: Connection, request: Command) -> Command:
        """Code 328: the producers of all groups."""
        now_ns, now_ms = self._now_ns(), self._wall_ms()
        return response(request, body=ProducerTableInfo({
            name: [ProducerInfo(member.client_id, member.connection.peer, language_name(member.language),
                                member.version, now_ms - (now_ns - member.seen_ns) // NS_PER_MS)
                   for member in members.values()]
            for name, members in self._producers.groups.items()}).to_json())

    # --- topics and groups -----------------------------------------------------------------------------------

    def groups_of(self, _: Connection, request: Command) -> Command:
        """Answer 300 with the groups that want the topic, or ever committed an offset in it."""
        topic = TopicRequest.from_ext(request.ext).topic
        online = {group.name for group in self._consumers.groups.values() if topic in group.subscriptions}
        return response(request, body=GroupList(sorted({*online, *self._offsets.groups_of(topic)})).to_json())

    def topics_of(self, _: Connection, request: Command) -> Command:
        """Code 343: topics to which a group subscribes."""
        group = GroupRequest.from_ext(request.ext).group
        return response(request, body=TopicList(self._offsets.topics_of(group), self._standing.address).to_json())

    def subscription(self, _: Connection, request: Command) -> Command:
        """Code 345: a group's subscription to a topic."""
        asked = TopicGroupRequest.from_ext(request.ext)
        wanted = self._consumers.find(asked.group, asked.topic)
        return response(request, body=QuerySubscriptionResponseBody(
            asked.group, asked.topic, None if wanted is None else wanted.data).to_json())


def language_name(language: int) -> str:
    return _LANGUAGES.get(language, Language.OTHER.name)


def _connections(members: Iterable[Member]) -> list[ClientConnection]:
    return [ClientConnection(member.client_id, member.connection.peer, language_name(member.language), member.version)
            for member in members]
