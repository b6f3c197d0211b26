"""Producers, each with its own sequence for one queue, and a consumer that reads from masters.

A producer sends the next message once it knows that the one before is stored; otherwise it sends the same one again.
The clients of features send each message once, without waiting for the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol

from broker.ha.acks import PutStatus
from broker.properties import write
from broker.puts import Done, PutResult
from broker.rules import Draft
from broker.store.errors import OffsetGone
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value
from remoting.record import Message, decode, encode_properties

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess

E_PUT, E_READ = 50, 51
PATIENCE_NS = 1_200 * MS
TOPIC = b"T"
KNOWN = frozenset({
    PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, PutStatus.MESSAGE_ILLEGAL})
"""Outcomes after which nothing was written."""


class Producer:
    """Writes to one queue, in order."""

    def __init__(self, scene: Group, number: int, queue: int) -> None:
        self.scene, self.number, self.queue = scene, number, queue
        self.sequence = 0
        self._target = 0
        self._attempt = 0
        self._open = False

    def act(self) -> None:
        """Send a message, unless one is in flight."""
        if self._open:
            return
        scene = self.scene
        self._open = True
        self._attempt = attempt = self._attempt + 1
        sequence, host = self.sequence, scene.hosts[self._target % len(scene.hosts)]
        properties = encode_properties({"KEYS": f"k{sequence}"}) if scene.plan.index else b""
        body = f"{self.number}.{sequence}.".encode().ljust(scene.bodies.between(8, scene.plan.body_max, 40), b".")
        message = Message(TOPIC, body, self.queue, properties)
        answered = [False]

        def answer(status: PutStatus | None, remark: str = "") -> None:
            if attempt == self._attempt and not answered[0]:
                answered[0] = True
                self._answered(sequence, status)

        def put() -> None:
            process = host.process
            if process is None:
                scene.reply(host, lambda: answer(PutStatus.SERVICE_NOT_AVAILABLE))
                return

            def done(result: PutResult) -> None:
                scene.reply(host, lambda: answer(result.status))

            host.do(process, E_PUT, lambda: process.puts.put([message], done))

        scene.to_broker(host, put)
        scene.after(PATIENCE_NS, lambda: answer(None))

    def _answered(self, sequence: int, status: PutStatus | None) -> None:
        scene = self.scene
        self._open = False
        scene.outcomes["ok" if status is PutStatus.PUT_OK else "refused" if status in KNOWN else "unknown"] += 1
        if status is PutStatus.PUT_OK:
            self.sequence += 1
            return
        if status not in KNOWN:
            scene.watch.in_doubt.add((self.number, sequence))
        self._target = scene.guess_master(self._target)


class Consumer:
    """Reads all queues from brokers that serve as master, and remembers its offsets."""

    def __init__(self, scene: Group) -> None:
        self.scene = scene
        self.offsets = dict.fromkeys(range(scene.plan.queues_read), 0)

    def act(self, host: Host, queue: int) -> None:
        process = host.process
        if process is not None and process.puts.serving:
            host.do(process, E_READ, lambda: self._read(host, queue))

    def _read(self, host: Host, queue: int) -> None:
        process = host.process
        assert process is not None
        messages, offset = process.journal.messages, self.offsets[queue]
        try:
            records = messages.get(TOPIC, queue, offset)
        except OffsetGone:
            return
        for data in records:
            record = decode(data)
            self.scene.watch.consumed(process, queue, record)
            offset = record.queue_offset + 1
        self.offsets[queue] = offset


class SentOnce(Protocol):
    """A message of a feature's client, as far as ``FeatureClient`` needs it."""

    body: bytes
    status: PutStatus | None
    """Outcome of its put; None: unknown."""


class FeatureClient(ABC):
    """Does random acts at the broker that it takes for the master."""

    acknowledged: ClassVar[str]
    """Name under which acknowledged messages are counted."""

    def __init__(self, scene: Group, acts: Stream) -> None:
        self._scene, self._acts, self._target = scene, acts, 0
        scene.after(scene.plan.feature_ns, self._act)

    def _act(self) -> None:
        scene = self._scene
        if scene.over:
            return
        scene.after(scene.plan.feature_ns, self._act)
        act = self._acts.draw(None, self._an_act)
        if act is not None:
            self._do(act)

    @abstractmethod
    def _an_act(self, chance: Chance) -> list[Value] | None:
        """Draw an act; None: do nothing."""

    @abstractmethod
    def _do(self, act: list[Value]) -> None:
        """Do the act that was drawn."""

    @property
    def _master(self) -> Host:
        """The broker that it takes for the master."""
        return self._scene.hosts[self._target % len(self._scene.hosts)]

    def _send(self, sent: SentOnce, draft: Draft, then: Callable[[PutResult], None] = lambda result: None) -> None:
        """Send a message by the broker's rules; call ``then`` when it is acknowledged."""
        scene, host = self._scene, self._master
        answered = [False]

        def answer(result: PutResult | None) -> None:
            if answered[0]:
                return
            answered[0] = True
            sent.status = None if result is None else result.status
            if result is not None and sent.status is PutStatus.PUT_OK:
                scene.counts[self.acknowledged] += 1
                then(result)
            else:
                self._target = scene.guess_master(self._target)

        def put() -> None:
            process = host.process
            if process is None:
                scene.reply(host, lambda: answer(PutResult(PutStatus.SERVICE_NOT_AVAILABLE)))
            else:
                host.do(process, E_PUT, lambda: self._put(process, draft, sent.body, lambda result: scene.reply(
                    host, lambda: answer(result))))

        scene.to_broker(host, put)
        scene.after(PATIENCE_NS, lambda: answer(None))

    def _put(self, process: BrokerProcess, draft: Draft, body: bytes, done: Done) -> None:
        assert process.features is not None
        stop = process.features.rules.stops(draft)
        assert stop is None, stop
        process.puts.put([Message(
            draft.topic.encode(), body, draft.queue_id, write(draft.properties), sys_flag=draft.sys_flag,
            born_time_ms=self._scene.wall_ms)], done)

    def _ask(self, call: Callable[[BrokerProcess], None]) -> None:
        """Send a request to the process that runs on the master's host when it arrives."""
        host = self._master

        def asked() -> None:
            process = host.process
            if process is not None:
                host.do(process, E_PUT, lambda: call(process))

        self._scene.to_broker(host, asked)
