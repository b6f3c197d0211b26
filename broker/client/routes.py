"""Routes as name servers give them: kept, polled, and asked for anew at once when somebody has reason to doubt.

Those who doubt the same route share one question; questions that change nothing come at growing pauses. A shell: it
asks and remembers; what a route means is ``route``'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import trio

from broker.client.config import ClientSettings
from broker.client.errors import NoNameServer, NoRoute
from broker.client.route import Route, route_of
from remoting.bodies.namesrv import TopicRouteData
from remoting.client import Client as Remoting
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import BodyError, RemotingError
from remoting.headers.namesrv import GetRouteInfoRequest

logger = logging.getLogger("broker.client")

OnChange = Callable[[Route | None, Route], None]
"""The route before, if there was one, and now."""
_MISSING_POLL_MS: Final = 5_000
"""Interval at which a topic is asked for that no broker has, or that is yet to be made."""
_CALM_S: Final = 1.0
"""After so long without a question the next one comes without a pause."""


@attrs.define(eq=False)
class _Entry:
    topic: str
    template: bool
    """The default topic's route will do while there is none."""
    route: Route | None = None
    made_up: bool = False
    """``route`` is the template's."""
    failure: NoRoute | NoNameServer | None = None
    answered: trio.Event | None = None
    """While a question is under way, or waits for its time."""
    asked_at: float = float("-inf")
    pause_ms: float = 0.0


class Routes:
    """Made by the session, which runs ``poll`` and whose nursery holds the questions."""

    def __init__(
        self, remoting: Remoting, name_servers: Sequence[str], settings: ClientSettings, nursery: trio.Nursery,
        on_change: OnChange,
    ) -> None:
        self._remoting, self._name_servers, self._settings = remoting, list(name_servers), settings
        self._nursery, self._on_change = nursery, on_change
        self._entries: dict[str, _Entry] = {}
        self.over = False
        """The client was closed: nobody asks any more."""

    def cached(self, topic: str) -> Route | None:
        entry = self._entries.get(topic)
        return entry.route if entry is not None else None

    def __iter__(self) -> Iterator[Route]:
        return iter([entry.route for entry in self._entries.values() if entry.route is not None])

    async def get(self, topic: str, *, template: bool = False) -> Route:
        """The route, asked for if it is not known. ``template``: a topic that is nowhere is made by sending to it.

        Raises ``NoRoute``, ``NoNameServer``.
        """
        self._check()
        entry = self._entries.get(topic)
        if entry is None:
            entry = self._entries[topic] = _Entry(topic, template)
        entry.template |= template
        if entry.route is None or (entry.made_up and not template):
            await self._ask_soon(entry).wait()
            self._check()
        if entry.route is None or (entry.made_up and not template):
            raise entry.failure or NoRoute(topic)
        return entry.route

    async def get_anew(self, topic: str) -> Route:
        """Ask for the route as name servers have it now, for what must reach every broker. Raises ``NoRoute``,
        ``NoNameServer``."""
        if self.cached(topic) is not None:
            await self.renew(topic)
        return await self.get(topic)

    async def renew(self, topic: str) -> None:
        """Ask anew and return when the answer is there, or the client is closed; ``cached`` has the answer then."""
        if not self.over:
            await self._ask_soon(self._entries[topic]).wait()

    def renew_soon(self, topic: str) -> None:
        """Renew the topic's route without waiting for it."""
        if not self.over and (entry := self._entries.get(topic)) is not None:
            self._ask_soon(entry)

    def close(self) -> None:
        """Ask no more; whoever waits for an answer learns that none will come."""
        self.over = True
        for entry in self._entries.values():
            if entry.answered is not None:
                entry.answered.set()

    def _check(self) -> None:
        if self.over:
            raise NoNameServer("the client was closed")

    async def poll(self) -> None:
        """Ask for every topic in turn of the poll, until cancelled."""
        tick_s = min(self._settings.route_poll_ms, _MISSING_POLL_MS) / 1e3
        while True:
            await trio.sleep(tick_s)
            now = trio.current_time()
            for entry in list(self._entries.values()):
                missing = entry.route is None or entry.made_up
                if missing or now - entry.asked_at >= self._settings.route_poll_ms / 1e3 - tick_s / 2:
                    await self._ask_soon(entry).wait()
                    if self.over:
                        return

    def _ask_soon(self, entry: _Entry) -> trio.Event:
        if entry.answered is None:
            entry.answered = trio.Event()
            self._nursery.start_soon(self._ask, entry, name=f"route of {entry.topic}")
        return entry.answered

    async def _ask(self, entry: _Entry) -> None:
        settings, before = self._settings, entry.route
        if trio.current_time() - entry.asked_at > _CALM_S:
            entry.pause_ms = 0.0
        await trio.sleep_until(entry.asked_at + entry.pause_ms / 1e3)
        entry.asked_at = trio.current_time()
        entry.pause_ms = min(max(2 * entry.pause_ms, settings.route_pause_min_ms), settings.route_pause_max_ms)
        try:
            data = await self._answer(entry.topic)
            if data is not None:
                self._take(entry, route_of(entry.topic, data), made_up=False)
            elif entry.route is None and entry.template and (
                    data := await self._answer(settings.default_topic)) is not None:
                self._take(entry, route_of(entry.topic, data, queues_max=settings.default_topic_queues), made_up=True)
            elif entry.route is None:
                entry.failure = NoRoute(entry.topic)
        except NoNameServer as error:
            if str(error) != str(entry.failure):  # once, however often it is asked
                logger.warning("route of %s: %s", entry.topic, error)
            entry.failure = error
        finally:
            answered, entry.answered = entry.answered, None
            assert answered is not None
            answered.set()
        if entry.route is not None and entry.route != before:
            entry.pause_ms = 0.0
            self._on_change(before, entry.route)

    def _take(self, entry: _Entry, route: Route, *, made_up: bool) -> None:
        if route != entry.route:
            entry.route = route
            logger.debug("route of %s: %s", entry.topic, route.brokers)
        entry.made_up, entry.failure = made_up, None

    async def _answer(self, topic: str) -> TopicRouteData | None:
        """Ask the name servers for a topic; None: none has it. Raises ``NoNameServer``."""
        failures: list[str] = []
        for address in list(self._name_servers):
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic, True))
            try:
                answer = await self._remoting.call(address, command, self._settings.route_timeout_ms)
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRouteData.from_json(answer.body)
            except (RemotingError, BodyError) as error:
                failures.append(str(error))
                self._demote(address)
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            failures.append(f"{address} answered {answer.code}: {answer.remark}")
            self._demote(address)
        raise NoNameServer("; ".join(failures))

    def _demote(self, address: str) -> None:
        """Ask the others first from now on."""
        self._name_servers.remove(address)
        self._name_servers.append(address)


def known_brokers(routes: Iterable[Route]) -> Mapping[str, Mapping[int, str]]:
    """Brokers of all routes: addresses by id, by name of the group."""
    found: dict[str, dict[int, str]] = {}
    for route in routes:
        for name, addresses in route.brokers.items():
            found.setdefault(name, {}).update(addresses)
    return found
