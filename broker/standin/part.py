"""The shell of slave acting master: asks all name servers for the members, and tells when the right to deliver changes.

Each name server is asked on its own, so a lost one does not delay the others. All are asked at once when one of them
tells that the smallest id has changed (905). Source: ``BrokerController.syncBrokerMemberGroup`` and ``updateMinBroker``
of RocketMQ 5.5.0, which asks one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker.acting.members import Group, Members
from broker.acting.right import Right
from broker.part import Part
from broker.registration import MEMBERS_TIMEOUT_MS, NameServer, Registration, ask_members, ask_members_by_route
from broker.standing import Role, Standing
from remoting.client import Client
from remoting.errors import BodyError, RemotingError
from remoting.wakeup import Bell

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker.acting")

NS_PER_MS: Final = 1_000_000


@attrs.frozen(kw_only=True)
class ActingConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    sync_broker_member_group_period: int = 1_000
    acting_right_ms: int = 3_000


class ActingPart(Part):
    """``changed`` is called when the right to deliver has come or gone, or this broker begins or stops acting."""

    def __init__(self, config: ActingConfig, group: Group, right: Right, registration: Registration, client: Client,
                 standing: Standing, changed: Callable[[], None], now_ns: Callable[[], int]) -> None:
        self._config, self._group, self._right, self._registration = config, group, right, registration
        self._client, self._standing, self._changed, self._now_ns = client, standing, changed, now_ns
        self._bell = Bell()
        self._under_way: set[str] = set()
        self._why: str | None = "it has not begun"
        """The last reason not to deliver; "" while it may."""
        self._acted = False
        self._notices = 0
        group.changed.join("parts", self._members_changed)

    def least_id_changed(self) -> None:
        """Ask all name servers now: one has told that the smallest id has changed."""
        self._notices += 1
        self._bell.ring()

    @property
    def waits_for(self) -> str:
        """Reason why this broker delivers no due messages; "" if it does."""
        if not self._standing.role.delivers:
            return "this broker follows its master, or is not the first slave"
        return self._right.why_not(self._now_ns())

    def runtime_info(self) -> Mapping[str, str]:
        members = self._group.members
        return {"groupMembers": ";".join(f"{number}={members.addresses[number]}" for number in members.ids),
                "actsForMaster": str(self._standing.role.acts).lower(), "deliveryWaitsFor": self.waits_for}

    def metrics(self, page: Page) -> Iterable[Metric]:
        yield page.gauge("broker_group_members", "Brokers of the group that name servers list. Ours.",
                         [((), len(self._group.members.ids))])
        yield page.gauge("broker_acts", "1 on a slave that acts for its master. Ours.",
                         [((), self._standing.role.acts)])
        yield page.gauge("broker_may_deliver", "1 where what is due may be delivered. Ours.",
                         [((), not self.waits_for)])
        yield page.counter("broker_min_id_notices", "Notices of another smallest id. Ours.", [((), self._notices)])

    def _members_changed(self, members: Members) -> None:
        logger.info("members of the group", extra={"ids": ";".join(map(str, members.ids))})

    # --- changes -----------------------------------------------------------------------------------------------

    def role_changed(self, role: Role) -> None:
        self._look()

    def due_ns(self) -> int:
        """Return when ``tick`` is due: the right begins and ends with time alone."""
        now_ns = self._now_ns()
        return 0 if self._is_another(self._right.why_not(now_ns)) else self._right.changes_ns(now_ns)

    def tick(self, now_ns: int) -> None:
        self._look()

    def _is_another(self, why: str) -> bool:
        return (not why) != (not self._why) or self._standing.role.acts != self._acted

    def _look(self) -> None:
        why, acts = self._right.why_not(self._now_ns()), self._standing.role.acts
        if not self._is_another(why):
            return
        if (not why) != (not self._why) and self._standing.role.delivers:
            logger.info("this broker delivers due messages" if not why else "this broker stops delivering due messages",
                        extra={"why": why})
        self._why, self._acted = why, acts
        self._changed()

    # --- questions ---------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                self._ask_all(nursery)
                with trio.move_on_after(self._config.sync_broker_member_group_period / 1e3):
                    await self._bell.wait()
                await trio.lowlevel.checkpoint()

    def _ask_all(self, nursery: trio.Nursery) -> None:
        servers = self._registration.name_servers
        addresses = [server.address for server in servers]
        self._group.use(addresses)
        self._right.use(addresses)
        for server in servers:
            if server.address not in self._under_way:
                self._under_way.add(server.address)
                nursery.start_soon(self._ask, server)

    async def _ask(self, server: NameServer) -> None:
        standing, asked_ns, beaten_ns = self._standing, self._now_ns(), server.beaten_ns
        try:
            if server.is_old:
                found = await ask_members_by_route(
                    self._client, server.address, standing.broker_name, MEMBERS_TIMEOUT_MS)
            else:
                found = await ask_members(
                    self._client, server.address, standing.cluster_name, standing.broker_name, MEMBERS_TIMEOUT_MS)
        except (RemotingError, BodyError) as error:
            logger.debug("%s does not tell the group's members: %s", server.address, error)
        else:
            self._heard(server, found, asked_ns, beaten_ns)
        finally:
            self._under_way.discard(server.address)

    def _heard(self, server: NameServer, found: Mapping[int, str], asked_ns: int, beaten_ns: int | None) -> None:
        standing = self._standing
        self._right.heard(server.address, found, asked_ns=asked_ns, beaten_ns=beaten_ns, now_ns=self._now_ns())
        self._group.heard(server.address, found, asked_ns, late_ns=self._config.acting_right_ms * NS_PER_MS)
        if (self._registration.is_open and server.taken
                and found.get(standing.role.broker_id) != standing.address):
            logger.warning("this broker registers again: a name server no longer lists it",
                           extra={"name_server": server.address})
            server.tell()
        self._look()
