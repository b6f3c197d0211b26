"""The facilities that the parts of one client share: connections, routes, its identity, heartbeats, answers to brokers.

A shell. It knows which consumers there are, and what a broker may ask of them; sending and consuming are others'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

import attrs
import trio

from broker.client.config import ClientSettings
from broker.client.errors import Refused, Unreachable
from broker.client.faults import Faults
from broker.client.ids import UniqueIds
from broker.client.route import MASTER, Route
from broker.client.routes import Routes, known_brokers
from remoting.bodies.consumers import ConsumerData, HeartbeatData, MessageQueue, ProducerData
from remoting.client import Client as Remoting
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.errors import HeaderError, RemotingError
from remoting.header import Header
from remoting.headers.consumers import UnregisterClientRequest
from remoting.headers.sending import ReplyMessageRequest
from remoting.headers.transactions import CheckTransactionStateRequest
from remoting.record import Record

logger = logging.getLogger("broker.client")

CALL_TIMEOUT_MS: Final = 3_000
"""Time-out of calls that are neither sends nor pulls."""
_Header = TypeVar("_Header", bound=Header)


class SessionMember(Protocol):
    """A consumer, as heartbeats and brokers see it."""

    group: str

    def heartbeat(self) -> ConsumerData: ...
    def rebalance_soon(self) -> None: ...
    def route_changed(self, route: Route) -> None: ...
    def reset(self, offsets: Mapping[MessageQueue, int]) -> None: ...
    def positions(self, topic: str) -> dict[MessageQueue, int]: ...
    def running_info(self) -> bytes: ...
    async def consume_directly(self, body: bytes, broker: str | None) -> bytes: ...


class AnswersChecks(Protocol):
    """Answers brokers that ask for the outcome of a transaction."""

    def check(self, connection: Connection, header: CheckTransactionStateRequest, record: Record) -> None: ...
    def broken(self) -> None: ...


class TakesReplies(Protocol):
    """Takes replies to this client's requests."""

    def take(self, header: ReplyMessageRequest, body: bytes) -> None: ...


@attrs.define(eq=False, kw_only=True)
class Session:
    """The facilities of one client. ``wall_ms`` is the wall clock; deadlines are trio's."""

    client_id: str
    host: str
    producer_group: str
    settings: ClientSettings
    remoting: Remoting
    ids: UniqueIds
    wall_ms: Callable[[], int]
    nursery: trio.Nursery
    faults: Faults
    routes: Routes = attrs.field(init=False)
    consumers: dict[str, SessionMember] = attrs.field(factory=dict)
    """By group."""
    watching: set[Callable[[Route], None]] = attrs.field(factory=set)
    """Others who hear of each route that changed."""
    ending: set[Callable[[], None]] = attrs.field(factory=set)
    """Those who hear of the client's end, as their blocks may be open."""
    asked: AnswersChecks | None = None
    requests: TakesReplies | None = None
    greeted: set[str] = attrs.field(factory=set)
    """Addresses that got a heartbeat over the connection that is open now."""
    _greeting: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    """Brokers that are getting their first heartbeat."""

    # --- brokers ---------------------------------------------------------------------------------------------

    def route_changed(self, before: Route | None, now: Route) -> None:
        """Follow a route that changed."""
        for name in now.brokers:
            master = now.master(name)
            if before is not None and before.master(name) != master:
                self.faults.forgive(name)
                self.greeted.discard(master or "")  # as a slave it ignored heartbeats
        self.nursery.start_soon(self.greet_all, name="heartbeats to new brokers")
        for member in list(self.consumers.values()):
            member.route_changed(now)
        for told in list(self.watching):
            told(now)

    def closed(self, connection: Connection, _: str) -> None:
        """Forget that this peer was greeted: the next one that is found there must be."""
        self.greeted.discard(connection.peer)
        if self.asked is not None:
            self.asked.broken()

    def end(self) -> None:
        """The client ends: whoever waits for what cannot come any more is told so."""
        self.routes.close()
        for told in list(self.ending):
            told()

    async def address(self, topic: str, broker: str, broker_id: int = MASTER) -> tuple[str, int]:
        """Return address and id of that member of a group, else of its master, else of any. Raises ``Unreachable``."""
        route = self.routes.cached(topic) or await self.routes.get(topic)
        found = route.address(broker, broker_id)
        if found is None:
            self.routes.renew_soon(topic)
            raise Unreachable(f"no address of {broker} is known, in the route of {topic}")
        return found

    async def ask(
        self, what: str, address: str, command: Command, timeout_ms: float = CALL_TIMEOUT_MS, *,
        fine: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask, and return an answer whose code is in ``fine``. Raises ``Refused``, ``Unreachable``, which say ``what``.
        """
        try:
            answer = await self.remoting.call(address, command, timeout_ms)
        except RemotingError as error:
            raise Unreachable(f"{what}: {error}") from None
        if answer.code not in fine:
            raise Refused(what, answer.code, answer.remark, address)
        return answer

    async def ask_master(self, header: type[_Header], what: str, queue: MessageQueue, command: Command) -> _Header:
        """Return the header of the answer to a command that changes nothing.

        Raises as ``tell_master``, but each refusal as one: earlier attempts changed nothing either."""
        answer = await self.tell_master(what, queue, command, changes=False)
        try:
            return header.from_ext(answer.ext)
        except HeaderError as error:
            raise Refused(what, answer.code, f"an answer that makes no sense: {error}", queue.broker_name) from None

    async def tell_master(self, what: str, queue: MessageQueue, command: Command, *, changes: bool = True) -> Command:
        """Send a queue's master a command that may be repeated, and return its answer, which is SUCCESS.

        While the master is gone, the next one that name servers know is asked, for as long as a call may take. Raises
        as ``ask``, and ``NoRoute``, ``NoNameServer``. A refusal after an attempt that nobody answered is
        ``Unreachable``: the former master may have done it.
        """
        deadline = trio.current_time() + CALL_TIMEOUT_MS / 1e3
        unanswered: Unreachable | None = None
        while True:
            try:
                address, _ = await self.address(queue.topic, queue.broker_name)
                return await self.ask(what, address, command)
            except Refused as error:
                if unanswered is None or not changes:
                    raise
                raise Unreachable(f"{error}; and before: {unanswered}") from None
            except Unreachable as error:
                if self.routes.over or trio.current_time() >= deadline:
                    raise
                unanswered = error
                await self.routes.renew(queue.topic)

    # --- heartbeats ------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send a heartbeat to every broker, as often as the settings say, until cancelled."""
        while True:
            await trio.sleep(self.settings.heartbeat_ms / 1e3)
            await self.greet_all(again=True)

    @property
    def greeted_all(self) -> bool:
        """Return whether each known group has a master, and that master knows this client."""
        return not self.ungreeted and all(
            route.master(name) is not None for route in self.routes for name in route.brokers)

    @property
    def ungreeted(self) -> set[str]:
        """Return the addresses of known masters that do not know this client."""
        return {address for route in self.routes for name in route.brokers
                if (address := route.master(name)) is not None and address not in self.greeted}

    async def greet_all(self, *, again: bool = False) -> None:
        """Send a heartbeat to each broker that had none on this connection; ``again``: to all."""
        async with trio.open_nursery() as nursery:
            for address in self._brokers():
                nursery.start_soon(self.greet if again else self.greet_first, address)

    async def greet_first(self, address: str) -> None:
        """Send a heartbeat to a broker that had none on this connection; callers that want it at once share one."""
        if address in self.greeted:
            return
        if (answered := self._greeting.get(address)) is not None:
            await answered.wait()
            return
        self._greeting[address] = answered = trio.Event()
        try:
            await self.greet(address)
        finally:
            del self._greeting[address]
            answered.set()

    async def greet(self, address: str) -> bool:
        """Send a heartbeat to one broker. Returns whether it took it."""
        body = HeartbeatData(
            self.client_id, [ProducerData(self.producer_group)], [each.heartbeat() for each in self.consumers.values()])
        try:
            await self.ask("heartbeat", address, request(RequestCode.HEART_BEAT, body=body.to_json()))
        except (Refused, Unreachable) as error:
            logger.debug("%s", error)
            return False
        if self.remoting.connection(address) is not None:  # it may have broken right after the answer
            self.greeted.add(address)
        return True

    async def forget(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell the brokers that greeted it that a group is no longer here, and no heartbeat from now on that it is."""
        if consumer is not None:
            self.consumers.pop(consumer, None)

        async def tell(address: str) -> None:
            header = UnregisterClientRequest(self.client_id, producer, consumer)
            try:
                await self.ask("unregister", address, request(RequestCode.UNREGISTER_CLIENT, header))
            except (Refused, Unreachable) as error:
                logger.debug("%s", error)

        async with trio.open_nursery() as nursery:
            for address in sorted(self.greeted):
                nursery.start_soon(tell, address)

    def _brokers(self) -> list[str]:
        found = set()
        for addresses in known_brokers(self.routes).values():
            found |= {address for number, address in addresses.items() if number == MASTER or self.consumers}
        return sorted(found)
