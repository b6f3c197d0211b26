"""Looks at any cluster over the wire, ours or Java's: groups, masters, epochs, SyncStateSets, lag, controllers.

Name servers say which brokers there are (106), controllers who leads and who is in sync (1005, 1006), each broker how
far its log is (28). The controllers are those that a broker's configuration names (26), where they are not given.
A silent server does not delay the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import attrs
import trio

from controller.admin.asking import Admin, split_addresses
from mqcluster.looking import GroupView, look
from remoting.bodies.namesrv import KVTable
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.errors import BodyError, HeaderError, RemotingError

TIMEOUT_MS: Final = 800.0
"""Time that each question may take."""
MASTER_ID: Final = 0
_T = TypeVar("_T")


@attrs.frozen
class BrokerSight:
    """``log_end`` and ``puts_per_s`` are None where the broker does not answer."""

    address: str
    broker_id: int
    log_end: int | None
    puts_per_s: float | None
    in_sync: bool | None
    """None: no controller says so."""


@attrs.frozen
class GroupSight:
    """``epoch`` is None without controllers. ``master`` is an address, None while there is none."""

    cluster: str
    name: str
    master: str | None
    epoch: int | None
    brokers: tuple[BrokerSight, ...]

    @property
    def answers(self) -> bool:
        """Return whether it has a master, and the master answers."""
        return any(each.address == self.master and each.log_end is not None for each in self.brokers)

    def lag_bytes(self, broker: BrokerSight) -> int | None:
        """Return about how far its log is behind the master's: the two answers have different times."""
        ends = [each.log_end for each in self.brokers if each.address == self.master]
        return None if not ends or ends[0] is None or broker.log_end is None else max(0, ends[0] - broker.log_end)


@attrs.frozen
class Sight:
    """One look at a cluster. ``trouble`` says why nothing is seen.

    ``controllers`` by address: the active controller that it names ("" for none); None: it does not answer.
    """

    namesrv: Sequence[str]
    controllers: Mapping[str, str | None]
    active: str | None
    groups: tuple[GroupSight, ...]
    trouble: str = ""

    @property
    def well(self) -> bool:
        """Return whether there are groups, and the master of each answers."""
        return bool(self.groups) and all(group.answers for group in self.groups)

    def to_plain(self) -> dict[str, Any]:
        """The same as `--json` prints it."""
        return {
            "namesrv": list(self.namesrv), "active": self.active, "trouble": self.trouble or None,
            "controllers": [{"address": address, "answers": says is not None, "active": says or None}
                            for address, says in self.controllers.items()],
            "groups": [{
                "cluster": group.cluster, "group": group.name, "master": group.master, "epoch": group.epoch,
                "answers": group.answers,
                "brokers": [{"address": each.address, "brokerId": each.broker_id, "logEnd": each.log_end,
                             "lagBytes": group.lag_bytes(each), "inSync": each.in_sync,
                             "putsPerSecond": each.puts_per_s}
                            for each in group.brokers]} for group in self.groups]}


async def see(client: Client, namesrv: Sequence[str], controllers: Sequence[str] = ()) -> Sight:
    """The cluster now. Raises nothing that a server could cause."""
    admin = Admin(client, namesrv)
    try:
        with trio.fail_after(TIMEOUT_MS * len(namesrv) / 1e3):
            known = await admin.clusters()
    except (RemotingError, BodyError, trio.TooSlowError) as error:
        return Sight(namesrv, {}, None, (), str(error) or "no name server answers in time")
    addresses = [address for data in known.broker_addr_table.values() for address in data.broker_addrs.values()]
    stats = await _each(admin, addresses, _stats)
    if not controllers:
        controllers = await _named_by(admin, [address for address in addresses if stats[address] is not None])
    says = await _each(admin, controllers, _leader)
    # Followers go on naming a dead controller for a while: pass it over.
    active = next((leader for leader in says.values() if leader and says.get(leader, leader) is not None), None)
    views: Mapping[str, GroupView] = {}
    if active is not None:
        with trio.move_on_after(2 * TIMEOUT_MS / 1e3):
            views = (await look(client, [active], sorted(known.broker_addr_table))).groups
    groups = []
    for cluster, names in sorted(known.cluster_addr_table.items()):
        for name in sorted(names):
            if name in known.broker_addr_table:
                groups.append(_group(cluster, name, known.broker_addr_table[name].broker_addrs, views.get(name), stats))
    return Sight(namesrv, says, active, tuple(groups))


def _group(cluster: str, name: str, addresses: Mapping[int, str], view: GroupView | None,
           stats: Mapping[str, Mapping[str, str] | None]) -> GroupSight:
    ids = {address: number for number, address in addresses.items()}
    if view is not None:  # name servers give every master the id 0; controllers know its real one
        ids |= view.ids
    brokers = []
    for address, number in sorted(ids.items(), key=lambda each: (each[1], each[0])):
        said = stats.get(address)
        brokers.append(BrokerSight(
            address, number, None if said is None else _whole(said.get("commitLogMaxOffset", "")),
            None if said is None else _first(said.get("putTps", "")),
            None if view is None else address in view.in_sync))
    if view is None:
        return GroupSight(cluster, name, addresses.get(MASTER_ID), None, tuple(brokers))
    return GroupSight(cluster, name, view.master, view.epoch, tuple(brokers))


async def _each(
    admin: Admin, addresses: Sequence[str], ask: Callable[[Admin, str], Awaitable[_T]],
) -> dict[str, _T | None]:
    """Ask all at once, and return the answer of each; None for no answer, or one that makes no sense."""
    found: dict[str, _T | None] = dict.fromkeys(addresses)

    async def one(address: str) -> None:
        with suppress(RemotingError, BodyError, HeaderError):
            found[address] = await ask(admin, address)

    async with trio.open_nursery() as nursery:
        for address in found:
            nursery.start_soon(one, address)
    return found


async def _stats(admin: Admin, address: str) -> dict[str, str]:
    answer = await admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=TIMEOUT_MS)
    return KVTable.from_json(answer.body).table


async def _leader(admin: Admin, address: str) -> str:
    with trio.move_on_after(TIMEOUT_MS / 1e3):
        return (await admin.controller([address])).controller_leader_address or ""
    raise RemotingError(f"{address} does not answer in time")


async def _named_by(admin: Admin, brokers: Sequence[str]) -> list[str]:
    for address in brokers:
        try:
            answer = await admin.ask(address, RequestCode.GET_BROKER_CONFIG, timeout_ms=TIMEOUT_MS)
        except RemotingError:
            continue
        for line in answer.body.decode(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "controllerAddr":
                return split_addresses(value)
        return []
    return []


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _first(text: str) -> float | None:
    """Return the first of the rates over 10 s, 60 s and 600 s."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return None
