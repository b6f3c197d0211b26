"""Finds the name servers, if the configuration gives a DNS name of theirs, or a server that knows them.

They are asked for again at intervals, as in Java; while nobody answers, those that were found last are kept. It knows
addresses, and registers nothing.
Source: ``BrokerController.updateNamesrvAddr``, ``BrokerOuterAPI.dnsLookupAddressByDomain``, ``TopAddressing`` and
``MixAll.getWSAddr`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from http.client import HTTPException
from typing import Final

import trio

from broker.config import BrokerConfig
from broker.part import Part
from remoting.address import join_address, split_address

ADDRESS_SERVER_TIMEOUT_S: Final = 3.0
ANSWER_BYTES_MAX: Final = 64 << 10
ADDRESSES_MAX: Final = 100
RETRY_S: Final = 1.0
"""Pause while no name server is known yet."""

Ask = Callable[[], Awaitable[Sequence[str]]]

logger = logging.getLogger("broker.registration")


class NameServersPart(Part):
    """Asks again and again; ``found`` hears of addresses that differ from those before."""

    def __init__(self, ask: Ask, period_ms: int, source: str, found: Callable[[Sequence[str]], None]) -> None:
        self._ask, self._period_s, self._source, self._found = ask, period_ms / 1e3, source, found
        self._known: tuple[str, ...] = ()
        self._problem = ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            try:
                now = tuple(sorted(set(await self._ask())))
            except (OSError, ValueError, HTTPException) as error:
                self._report(str(error) or type(error).__name__)
            else:
                self._report("" if now else "it names none")
                if now and now != self._known:
                    self._known = now
                    logger.info("name servers found", extra={"source": self._source, "addresses": ";".join(now)})
                    self._found(now)
            await trio.sleep(self._period_s if self._known else min(RETRY_S, self._period_s))

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            logger.warning("name servers not found", extra={"source": self._source, "why": problem})
        self._problem = problem


def lookups(config: BrokerConfig, found: Callable[[Sequence[str]], None]) -> Iterator[NameServersPart]:
    """Yield the look-ups that the keys ask for; none if ``namesrvAddr`` has addresses."""
    if config.namesrv_addr:
        if config.fetch_name_srv_addr_by_dns_lookup:
            yield NameServersPart(partial(by_dns, config.namesrv_addr.strip()), config.update_name_server_addr_period,
                                  config.namesrv_addr, found)
    elif config.fetch_namesrv_addr_by_address_server:
        url = config.address_server
        yield NameServersPart(partial(by_address_server, url), config.fetch_namesrv_addr_interval, url, found)


def known(config: BrokerConfig) -> tuple[str, ...]:
    """Return the name servers that the configuration names itself."""
    return () if config.fetch_name_srv_addr_by_dns_lookup else config.name_servers


async def by_dns(domain: str) -> list[str]:
    """Return all addresses of ``name:port``. Raises ``OSError``, ``ValueError``."""
    name, port = split_address(domain)
    found = await trio.socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [join_address(str(address[0]), port) for *_, address in found]


async def by_address_server(url: str) -> list[str]:
    """Ask the address server. It answers ``host:port;host:port`` in its first line. Raises ``OSError``, ``ValueError``,
    ``HTTPException``."""
    text = await trio.to_thread.run_sync(_get, url, abandon_on_cancel=True)
    addresses = [item.strip() for item in text.strip().partition("\n")[0].split(";") if item.strip()]
    if len(addresses) > ADDRESSES_MAX:
        raise ValueError(f"{len(addresses)} addresses, at most {ADDRESSES_MAX} are taken")
    for address in addresses:
        split_address(address)
    return addresses


def _get(url: str) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=ADDRESS_SERVER_TIMEOUT_S) as answer:
            body: bytes = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:  # the error holds the connection
        error.close()
        raise OSError(f"{url} answers {error.code} {error.reason}") from None
    return body.decode()
