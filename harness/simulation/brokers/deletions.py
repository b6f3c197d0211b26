"""A topic and its group that an operator deletes now and then, a client that makes them again, and INV_B62.

The group asks the master where it is, reads on from there, and says how far it has come. The judge knows which messages
were acknowledged since the last deletion that was answered, and to which of them the group was never led.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from broker.groups.part import GroupsPart
from broker.ha.acks import PutStatus
from broker.puts import Done, PutResult
from broker.rules import Draft
from broker.store.errors import OffsetGone
from broker.topics.part import TopicsPart
from harness.simulation.brokers.client import FeatureClient
from harness.simulation.brokers.features import NOBODY
from harness.simulation.brokers.judging import Judge
from harness.simulation.brokers.tasks import Tasks
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.headers.consumers import DeleteSubscriptionGroupRequest
from remoting.headers.pulling import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from remoting.headers.queries import TopicRequest
from remoting.record import Message, decode

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

TOPIC: Final = "Again"
GROUP: Final = "again"
DELETED: Final = (
    "message of a topic that goes acknowledged", "topic deleted", "group deleted", "read in a topic made again",
    "began anew at a later master")
"""What each campaign must meet."""
FINISH_NS: Final = 200 * MS
BATCH: Final = 32
"""Entries that one read looks at."""


@attrs.define(eq=False)
class Followed:
    body: bytes
    since: int
    """How many deletions had been answered."""
    topics_begun: int = 0
    """How many deletions of the topic a broker had begun."""
    status: PutStatus | None = None


class DeletionClient(FeatureClient):
    """Sends, reads as a group of pulls does, and is the operator that deletes."""

    acknowledged = DELETED[0]

    def __init__(self, scene: Group, acts: Stream) -> None:
        super().__init__(scene, acts)
        scene.after(FINISH_NS, self._finish)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        luck = chance()
        if luck < 0.5:
            return ["send", int(chance() * 12)]
        if luck < 0.9:
            return ["read", int(chance() * 12)]
        return ["delete", int(chance() < 0.3)] if luck < 0.93 else None

    def _do(self, act: list[Value]) -> None:
        what, number = act
        getattr(self, f"_do_{what}")(number)

    def _finish(self) -> None:
        """Read all queues once all is healed."""
        self._scene.after(FINISH_NS, self._finish)
        if self._scene.healed:
            self._target = self._scene.guess_master(self._target)
            for queue in range(self._scene.plan.queues):
                self._do_read(queue)

    def _do_send(self, queue: int) -> None:
        judge = self._scene.watch.deletions
        sent = Followed(b"%d." % len(judge.sent), judge.answered_count, judge.topics_begun)
        judge.sent[sent.body] = sent
        self._send(sent, Draft(TOPIC, queue % self._scene.plan.queues, {}))

    def _put(self, process: BrokerProcess, draft: Draft, body: bytes, done: Done) -> None:
        """Put a message, and make the topic where it is missing."""
        features = process.features
        assert features is not None
        if process.puts.serving:
            features.parts[TopicsPart].table.create_if_absent(TOPIC, self._scene.plan.queues)
        super()._put(process, draft, body, done)

    def _do_read(self, queue: int) -> None:
        queue_id = queue % self._scene.plan.queues
        ask = request(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest(GROUP, TOPIC, queue_id))

        def asked(process: BrokerProcess) -> None:
            answer = self._handle(process, ask)
            if answer is None:
                return
            known = answer.code == ResponseCode.SUCCESS
            self._reads(process, queue_id, OffsetResponse.from_ext(answer.ext).offset if known else 0)

        self._at_master(asked)

    def _reads(self, process: BrokerProcess, queue_id: int, begin: int) -> None:
        """Read one batch from where the group is, and commit the group's new offset."""
        judge, messages = self._scene.watch.deletions, process.journal.messages
        topic, first = TOPIC.encode(), begin
        begin = max(begin, messages.min_offset(topic, queue_id))  # pulls correct it, too
        judge.begins(process, queue_id, begin)
        try:
            found = messages.get(topic, queue_id, begin, count=BATCH)
        except OffsetGone:
            return
        for data in found:
            record = decode(data)
            judge.given(record.message.body)
            begin = record.queue_offset + 1
        if not found:  # entries without messages: of the topic before, which this broker's queue never held
            begin = min(begin + BATCH, messages.max_offset(topic, queue_id))
        begun = judge.begun
        told = request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(GROUP, TOPIC, queue_id, begin))

        def commits(there: BrokerProcess) -> None:
            if begun != judge.begun:
                return  # a deletion came between: this offset is of the topic before
            assert there.features is not None
            there.features.parts[GroupsPart].table.find(GROUP)
            self._handle(there, told)

        if begin > first:
            self._at_master(commits)

    def _do_delete(self, group: int) -> None:
        what = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest(GROUP, clean_offset=True)) \
            if group else request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(TOPIC))
        judge = self._scene.watch.deletions

        def asked(process: BrokerProcess) -> None:
            assert process.features is not None
            begun = judge.begins_deletion(of_topic=not group)
            answer = process.features.handlers[what.code](NOBODY, what)
            assert answer is not None and not isinstance(answer, Command), "it waits"

            def told(command: Command) -> None:
                if command.code == ResponseCode.SUCCESS:
                    judge.deleted(process, begun, of_topic=not group)

            Tasks(process).run(answer, told)

        self._at_master(asked)

    def _at_master(self, call: Callable[[BrokerProcess], None]) -> None:
        """Call with the master of the latest epoch: an older one knows nothing of what its successor was told."""
        def asked(process: BrokerProcess) -> None:
            if process.puts.serving and not self._scene.watch.deletions.was_replaced(process):
                call(process)
            else:
                self._target = self._scene.guess_master(self._target)

        self._ask(asked)

    @staticmethod
    def _handle(process: BrokerProcess, command: Command) -> Command | None:
        """Return the answer; None: it waits for messages that a new master may not show yet."""
        assert process.features is not None
        answer = process.features.handlers[command.code](NOBODY, command)
        if answer is not None and not isinstance(answer, Command):
            answer.close()
            return None
        return answer


class Deletions(Judge):
    """Checks the positions of one scene's group."""

    topics = frozenset({TOPIC.encode()})

    def __init__(self, watch: BrokerWatch) -> None:
        super().__init__(watch)
        self.sent: dict[bytes, Followed] = {}
        self.begun = self.answered_count = 0
        """Deletions that a broker began, and that were answered."""
        self.topics_begun = 0
        self._places: dict[tuple[int, int], Followed] = {}
        """(queue, offset) -> what was acknowledged there, sent since a deletion of the topic was begun last."""
        self._given: dict[bytes, int] = {}
        """What the group was led to -> how many deletions had begun when it was last."""
        self._last = 0
        """Number of the last deletion that was answered."""
        self._by: BrokerProcess | None = None
        """The run that answered it. Its record is acknowledged then, so every later master knows of it."""

    def begins_deletion(self, *, of_topic: bool) -> int:
        """Return its number. What the topic holds may be gone from now on, answered or not."""
        self.begun += 1
        if of_topic:
            self.topics_begun += 1
            self._places.clear()
        return self.begun

    def was_replaced(self, process: BrokerProcess) -> bool:
        return process.features is None or process.features.standing.role.epoch < self._watch.latest

    def deleted(self, process: BrokerProcess, begun: int, *, of_topic: bool) -> None:
        """Note that the answer to a deletion leaves the broker."""
        if self.was_replaced(process):
            return
        self._scene.counts["topic deleted" if of_topic else "group deleted"] += 1
        self.answered_count += 1
        self._last, self._by = max(self._last, begun), process
        if of_topic:
            self._places.clear()

    def answered(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        if result.status is not PutStatus.PUT_OK:
            return
        for message, put in zip(messages, result.puts, strict=True):
            sent = self.sent[message.body]
            if sent.since == self.answered_count and sent.topics_begun == self.topics_begun:
                self._places[message.queue_id, put.queue_offset] = sent

    def _left(self) -> list[tuple[int, int]]:
        """Return the places of messages that the group was not given since the last deletion."""
        return [place for place, sent in self._places.items() if self._given.get(sent.body, -1) < self._last]

    def begins(self, process: BrokerProcess, queue_id: int, begin: int) -> None:
        """Check INV_B62 when a master says where the group is."""
        if not self.answered_count or not self._places or not self.complete:
            return
        self._counts["INV_B62"] += 1
        self._scene.counts["read in a topic made again"] += 1
        self._scene.counts["began anew at a later master"] += self._by is not None and self._by is not process
        if passed := [place for place in self._left() if place[0] == queue_id and place[1] < begin]:
            self._broken("INV_B62", "an offset that is older than the deletion", process, queue_id, begin, passed[:5])

    def given(self, body: bytes) -> None:
        self._given[body] = self.begun

    def waits(self, process: BrokerProcess) -> bool:
        return self.complete and bool(self._left())

    def settled(self, process: BrokerProcess) -> None:
        """Check INV_B62 for all that the group was to receive."""
        if self.complete and self.answered_count:
            self._counts["INV_B62"] += 1
            if left := self._left():
                self._broken("INV_B62", "acknowledged, and passed over", process, len(left), left[:3])
