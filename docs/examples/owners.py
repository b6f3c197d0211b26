"""A part of a broker, complete: who owns a topic. ``docs/how-to/add-a-request.md`` walks through it.

It knows names of topics and of owners, and no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from broker.config import BrokerConfig, pick
from broker.part import Part, Parts, Shared, Table
from broker.standing import REJECTED
from broker.store.tables import load
from broker.topics.part import TopicsPart
from remoting.body import Body, body
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.daemon.keys import key
from remoting.endpoint import Handler
from remoting.header import Header, header

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

SET_OWNER: Final = 61_901
GET_OWNERS: Final = 61_902
PATH: Final = "config/topicOwners.json"


@header
class SetOwnerRequest(Header):
    """61901. Without ``owner`` nobody owns the topic any more."""

    topic: str
    owner: str = ""


@body
class Owners(Body):
    """61902, and what the file holds: owners by topic."""

    owner_table: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class OwnersKeys:
    """What of the broker's configuration belongs to this part."""

    topic_owner_length_max: int = key(64, "ours: characters of an owner's name", least=1, most=1_000, live=True)


class OwnersPart(Part):
    keys = OwnersKeys

    def __init__(self, shared: Shared, before: Parts) -> None:
        self._standing, self._topics = shared.standing, before[TopicsPart].table
        self._limits = pick(shared.config, OwnersKeys)
        self._owners = load(shared.files, Owners, PATH).owner_table
        self._file = shared.table_file(lambda: Owners(dict(self._owners)), path=PATH)
        self._topics.on_delete.join("parts", self._forget)

    def handlers(self) -> Mapping[int, Handler]:
        return {SET_OWNER: self.set_owner, GET_OWNERS: self.get_owners}

    async def set_owner(self, _: Connection, request: Command) -> Command:
        asked = SetOwnerRequest.from_ext(request.ext)
        if not self._standing.role.takes_puts:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        if self._topics.get(asked.topic) is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic in this broker: {asked.topic}")
        if len(asked.owner) > self._limits.topic_owner_length_max:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"the owner's name has {len(asked.owner)} characters; {self._limits.topic_owner_length_max} may be"))
        self._forget(asked.topic)
        if asked.owner:
            self._owners[asked.topic] = asked.owner
        self._file.changed()
        try:
            await self._file.saved()
        except OSError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=f"done, and kept in memory only: {error}")
        return response(request)

    def get_owners(self, _: Connection, request: Command) -> Command:
        return response(request, body=Owners(self._owners).to_json())

    def _forget(self, topic: str) -> None:
        if self._owners.pop(topic, None) is not None:
            self._file.changed()

    def tables(self) -> Sequence[Table]:
        return (Table(self._file, GET_OWNERS, self._copy),)

    def _copy(self, answer: bytes) -> None:
        told = Owners.from_json(answer).owner_table
        if told != self._owners:
            self._owners = told
            self._file.changed()

    def configure(self, config: BrokerConfig) -> None:
        self._limits = pick(config, OwnersKeys)

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("broker_topics_owned", "Topics that somebody owns.", [((), len(self._owners))])
