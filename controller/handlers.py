"""Answers a controller's requests, code by code: the shell between remoting, the raft node and the cores.

Codes 904, 1005, 1009 and 1010 are answered by every controller from its own view, the rest by the active one alone,
which others name in their NOT_LEADER. A request that would change nothing is answered after a read barrier, without an
entry in the log; 1004, 1006 and 1012 are such reads too. Decides nothing about brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any

import attrs

from controller import answers
from controller.active import ActiveController, ElectionSettings
from controller.config import ControllerConfig, check, from_properties, listing, live_keys, to_properties
from controller.imported import read_groups
from controller.liveness import Life
from controller.membership import changed_members, peers_text
from controller.metadata.codec import encode
from controller.metadata.commands import AnyCommand, ElectMaster, ImportGroups, RaiseFormat
from controller.metadata.groups import GroupKey
from controller.metadata.identity import key_problem
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Outcome, Refused
from controller.own_codes import ChangeControllerGroupRequest, OwnCode
from controller.recorder import Recorder, request_name
from controller.requests import WRITES, Seen, read_command, read_heartbeat, refused
from raft.config import Read
from raft.errors import NotLeader, RaftError
from raft.handshake import caller_of
from raft.node import Node
from remoting import properties
from remoting.address import called_from
from remoting.bodies.controller import BrokerNames
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.daemon.changing import change_config
from remoting.daemon.files import Files
from remoting.daemon.logs import of_peer
from remoting.errors import BodyError, HeaderError
from remoting.headers.controller import (
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetReplicaInfoRequest,
    GetSyncStateDataRequest,
    NotLeaderResponse,
)

logger = logging.getLogger("controller")

CONFIG_BYTES_MAX = 1 << 16
"""Largest body of a 1009."""
ASKED_NAMES_MAX = 10_000
"""Most names in one 1006."""
_BY_ADMIN = frozenset({
    RequestCode.CLEAN_BROKER_DATA, RequestCode.UPDATE_CONTROLLER_CONFIG, OwnCode.IMPORT_METADATA,
    OwnCode.CHANGE_CONTROLLER_GROUP})
"""Requests of operators that are logged, whether refused or not."""


@attrs.define(eq=False)
class Controller:
    """The state that handlers work on; made by ``controller.server``."""

    node: Node
    machine: MetadataMachine
    active: ActiveController
    config: ControllerConfig
    clock: Callable[[], int]
    files: Files
    config_path: str
    turn: Callable[[], None]
    """Something happened that the active controller may have to act on."""
    recorder: Recorder = attrs.field(factory=Recorder)
    holding_back: Mapping[str, int] = attrs.field(factory=dict)
    """Members that do not read the next format of the log, each with the newest that it reads; 0: it did not say.

    The active controller keeps what it last heard.
    """

    @property
    def read_level(self) -> Read:
        return Read.INDEX if self.config.is_process_read_event else Read.LEASE

    @property
    def leader_address(self) -> str | None:
        leader = self.node.leader
        member = self.node.membership.members.get(leader) if leader is not None else None
        return member.address if member is not None else None

    def leader_for(self, connection: Connection) -> str | None:
        """The leader's address as this peer can use it (apache/rocketmq#9082)."""
        address = self.leader_address
        return called_from(address, connection.local) if address is not None else None

    def seen(self, connection: Connection) -> Seen:
        return Seen(self.clock(), self.machine, self.active, names_of(connection))

    # --- any controller --------------------------------------------------------------------------------------

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        """Answers 904: a broker tells that it lives."""
        beat = read_heartbeat(request)
        if isinstance(beat, Refused):
            return answers.answer(request, beat)
        group = self.machine.group(beat.key)
        if group is not None:  # names of strangers would grow without bound
            names_of(connection)[beat.key.name] = beat.key
        held = (not request.is_oneway and self.active.active and group is not None  # ask for the lease only for masters
                and group.master == beat.broker_id and self.node.holds_lease)
        renewed = self.active.heartbeat(self.clock(), beat, connection, raft_lease=held, opened=connection.number)
        life = self.active.on_record(beat) if not request.is_oneway and self.active.active else None
        if life is not None and not self.node.holds_lease:
            life = None
        if self.active.stirred:
            self.turn()
        if request.is_oneway:
            return request
        return answers.heartbeat(request, group, renewed, beat.log_in_doubt, life)

    def metadata(self, connection: Connection, request: Command) -> Command:
        """Answers 1005: who leads this controller group."""
        node = self.node
        header = GetMetadataResponse(
            node.name, node.leader, self.leader_for(connection), self.active.active and node.is_leader,
            peers_text(node.membership), node.node_id, node.commit_index, self.machine.reads, self.machine.format)
        return response(request, ResponseCode.SUCCESS, header)

    def get_config(self, _: Connection, request: Command) -> Command:
        """Answers 1010 with all settings as properties."""
        return response(request, body=properties.encode(listing(self.config)).encode())

    def update_config(self, connection: Connection, request: Command) -> Command:
        """Answers 1009: changes settings, and writes them to the file."""
        return written_down(connection, request, self._change_config(connection, request))

    def _change_config(self, connection: Connection, request: Command) -> Command:
        """Change the configuration and write it to its file.

        A running controller follows some keys only at its next start.
        """
        return change_config(
            connection, request, self.config, bytes_max=CONFIG_BYTES_MAX, barred=self.config.black_list,
            live=live_keys(), made=self._made, text=to_properties, files=self.files, path=self.config_path,
            use=self._use, logger=logger, other_names={"isProcessReadEvent": "processReadEvent"})

    def _made(self, given: Mapping[str, str]) -> ControllerConfig:
        changed = from_properties(given, start=self.config)
        check(changed)
        return changed

    def _use(self, changed: ControllerConfig) -> None:
        self.config, self.active.settings = changed, election_settings(changed)

    def explain(self, _: Connection, request: Command) -> Command:
        """Ours: what there is to say."""
        return response(request, body="\n".join([
            *self.node.explain(), *self._format_held_back(), *self.active.explain(self.clock())]).encode())

    def _format_held_back(self) -> Iterator[str]:
        for name, newest in sorted(self.holding_back.items()):
            why = f"reads {newest} at most: upgrade it" if newest else "does not say what it reads"
            yield f"Format {self.machine.format} of the log stays in use, not {self.machine.format + 1}: {name} {why}."

    # --- the active controller alone -------------------------------------------------------------------------

    async def write(self, connection: Connection, request: Command) -> Command:
        """Answer a command that changes metadata (1001-1003, 1011, 1013).

        It is judged behind the barrier and proposed in the same turn. Before the barrier the broker's life may be
        another: a dead broker may live again, or another process may have taken its place.
        """
        await self._may_read()
        if not self.active.active:
            return self.not_leader(connection, request)
        command = read_command(request, self.seen(connection))
        if self.active.stirred:  # another process is waited for from now: no other event may come
            self.turn()
        if isinstance(command, Refused):
            return answers.answer(request, command)
        outcome = await self._decide(command)
        assert not isinstance(command, ImportGroups | RaiseFormat)
        if self.machine.group(command.key) is not None:
            names_of(connection).setdefault(command.key.name, command.key)
        return answers.answer(request, outcome)

    def replica_info(self, connection: Connection, request: Command) -> Command:
        """Answers 1004: a group's master and SyncStateSet."""
        header = GetReplicaInfoRequest.from_ext(request.ext)
        key = self.seen(connection).group(header.broker_name, header.cluster_name)
        if isinstance(key, Refused):
            return answers.answer(request, key)
        return answers.replica_info(request, self.machine.group(key), key)

    def sync_state_data(self, connection: Connection, request: Command) -> Command:
        """Answers 1006: the SyncStateSets of several groups."""
        names = BrokerNames.from_json(request.body).names if request.body else []
        if not names:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="name at least one broker group in the body")
        if len(names) > ASKED_NAMES_MAX:
            return response(request, ResponseCode.CONTROLLER_INVALID_REQUEST,
                            remark=f"{len(names)} names in the body; at most {ASKED_NAMES_MAX} are taken")
        cluster = GetSyncStateDataRequest.from_ext(request.ext).cluster_name
        found = []
        for name in names:
            key = self.machine.resolve(name, cluster, names_of(connection).get(name))
            if isinstance(key, Refused):
                return answers.answer(request, key)
            group = self.machine.group(key)
            if group is not None:
                found.append((key, group))
        now, liveness = self.clock(), self.active.liveness
        return answers.sync_state_data(
            request, found, lambda key, broker_id: liveness.life(now, key, broker_id) is Life.ALIVE)

    def next_broker_id(self, _: Connection, request: Command) -> Command:
        """Answers 1012: the id to apply for next."""
        header = GetNextBrokerIdRequest.from_ext(request.ext)
        key = GroupKey(header.cluster_name, header.broker_name)
        if wrong := key_problem(key):
            return answers.answer(request, refused(wrong))
        return answers.next_broker_id(request, key, self.machine.next_broker_id(key))

    async def import_metadata(self, connection: Connection, request: Command) -> Command:
        """Ours: groups of another controller."""
        if wrong := self._stranger(connection):
            return response(request, ResponseCode.NO_PERMISSION, remark=wrong)
        await self._may_read()
        command = ImportGroups(term=self.active.term, groups=read_groups(request.body))
        return answers.answer(request, await self._decide(command))

    async def change_group(self, connection: Connection, request: Command) -> Command:
        """Ours: members of the controller group come and go, or wiped ones come back."""
        if wrong := self._stranger(connection):
            return response(request, ResponseCode.NO_PERMISSION, remark=wrong)
        header = ChangeControllerGroupRequest.from_ext(request.ext)
        try:
            voters, learners = changed_members(self.node.membership, header.add, header.remove)
        except ValueError as error:
            return response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark=str(error))
        await self.node.reconfigure(voters, learners)
        return response(request, remark=peers_text(self.node.membership))

    def _stranger(self, connection: Connection) -> str | None:
        """Return why the caller may not change the controller group; None: it may. A PROXY header does not count."""
        return self.config.access.change_refused(
            caller_of(connection.stream), self.node.membership.members)

    async def _decide(self, command: AnyCommand) -> Outcome:
        """Through the log, if it would change anything. Behind a read barrier."""
        outcome = self.machine.preview(command)
        if not outcome.changed:
            if isinstance(command, ElectMaster) and self.machine.group(command.key) is not None:
                self.recorder.decided(outcome)
            return outcome
        self.active.asked(command)
        applied: Outcome | None = None
        began = self.clock()
        try:
            applied = await self.node.propose(encode(command, self.machine.format))
            assert applied is not None
            return applied
        finally:
            now = self.clock()
            self.active.answered(now, command, applied)
            self.recorder.appended(applied is not None, (now - began) / 1e9)

    @property
    def _reads_now(self) -> bool:
        """A read barrier would let every read through at once."""
        return (self.read_level is Read.LEASE and self.node.applied_index >= self.node.commit_index
                and self.node.holds_lease)

    async def _may_read(self) -> None:
        if not self._reads_now:
            await self.node.read_barrier(self.read_level)

    # --- the table -------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Callable[[Connection, Command], Any]]:
        """Return the function that serves each request code."""
        code = RequestCode
        return {
            code.BROKER_HEARTBEAT: readable(self.heartbeat),
            code.CONTROLLER_GET_METADATA_INFO: self.metadata,
            code.UPDATE_CONTROLLER_CONFIG: self.update_config,
            code.GET_CONTROLLER_CONFIG: self.get_config,
            OwnCode.EXPLAIN: self.explain,
            **dict.fromkeys(WRITES, self._leader_only(self.write)),
            code.CONTROLLER_GET_REPLICA_INFO: self._read(self.replica_info),
            code.CONTROLLER_GET_SYNC_STATE_DATA: self._read(self.sync_state_data),
            code.CONTROLLER_GET_NEXT_BROKER_ID: self._read(self.next_broker_id),
            OwnCode.IMPORT_METADATA: self._leader_only(self.import_metadata),
            OwnCode.CHANGE_CONTROLLER_GROUP: self._leader_only(self.change_group),
        }

    def _leader_only(
        self, handler: Callable[[Connection, Command], Awaitable[Command]]
    ) -> Callable[[Connection, Command], Command | Coroutine[Any, Any, Command]]:
        def handle(connection: Connection, request: Command) -> Command | Coroutine[Any, Any, Command]:
            return carry_out(connection, request) if self.active.active else self.not_leader(connection, request)

        async def carry_out(connection: Connection, request: Command) -> Command:
            return written_down(connection, request, await answered(connection, request))

        async def answered(connection: Connection, request: Command) -> Command:
            try:
                return await handler(connection, request)
            except (HeaderError, BodyError) as error:
                return response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark=str(error))
            except NotLeader:
                return self.not_leader(connection, request)
            except RaftError as error:
                return self.failed(connection, request, error)

        return handle

    def _read(
        self, handler: Callable[[Connection, Command], Command]
    ) -> Callable[[Connection, Command], Command | Coroutine[Any, Any, Command]]:
        """Return the handler behind a read barrier; without a task where the barrier would not wait."""
        async def later(connection: Connection, request: Command) -> Command:
            await self._may_read()
            return handler(connection, request)

        at_once, otherwise = readable(handler), self._leader_only(later)

        def handle(connection: Connection, request: Command) -> Command | Coroutine[Any, Any, Command]:
            chosen = at_once if self.active.active and self._reads_now else otherwise
            return chosen(connection, request)

        return handle

    def not_leader(self, connection: Connection, request: Command) -> Command:
        """Answers 2007, which names the active controller where it is known."""
        address = self.leader_for(connection)
        known = f"ask {self.node.leader} at {address}" if address else "none is known at the moment"
        return response(request, ResponseCode.CONTROLLER_NOT_LEADER, NotLeaderResponse(address or None),
                        remark=f"The controller is not in leader state: {known}")

    def failed(self, connection: Connection, request: Command, error: RaftError) -> Command:
        """A write or read that raft did not carry through. The broker asks again; every command bears that."""
        if not self.active.active:
            return self.not_leader(connection, request)
        return response(request, ResponseCode.SYSTEM_ERROR, remark=str(error))


def written_down(connection: Connection, request: Command, answer: Command) -> Command:
    """The answer; what operators asked for is in the log, refused or not."""
    if request.code in _BY_ADMIN or request.ext.get("designateElect") == "true":
        done = answer.code == ResponseCode.SUCCESS
        level, said = (logging.INFO, "admin operation done") if done else (logging.WARNING, "admin operation refused")
        logger.log(level, said, extra={
            "request": request_name(request.code), "peer": connection.peer, "code": int(answer.code),
            "why": answer.remark, **of_peer(request.ext)})
    return answer


def readable(
    handler: Callable[[Connection, Command], Command]
) -> Callable[[Connection, Command], Command]:
    """A request whose header or body cannot be read is answered as such."""
    def handle(connection: Connection, request: Command) -> Command:
        try:
            return handler(connection, request)
        except (HeaderError, BodyError) as error:
            return response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark=str(error))

    return handle


def names_of(connection: Connection) -> dict[str, GroupKey]:
    """The groups for which this connection spoke, by broker name; one container may carry several."""
    if connection.identity is None:
        connection.identity = {}
    names: dict[str, GroupKey] = connection.identity  # type: ignore[assignment]
    return names


def election_settings(config: ControllerConfig) -> ElectionSettings:
    """Return the settings of elections from the configuration."""
    return ElectionSettings(
        unclean=config.enable_elect_unclean_master, policy=config.elect_policy,
        preferred={GroupKey(*key): broker_id for key, broker_id in config.preferred.items()},
        wait_master_lease=config.wait_master_lease)
