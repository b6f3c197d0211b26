"""The part of siblings: hands records to a master of the same container, and takes those that a sibling hands over.

A record is taken as a send is: by a master that may write, answered once the group's mode has what it demands. A
record with an unknown outcome is handed over again, or sent elsewhere, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker.config import BrokerConfig, pick
from broker.part import Part
from broker.puts import PutResult, Puts
from broker.rules import Refusal
from broker.schedule import levels
from broker.sending.answers import STORED, refusal
from broker.siblings.handover import (
    HAND_OVER,
    Choice,
    HandOverRequest,
    foreign,
    missing_retry,
    placed,
    read,
    record,
    stays,
)
from broker.siblings.sockets import Siblings
from broker.standing import Standing
from broker.timer.keys import TimerKeys
from broker.topics.part import TopicsPart
from remoting.client import Client, open_client
from remoting.codes import ResponseCode
from remoting.command import Command, request, response
from remoting.config import ServerConfig, TLSMode
from remoting.connection import Connection
from remoting.errors import ConnectFailed, MessageIllegal, NotEncodable, RemotingError
from remoting.record import Message
from remoting.server import Server

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

TIMEOUT_MS: Final = 3_000
_STORED: Final = frozenset(STORED.values())
NO_SIBLING: Final = "no broker of this container is the master of another group of the cluster"


@attrs.define
class SiblingsCounters:
    """Sums since this process began; they only ever rise."""

    sent: int = 0
    """Records that a sibling stored."""
    again: int = 0
    """Records with an unknown outcome: they go somewhere again, and may be stored twice."""
    unsure: int = 0
    """Records of ``sent`` that were stored, but not replicated or synced as their group's mode demands."""
    taken: int = 0
    """Records of siblings that this broker stored."""


class SiblingsPart(Part):
    """``run`` must be running. Implements ``broker.escape.part.Beside``."""

    def __init__(self, config: BrokerConfig, siblings: Siblings, puts: Puts, standing: Standing,
                 topics: TopicsPart) -> None:
        self.counters = SiblingsCounters()
        self._siblings, self._puts, self._standing, self._topics = siblings, puts, standing, topics
        self._store_host, self._body_bytes_max = config.store_host, config.max_message_size
        self._timers = pick(config, TimerKeys).timer_wheel_enable
        self._levels = len(levels.parse(config.message_delay_level))
        self._choice = Choice()
        self._client: Client | None = None

    def metrics(self, page: Page) -> Iterable[Metric]:
        for name, about in (("sent", "that another master of its container stored"),
                            ("again", "of an unknown outcome there"),
                            ("unsure", "stored there, but not replicated or synced as their group's mode demands"),
                            ("taken", "stored for slaves of its container")):
            yield page.counter(f"broker_siblings_{name}", f"Messages of an acting slave {about}. Ours.",
                               [((), getattr(self.counters, name))])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        server = Server({HAND_OVER: self._take}, config=ServerConfig(tls_mode=TLSMode.DISABLED, proxy_protocol=False))
        async with open_client(connector=self._siblings.connector) as self._client, trio.open_nursery() as nursery:
            await nursery.start(server.run, [self._siblings.listener])
            task_status.started()
            await trio.sleep_forever()

    # --- the slave's side ------------------------------------------------------------------------------------

    async def hand_over(self, message: Message, beside: str) -> str:
        """Have a sibling store the message. Returns why none did, or ""."""
        why = stays(message)
        if why or self._client is None:
            return why or NO_SIBLING
        try:
            names, body = self._siblings.names(), record(message)
        except (OSError, MessageIllegal) as error:
            return str(error)
        asked = HandOverRequest(self._standing.cluster_name, self._standing.broker_name, beside)
        why = self._choice.why_left_alone(trio.current_time())
        for name in self._choice.in_turn(names, trio.current_time()):
            code, why = await self._ask(self._client, name, request(HAND_OVER, asked, body))
            if code in _STORED:
                self.counters.sent += 1
                self.counters.unsure += code != ResponseCode.SUCCESS
                return ""
            self._choice.refused(name, code, why, trio.current_time())
        return why or NO_SIBLING

    async def _ask(self, client: Client, name: str, command: Command) -> tuple[int | None, str]:
        """The code of the answer, if there is one, and its words."""
        try:
            answer = await client.call(name, command, TIMEOUT_MS)
        except NotEncodable as error:
            return ResponseCode.MESSAGE_ILLEGAL, str(error)
        except RemotingError as error:
            self.counters.again += not isinstance(error, ConnectFailed)
            return None, f"a broker of this container: {error}"
        return answer.code, f"a broker of this container answered {answer.code}: {answer.remark or 'no remark'}"

    # --- the master's side -----------------------------------------------------------------------------------

    async def _take(self, _: Connection, command: Command) -> Command:
        """Store a sibling's record, and answer 61061. Raises ``HeaderError``."""
        asked = HandOverRequest.from_ext(command.ext)
        found = foreign(asked, self._standing.cluster_name, self._standing.broker_name) or read(command.body)
        if isinstance(found, Message):
            found = await self._place(found, asked.beside)
        if isinstance(found, Refusal):
            return found.answer(command)
        result = await self._put(found)
        code = STORED.get(result.status)
        if code is None:
            return refusal(result.status, self._body_bytes_max, result.remark).answer(command)
        self.counters.taken += 1
        return response(command, code, remark=result.remark or None)

    async def _place(self, message: Message, beside: str) -> Message | Refusal:
        if self._puts.closed:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, self._puts.closed)
        table, file = self._topics.table, self._topics.file
        retry = missing_retry(message, beside, table)
        if retry:
            table.create_for_send(retry, "", 1)
            saved = trio.Event()
            file.when_saved(saved.set)
            await saved.wait()
        return placed(message, beside, table, self._store_host, timers=self._timers, levels=self._levels)

    async def _put(self, message: Message) -> PutResult:
        ended, results = trio.Event(), []

        def done(result: PutResult) -> None:
            results.append(result)
            ended.set()

        self._puts.put((message,), done)
        await ended.wait()
        return results[0]
