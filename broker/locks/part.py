"""The part that locks queues for clients (41, 42), and asks or tells the other brokers of the group.

A request of another broker (``onlyThisBroker``) is for this broker's locks alone, as in RocketMQ. Two header fields are
ours, and RocketMQ ignores them: see ``remoting.headers.consumers``.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from broker.config import BrokerConfig, pick
from broker.consumers.locks import HELD_MS, Granted
from broker.consumers.part import ClientsPart
from broker.locks.quorum import Votes, majority, read, won, written
from broker.part import Part, Parts, Shared
from broker.standing import MASTER_ID
from remoting.bodies.consumers import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.daemon.keys import key
from remoting.endpoint import Handler
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.consumers import LockBatchRequest, LockBatchResponse

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker.locks")

MEMBER_MS: Final = 1_000
"""Timeout of one broker's answer, as in RocketMQ."""
QUORUM_S: Final = 2.0
"""Timeout of all answers together."""
NOT_BACK: Final = "this master is not back yet: the slave that acts for it grants locks"
HERE: Final = ""
"""Stands for this broker among addresses."""
TELLING_MAX: Final = 1_000
"""Notices to other brokers that may wait; further ones are dropped."""


@attrs.frozen(kw_only=True, slots=False)
class LockKeys:
    """The broker's configuration keys that belong to locks."""

    lock_in_strict_mode: bool = key(
        False, "true: a client holds a queue if a majority of totalReplicas granted it; false: if the master did, or "
        "the slave that acts for it", live=True)


@attrs.frozen(kw_only=True)
class LockConfig:
    """The keys of several parts that locks depend on."""

    lock_in_strict_mode: bool = False
    total_replicas: int = 1
    enable_slave_acting_master: bool = False


@attrs.frozen
class Vote:
    """A member's answer: the queues that it granted, and the numbers of new grants and of all grants."""

    granted: list[MessageQueue]
    fresh: dict[MessageQueue, int]
    numbers: dict[MessageQueue, int]
    """Number of each grant; 0: a RocketMQ broker granted it."""


class LocksPart(Part):
    """Handles lock requests of clients and of other brokers."""

    keys = LockKeys

    def __init__(self, shared: Shared, before: Parts) -> None:
        self.locks = before[ClientsPart].locks
        self._fellows, self._standing = shared.fellows, shared.standing
        self._is_isolated_first = shared.config.is_isolated_first
        self.config = pick(shared.config, LockConfig)
        self.without_majority = 0
        """Clients' requests that too few replicas answered."""
        self._now_ns = shared.now_ns
        self._votes = Votes(HELD_MS * 1_000_000)
        self._tell, self._told = trio.open_memory_channel[tuple[str | None, Command]](TELLING_MAX)
        """Notices with the address of one member, or None for all."""
        if self._is_strict:
            self.locks.be_silent()

    def configure(self, config: BrokerConfig) -> None:
        before = self._is_strict
        self.config = attrs.evolve(pick(config, LockConfig), total_replicas=self.config.total_replicas)
        if self._is_strict and not before:
            self.locks.be_silent()

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.counter("broker_lock_overlaps", "Queues that two brokers of the group granted to two clients. Ours.",
                           [((), self.locks.overlaps)])
        yield page.counter("broker_locks_without_majority", "Requests for locks that lacked one. Ours.",
                           [((), self.without_majority)])

    # --- requests --------------------------------------------------------------------------------------------

    def lock(self, _: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        """Code 41: lock queues for a client."""
        asked = LockBatchRequestBody.from_json(command.body)
        if asked.only_this_broker:
            return self._vote(command, asked)
        if self._is_isolated and not self._is_strict:
            return response(command, remark=NOT_BACK, body=LockBatchResponseBody([]).to_json())
        mine = self.locks.grant(asked.consumer_group, asked.mq_set, asked.client_id)
        if self._is_strict:
            return self._by_majority(command, asked, mine)
        self._copy(RequestCode.LOCK_BATCH_MQ, asked, list(mine.grants))
        return response(command, body=LockBatchResponseBody(list(mine.grants)).to_json())

    def unlock(self, _: Connection, command: Command) -> Command:
        """Code 42: unlock queues, and tell the other brokers. In strict mode only grants that were asked for here are
        given back: the client may hold newer ones through another broker."""
        asked = LockBatchRequestBody.from_json(command.body)
        given_back = LockBatchRequest.from_ext(command.ext).given_back
        if asked.only_this_broker and given_back is not None:
            self.locks.give_back(asked.consumer_group, read(given_back, asked.mq_set))
            return response(command)
        if self._is_strict and not asked.only_this_broker:
            for address, grants in self._votes.take(asked.consumer_group, asked.client_id, asked.mq_set).items():
                if address == HERE:
                    self.locks.give_back(asked.consumer_group, grants)
                else:
                    self._tell_later(address, _given_back(asked, grants))
            return response(command)
        self.locks.unlock(asked.consumer_group, asked.mq_set, asked.client_id)
        if not asked.only_this_broker:
            self._copy(RequestCode.UNLOCK_BATCH_MQ, asked, asked.mq_set)
        return response(command)

    @property
    def _is_strict(self) -> bool:
        return self.config.lock_in_strict_mode and self.config.total_replicas > 1

    @property
    def _is_isolated(self) -> bool:
        """True for a master that is not level with its members yet."""
        role = self._standing.role
        return self._is_isolated_first and role.broker_id == MASTER_ID and not role.leads

    def _vote(self, command: Command, asked: LockBatchRequestBody) -> Command:
        copied = LockBatchRequest.from_ext(command.ext).copied
        found = self.locks.grant(asked.consumer_group, asked.mq_set, asked.client_id, copied=copied)
        mine = list(found.grants)
        fresh = {queue: found.grants[queue] for queue in found.fresh}
        renewed = {queue: grant for queue, grant in found.grants.items() if queue not in found.fresh}
        return response(command, header=LockBatchResponse(written(mine, fresh), written(mine, renewed)),
                        body=LockBatchResponseBody(mine).to_json())

    # --- strict ----------------------------------------------------------------------------------------------

    async def _by_majority(self, command: Command, asked: LockBatchRequestBody, mine: Granted) -> Command:
        """Ask the other brokers too. Queues that too few granted are given back by those brokers that granted them for
        the first time."""
        answers: dict[str, Vote] = {}
        await self._ask_all(asked, answers)
        needed = majority(self.config.total_replicas)
        held = won(asked.mq_set, [mine.grants, *(vote.granted for vote in answers.values())], needed)
        lost = frozenset(asked.mq_set).difference(held)
        numbers = {HERE: dict(mine.grants)} | {address: vote.numbers for address, vote in answers.items()}
        self._votes.remember(asked.consumer_group, asked.client_id, {address: {
            queue: grant for queue, grant in found.items() if queue not in lost} for address, found in numbers.items()},
            self._now_ns())
        self.locks.give_back(asked.consumer_group, {
            queue: mine.grants[queue] for queue in mine.fresh if queue in lost})
        for address, vote in answers.items():
            await self._give_back(address, asked, {
                queue: grant for queue, grant in vote.fresh.items() if queue in lost})
        remark = None
        silent_ns = self.locks.silent_until_ns - self._now_ns()
        if lost and silent_ns > 0:
            remark = ("lockInStrictMode: this broker has just started to grant locks, and grants no new one for "
                      f"{silent_ns // 1_000_000_000 + 1} s")
        if len(answers) + 1 < needed:
            self.without_majority += 1
            remark = (f"lockInStrictMode: {len(answers) + 1} of {self.config.total_replicas} replicas answered, "
                      f"{needed} must: no queue can be locked")
            logger.warning("queues cannot be locked: too few replicas answer", extra={
                "answered": len(answers) + 1, "needed": needed, "replicas": self.config.total_replicas})
        return response(command, remark=remark, body=LockBatchResponseBody(held).to_json())

    async def _ask_all(self, asked: LockBatchRequestBody, answers: dict[str, Vote]) -> None:
        with trio.move_on_after(QUORUM_S):
            living = await self._fellows.living()
            async with trio.open_nursery() as nursery:
                for address in living.values():
                    nursery.start_soon(self._ask, address, asked, answers)

    async def _ask(
        self, address: str, asked: LockBatchRequestBody,
        answers: dict[str, Vote],
    ) -> None:
        body = attrs.evolve(asked, only_this_broker=True).to_json()
        try:
            answer = await self._fellows.ask(address, request(RequestCode.LOCK_BATCH_MQ, body=body), MEMBER_MS)
            granted = LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set
            told = LockBatchResponse.from_ext(answer.ext)
            fresh = read(told.newly_locked, granted)
            answers[address] = Vote(granted, fresh, dict.fromkeys(granted, 0) | fresh | read(told.renewed, granted))
        except (RemotingError, BodyError, HeaderError) as error:
            logger.debug("%s grants no lock: %s", address, error)

    async def _give_back(self, address: str, asked: LockBatchRequestBody, fresh: Mapping[MessageQueue, int]) -> None:
        if not fresh:
            return
        try:
            await self._fellows.tell(address, _given_back(asked, fresh))
        except RemotingError as error:
            logger.debug("%s could not be told to release a lock, which stays for a minute: %s", address, error)

    # --- notices to other brokers ------------------------------------------------------------------------------

    def _copy(self, code: int, asked: LockBatchRequestBody, queues: list[MessageQueue]) -> None:
        """Tell the other brokers of locks, in a group where slaves may act."""
        if not queues or self.config.total_replicas < 2 or not self.config.enable_slave_acting_master:
            return
        body = attrs.evolve(asked, only_this_broker=True, mq_set=queues).to_json()
        header = LockBatchRequest(copied=True) if code == RequestCode.LOCK_BATCH_MQ else None
        self._tell_later(None, request(code, header, body))

    def _tell_later(self, address: str | None, command: Command) -> None:
        try:
            self._tell.send_nowait((address, command))
        except trio.WouldBlock:
            logger.warning("the other brokers are not told of locks: too many notices are waiting")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        async for member, command in self._told:
            for address in [member] if member is not None else (await self._fellows.living()).values():
                try:
                    with trio.fail_after(MEMBER_MS / 1e3):
                        await self._fellows.tell(address, command)
                except (RemotingError, trio.TooSlowError) as error:
                    logger.debug("%s was not told of locks: %s", address, error)


def _given_back(asked: LockBatchRequestBody, grants: Mapping[MessageQueue, int]) -> Command:
    """The request that gives these grants back to a member. RocketMQ's grants have no numbers."""
    queues = list(grants)
    header = LockBatchRequest(given_back=written(queues, grants)) if any(grants.values()) else None
    body = attrs.evolve(asked, only_this_broker=True, mq_set=queues).to_json()
    return request(RequestCode.UNLOCK_BATCH_MQ, header, body)
