"""The part that locks queues for clients, and asks or tells the other brokers of the group. Codes 41 and 42.

A request of another broker (``onlyThisBroker``) is for the locks here alone, as in Java. Two fields beside its headers
are ours, and Java's brokers pass them over: see ``remoting.headers.consumers``.
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
"""For one broker's answer, as in Java."""
QUORUM_S: Final = 2.0
"""For all of them."""
HERE: Final = ""
"""In the place of an address: this broker."""
TELLING_MAX: Final = 1_000
"""Grants that may be on their way to others; what is beyond is not told."""


@attrs.frozen(kw_only=True, slots=False)
class LockKeys:
    """What of the broker's configuration belongs to it."""

    lock_in_strict_mode: bool = key(
        False, "a client holds a queue where a majority of totalReplicas granted it; else where the master or who acts "
        "for it did", live=True)


@attrs.frozen(kw_only=True)
class LockConfig:
    """What it goes by: keys of several parts."""

    lock_in_strict_mode: bool = False
    total_replicas: int = 1
    enable_slave_acting_master: bool = False


@attrs.frozen
class Vote:
    """A member's answer: what it granted, and the numbers of the grants, those that are new by themselves."""

    granted: list[MessageQueue]
    fresh: dict[MessageQueue, int]
    numbers: dict[MessageQueue, int]
    """0: a Java broker granted it."""


class LocksPart(Part):
    keys = LockKeys

    def __init__(self, shared: Shared, before: Parts) -> None:
        self.locks = before[ClientsPart].locks
        self._fellows = shared.fellows
        self.config = pick(shared.config, LockConfig)
        self.without_majority = 0
        """Requests of clients that lacked it for at least one queue that was free here."""
        self._now_ns = shared.now_ns
        self._votes = Votes(HELD_MS * 1_000_000)
        self._tell, self._told = trio.open_memory_channel[tuple[str | None, Command]](TELLING_MAX)
        """To a member, or to all of them."""
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
        mine = self.locks.grant(asked.consumer_group, asked.mq_set, asked.client_id)
        if self._is_strict:
            return self._by_majority(command, asked, mine)
        self._copy(RequestCode.LOCK_BATCH_MQ, asked, list(mine.grants))
        return response(command, body=LockBatchResponseBody(list(mine.grants)).to_json())

    def unlock(self, _: Connection, command: Command) -> Command:
        """42. The other brokers are told. By majority only what was asked for here is given back: a client that asked
        another broker since may hold it."""
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
        """Ask the others for all of it, too. What too few granted is given back where this request was the first."""
        answers: dict[str, Vote] = {}
        with trio.move_on_after(QUORUM_S):
            living = await self._fellows.living()
            async with trio.open_nursery() as nursery:
                for address in living.values():
                    nursery.start_soon(self._ask, address, asked, answers)
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
            remark = ("lockInStrictMode: this broker began to count locks lately, and grants no new one for "
                      f"{silent_ns // 1_000_000_000 + 1} s")
        if len(answers) + 1 < needed:
            self.without_majority += 1
            remark = (f"lockInStrictMode: {len(answers) + 1} of {self.config.total_replicas} replicas answered, "
                      f"{needed} must: no queue can be locked")
            logger.warning("queues cannot be locked: too few replicas answer", extra={
                "answered": len(answers) + 1, "needed": needed, "replicas": self.config.total_replicas})
        return response(command, remark=remark, body=LockBatchResponseBody(held).to_json())

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
            logger.debug("%s keeps a lock that nobody holds, for a minute: %s", address, error)

    # --- what the others are told ------------------------------------------------------------------------------

    def _copy(self, code: int, asked: LockBatchRequestBody, queues: list[MessageQueue]) -> None:
        """In a group that may act for its master."""
        if not queues or self.config.total_replicas < 2 or not self.config.enable_slave_acting_master:
            return
        body = attrs.evolve(asked, only_this_broker=True, mq_set=queues).to_json()
        header = LockBatchRequest(copied=True) if code == RequestCode.LOCK_BATCH_MQ else None
        self._tell_later(None, request(code, header, body))

    def _tell_later(self, address: str | None, command: Command) -> None:
        try:
            self._tell.send_nowait((address, command))
        except trio.WouldBlock:
            logger.warning("locks are not told to the other brokers: too many are on their way")

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
    """Word to a member that these grants of its are as if they had not been. Java's know no numbers."""
    queues = list(grants)
    header = LockBatchRequest(given_back=written(queues, grants)) if any(grants.values()) else None
    body = attrs.evolve(asked, only_this_broker=True, mq_set=queues).to_json()
    return request(RequestCode.UNLOCK_BATCH_MQ, header, body)
