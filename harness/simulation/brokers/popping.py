"""Consumers that pop messages, and then acknowledge them, change their invisible time, are late, or die.

One act is a POP with the fate of each message that it brings. After healing, consumers that never fail take all
messages that are left. ``popped`` checks the deliveries and acknowledgements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import attrs

from broker.properties import UNIQ_KEY
from broker.rules import Draft
from harness.simulation.brokers.client import E_PUT, PATIENCE_NS, FeatureClient
from harness.simulation.brokers.ordered import FIFO
from harness.simulation.brokers.popped import GROUPS, PLAIN, POPPED, TOPIC, Given, PoppedMessage
from harness.simulation.brokers.tasks import Tasks
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value
from remoting.bodies.popping import BatchAck, BatchAckRequest, bits_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.header import Header
from remoting.headers.consumers import ResetOffsetRequest
from remoting.headers.popping import (
    ALL_QUEUES,
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
)

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.process import BrokerProcess

FINISH_NS: Final = 200 * MS
"""Interval of POPs after healing."""
FINISH_INVISIBLE_MS: Final = 3_000
VEIL_NS: Final = 100 * MS
RESET: Final = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
VEIL_TURNS: Final = 10
"""Retries of a POP that waits behind a veil, until its client has given up."""
ACK, TOGETHER, CHANGE, NOTHING = range(4)
"""Fate of a message: its own acknowledgement, one with others of the same answer, another invisible time, or nothing,
as if its consumer had died."""


class Asker:
    """The connection of one request to one run of a broker. ``told`` gets the answer as it leaves."""

    peer = "10.0.1.2:1"
    congested = closed = False

    def __init__(self, told: Callable[[Command], None]) -> None:
        self._told = told

    def reply(self, to: Command, answer: Command) -> None:
        self._told(answer)


class PopClient(FeatureClient):
    """Sends messages, and pops them for all groups."""

    acknowledged = POPPED[0]

    def __init__(self, scene: Group, acts: Stream) -> None:
        super().__init__(scene, acts)
        self._attempts = 0
        self._lost: str | None = None
        """The ordered attempt whose answer did not come."""
        scene.after(FINISH_NS, self._finish)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        luck, plan = chance(), self._scene.plan
        if luck < 0.4:
            return ["send", int(chance() * 12), int(8 + chance() * plan.body_max)]
        if luck < 0.8:
            invisible_ms = int(100 + chance() ** 2 * 4_000)
            queue = int(chance() * 12) if chance() < 0.5 else -1
            group, count = int(chance() * 12), int(1 + chance() ** 2 * 32)
            fates = [[int(chance() * 4), int(chance() ** 2 * 1.3 * invisible_ms)] for _ in range(3)]
            return ["pop", group, queue, count, invisible_ms, fates]
        if luck < 0.8 + plan.reset_chance:
            return ["reset", int(chance() * 12), int(chance() * 12), int(chance() * 1_000)]
        return None

    def _do(self, act: list[Value]) -> None:
        what, *rest = act
        getattr(self, f"_do_{what}")(*rest)

    def _do_send(self, queue: int, size: int) -> None:
        known = self._scene.watch.pops.sent
        number = len(known)
        sent = PoppedMessage(number, queue % self._scene.plan.queues, f"{number}.".encode().ljust(size, b"."))
        known.append(sent)
        self._send(sent, Draft(TOPIC, sent.queue, {UNIQ_KEY: str(number)}))

    def _do_pop(self, group: int, queue: int, count: int, invisible_ms: int, fates: Sequence[Sequence[int]]) -> None:
        queue_id = queue % self._scene.plan.queues if queue >= 0 else ALL_QUEUES
        self._pop(GROUPS[group % len(GROUPS)], queue_id, count, invisible_ms, fates)

    def _finish(self) -> None:
        """Pop all messages after healing, and acknowledge them at once."""
        scene = self._scene
        scene.after(FINISH_NS, self._finish)
        if scene.healed:
            for group in GROUPS:
                self._pop(group, ALL_QUEUES, 32, FINISH_INVISIBLE_MS, [[ACK, 0], [TOGETHER, 0]])

    # --- requests --------------------------------------------------------------------------------------------

    def _request(self, command: Command, left: Callable[[BrokerProcess, Command], None],
                 came: Callable[[Command | None], None]) -> None:
        """Send a request. ``left`` gets the answer as it leaves the broker, ``came`` at the client, or None."""
        scene, host = self._scene, self._master
        answered = [False]

        def hear(answer: Command | None) -> None:
            if not answered[0]:
                answered[0] = True
                if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT):
                    self._target = scene.guess_master(self._target)
                came(answer)

        def asked(process: BrokerProcess) -> None:
            def told(answer: Command) -> None:
                left(process, answer)
                scene.reply(host, lambda: hear(answer))

            scene.watch.pops.look(process)
            self._handle(process, command, told, VEIL_TURNS)

        self._ask(asked)
        scene.after(PATIENCE_NS, lambda: hear(None))

    def _handle(self, process: BrokerProcess, command: Command, told: Callable[[Command], None], turns: int) -> None:
        """Call the shipped handler, again after a while if it waits for a veil to be lifted."""
        assert process.features is not None
        answer = process.features.handlers[command.code](cast(Connection, Asker(told)), command)
        if isinstance(answer, Command):
            told(answer)
        elif answer is not None and command.code == RESET and not process.journal.veil.on:
            Tasks(process).run(answer, told)
        elif answer is not None:
            answer.close()
            if turns:
                process.later(VEIL_NS, E_PUT, lambda: self._handle(process, command, told, turns - 1))

    def _pop(self, group: str, queue_id: int, count: int, invisible_ms: int, fates: Sequence[Sequence[int]]) -> None:
        pops = self._scene.watch.pops
        taken: list[Given] = []
        in_order = group == FIFO
        attempt_id = self._attempt(invisible_ms) if in_order else ""

        def left(process: BrokerProcess, answer: Command) -> None:
            taken.extend(pops.gave(process, group, attempt_id, answer))

        def came(answer: Command | None) -> None:
            if answer is None and in_order:
                self._lost = attempt_id
            self._scene.counts["popped"] += len(taken) if answer is not None else 0
            if answer is not None:
                self._settle(group, taken, fates)

        self._request(request(RequestCode.POP_MESSAGE, PopMessageRequest(
            group, TOPIC, queue_id, count, invisible_ms, 0, order=in_order, attempt_id=attempt_id or None)), left, came)

    def _attempt(self, invisible_ms: int) -> str:
        """Id of the next ordered attempt: the former one again, if its answer was lost."""
        again, self._lost = self._lost, None
        self._attempts += 1
        if again is not None:
            self._scene.watch.pops.in_order.tries_again(again, self._scene.wall_ms + invisible_ms)
        return again or f"a{self._attempts}"

    def _settle(self, group: str, taken: Sequence[Given], fates: Sequence[Sequence[int]]) -> None:
        """Give each message of an answer its fate."""
        together: dict[int, list[Given]] = {}
        for at, given in enumerate(taken):
            what, delay_ms = fates[at % len(fates)]
            if what == ACK:
                self._later(delay_ms, given, self._ack)
            elif what == CHANGE:
                self._later(delay_ms, given, self._change)
            elif what == TOGETHER:
                together.setdefault(delay_ms, []).append(given)
        for delay_ms, those in together.items():
            self._scene.after(delay_ms * MS, lambda those=those: self._ack_many(group, those))  # type: ignore[misc]

    def _later(self, delay_ms: int, given: Given, do: Callable[[Given], None]) -> None:
        self._scene.after(delay_ms * MS, lambda: do(given))

    def _asks(self, code: int, header: Header | None, given: Sequence[Given], *, body: bytes = b"",
              then: Callable[[Command], None] = lambda answer: None, moves: bool = False) -> None:
        """Request acknowledgements, or another invisible time."""
        pops = self._scene.watch.pops
        command = request(code, header, body=body) if body else request(code, header)

        def left(process: BrokerProcess, answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS and not (moves and given[0].group == FIFO):
                pops.acknowledged(process, given)

        def came(answer: Command | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                then(answer)

        if not moves:
            pops.asks(given)
        self._request(command, left, came)

    def _ack(self, given: Given) -> None:
        self._asks(RequestCode.ACK_MESSAGE, AckMessageRequest(
            given.group, given.topic, given.queue, given.receipt.encode(), given.offset), [given])

    def _ack_many(self, group: str, those: Sequence[Given]) -> None:
        of: dict[tuple[int, int, int], deque[Given]] = {}
        for given in those:
            of.setdefault((given.receipt.retry_flag, given.queue, given.receipt.start_offset), deque()).append(given)
        acks = []
        for (flag, queue_id, start), mine in of.items():
            receipt = mine[0].receipt
            acks.append(BatchAck(group, TOPIC, start, queue_id, receipt.revive_qid, receipt.pop_time_ms,
                                 receipt.invisible_ms, bits_of(given.offset - start for given in mine), str(flag)))
        self._asks(RequestCode.BATCH_ACK_MESSAGE, None, those,
                   body=BatchAckRequest(those[0].receipt.broker_name, acks).to_json())

    def _change(self, given: Given) -> None:
        """Change a message's invisible time; acknowledge half of these messages within it."""
        invisible_ms = 200 + given.receipt.invisible_ms // 2

        def changed(answer: Command) -> None:
            told = ChangeInvisibleTimeResponse.from_ext(answer.ext)
            again = attrs.evolve(given, receipt=attrs.evolve(
                given.receipt, start_offset=given.offset, pop_time_ms=told.pop_time, invisible_ms=told.invisible_time,
                revive_qid=told.revive_qid))
            if given.offset % 2:
                self._later(invisible_ms // 2, again, self._ack)

        self._scene.watch.pops.moves(given, invisible_ms)
        self._asks(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequest(
            given.group, given.topic, given.queue, given.receipt.encode(), given.offset, invisible_ms), [given],
            then=changed, moves=True)

    # --- an operator -----------------------------------------------------------------------------------------

    def _do_reset(self, group: int, queue: int, permille: int) -> None:
        """Reset a group to another offset of a queue, back or forth."""
        name, queue_id, pops = PLAIN[group % len(PLAIN)], queue % self._scene.plan.queues, self._scene.watch.pops
        offset = pops.ends.get(queue_id, 0) * permille // 1_000
        pops.resets(name, queue_id, offset)
        self._request(request(RESET, ResetOffsetRequest(
            TOPIC, name, queue_id, offset)), lambda process, answer: pops.was_reset(name, queue_id, offset, answer),
            lambda answer: None)
