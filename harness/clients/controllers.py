"""The client of controllers that are tortured alone, and what tells roles and whether all is well.

    python -m harness.clients.controllers work --controllers A,B,C --client 0
    python -m harness.clients.controllers roles --controllers A,B,C
    python -m harness.clients.controllers well --controllers A,B,C

``work`` takes operations of brokers (``harness.checkers.controllers``), and is one broker in each group: from its first
registration on it sends heartbeats to all controllers. Each operation is one request to the active controller, whose
outcome is told: a write that was answered NOT_LEADER, with an error, or not at all may have been carried out. Every
fourth read is asked of the controllers in turn: one that was active, and does not know that it is no more, must not
answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import trio

from harness.checkers.controllers import ALTER, APPLY, ELECT, INFO, METADATA, NEXT, REGISTER, REST, SYNC
from remoting.bodies.controller import BrokerNames, BrokerReplicasInfo, ElectMasterResponseBody, SyncStateSet
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.errors import BodyError, ConnectFailed, HeaderError, NotEncodable, RemotingError
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    AlterSyncStateSetResponse,
    ApplyBrokerIdRequest,
    ApplyBrokerIdResponse,
    BrokerHeartbeatRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    GetSyncStateDataRequest,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)

CLUSTER: Final = "chaos"
BEAT_S: Final = 0.3
SILENT_MS: Final = 1_000
"""Without a heartbeat for so long a broker is dead."""
LOOK_S: Final = 0.1
LOOK_MS: Final = 300
ASTRAY: Final = 4
"""One of so many reads is asked of the controller whose turn it is."""
SPARE_MS: Final = 100
"""Part of an operation's time that is kept for its answer, in milliseconds."""
_READS: Final = frozenset({NEXT, INFO, SYNC, METADATA})
_AS_ASKED: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST})
_UNKNOWN: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.CONTROLLER_NOT_LEADER})
"""Codes behind which a proposal may still be under way."""


def command_of(f: str, key: str, value: Mapping[str, Any]) -> Command:
    """Makes an operation's request. Raises ``KeyError`` for an unknown function."""
    code = RequestCode
    made: dict[str, Callable[[], tuple[int, Header | None, bytes]]] = {
        NEXT: lambda: (code.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequest(CLUSTER, key), b""),
        APPLY: lambda: (code.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest(
            CLUSTER, key, value["id"], value["code"]), b""),
        REGISTER: lambda: (code.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest(
            CLUSTER, key, value["broker"], value["address"]), b""),
        ELECT: lambda: (code.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
            CLUSTER, key, value["broker"], bool(value["designate"])), b""),
        ALTER: lambda: (code.CONTROLLER_ALTER_SYNC_STATE_SET, AlterSyncStateSetRequest(
            key, value["broker"], value["master_epoch"], cluster_name=CLUSTER),
            SyncStateSet(frozenset(value["set"]), value["set_epoch"]).to_json()),
        INFO: lambda: (code.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(key, CLUSTER), b""),
        SYNC: lambda: (code.CONTROLLER_GET_SYNC_STATE_DATA, GetSyncStateDataRequest(CLUSTER),
                       BrokerNames([key]).to_json()),
    }
    return request(*made[f]())


def outcome_of(f: str, key: str, value: Mapping[str, Any], answer: Command) -> dict[str, Any]:
    """Return the outcome of an operation by its answer. Raises ``HeaderError`` and ``BodyError``."""
    code = answer.code
    if code == ResponseCode.SUCCESS or (f == ELECT and code in _AS_ASKED):
        return {"type": "ok", "value": told_by(f, key, value, answer)}
    words = f"{code}: {answer.remark or 'no remark'}"
    if code in _UNKNOWN and f not in _READS:
        return {"type": "info", "error": words}
    told: dict[str, Any] = {"refused": int(code)}
    if f == APPLY and code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
        following = ApplyBrokerIdResponse.from_ext(answer.ext).next_broker_id
        told |= {} if following is None else {"next": following}
    return {"type": "fail", "value": told, "error": words}


def told_by(f: str, key: str, value: Mapping[str, Any], answer: Command) -> Any:
    """The value of a success."""
    if f == NEXT:
        return {"next": GetNextBrokerIdResponse.from_ext(answer.ext).next_broker_id}
    if f == APPLY:
        return {"id": value["id"]}
    if f == ALTER:
        found = SyncStateSet.from_json(answer.body)
        return {"set": sorted(found.sync_state_set),
                "set_epoch": AlterSyncStateSetResponse.from_ext(answer.ext).new_sync_state_set_epoch}
    if f == SYNC:
        info = BrokerReplicasInfo.from_json(answer.body).replicas_info_table[key]
        inside = sorted(each.broker_id for each in info.in_sync_replicas if each.broker_id is not None)
        return _group(info.master_broker_id, info.master_epoch, inside, info.sync_state_set_epoch)
    if f == ELECT:
        elected = ElectMasterResponse.from_ext(answer.ext)
        chosen = ElectMasterResponseBody.from_json(answer.body).sync_state_set
        return _group(elected.master_broker_id, elected.master_epoch, sorted(chosen), elected.sync_state_set_epoch)
    body = SyncStateSet.from_json(answer.body)
    header: RegisterBrokerToControllerResponse | GetReplicaInfoResponse = (
        RegisterBrokerToControllerResponse if f == REGISTER else GetReplicaInfoResponse).from_ext(answer.ext)
    return _group(header.master_broker_id, header.master_epoch, sorted(body.sync_state_set), body.sync_state_set_epoch)


def _group(master: int | None, epoch: int | None, members: list[int], set_epoch: int | None) -> dict[str, Any]:
    return {"master": master, "master_epoch": epoch, "set": members, "set_epoch": set_epoch}


@attrs.define(eq=False)
class ControllerWork:
    """One client at work: a broker of each group that it registered in."""

    client: Client
    controllers: list[str]
    number: int
    active: str | None = None
    """Address of the controller that was active when it was last asked."""
    beating: dict[tuple[str, int], str] = attrs.field(factory=dict)
    """Addresses of its brokers, by group and id."""
    resting: dict[tuple[str, int], float] = attrs.field(factory=dict)
    """Until when one is silent."""
    _asked: int = attrs.field(default=0, init=False)
    _turns: int = attrs.field(default=0, init=False)

    async def do(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to one operation, without its number."""
        f, key, value, timeout_ms = asked["f"], asked["key"], asked["value"] or {}, asked["timeout_ms"] - SPARE_MS
        if f == REST:
            self.resting[key, value["broker"]] = trio.current_time() + value["rest_ms"] / 1e3
            return {"type": "ok", "value": value}
        if f == REGISTER:
            self.beating[key, value["broker"]] = value["address"]
        try:
            with trio.fail_after(timeout_ms / 1e3):
                return await self._metadata() if f == METADATA else await self._request(f, key, value)
        except (ConnectFailed, NotEncodable, KeyError) as error:
            self.active = None
            return {"type": "fail", "error": f"{type(error).__name__}: {error}"}
        except (RemotingError, trio.TooSlowError) as error:
            self.active = None
            return {"type": "fail" if f in _READS else "info", "error": f"{type(error).__name__}: {error}"}

    async def _request(self, f: str, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        if f in _READS:
            self._asked += 1
            if self._asked % ASTRAY == 0:
                return await self._astray(f, key, value)
        if self.active is None:
            self.active = await active_of(self.client, self.controllers)
        if self.active is None:
            return {"type": "fail", "error": "no controller says that it is active"}
        answer = await self.client.call(self.active, command_of(f, key, value))
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.active = None
        return outcome_of(f, key, value, answer)

    async def _astray(self, f: str, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return outcome_of(f, key, value, await self.client.call(self._turn(), command_of(f, key, value)))
        except RemotingError as error:  # its failure does not tell which controller is active
            return {"type": "fail", "error": f"{type(error).__name__}: {error}"}

    def _turn(self) -> str:
        self._turns += 1
        return self.controllers[(self.number + self._turns) % len(self.controllers)]

    async def _metadata(self) -> dict[str, Any]:
        """Asks one controller after the other, each for its own view."""
        address = self._turn()
        answer = await self.client.call(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
        found = GetMetadataResponse.from_ext(answer.ext)
        peers = {at: name for name, _, at in (each.partition(":") for each in (found.peers or "").split(";") if each)}
        return {"type": "ok", "value": {"node": peers.get(address), "leader": found.controller_leader_id,
                                        "leads": found.is_leader, "peers": sorted(peers.values())}}

    async def beat(self, controller: str) -> None:
        """Tells one controller that its brokers live, until cancelled."""
        while True:
            for (key, broker_id), address in list(self.beating.items()):
                if self.resting.get((key, broker_id), 0.0) > trio.current_time():
                    continue
                header = BrokerHeartbeatRequest(
                    CLUSTER, address, key, broker_id, epoch=0, max_offset=0, confirm_offset=0,
                    heartbeat_timeout_ms=SILENT_MS)
                try:
                    await self.client.call(controller, request(RequestCode.BROKER_HEARTBEAT, header), LOOK_MS)
                except RemotingError:
                    break  # the controller would miss the other beats, too
            await trio.sleep(BEAT_S)


async def metadata_of(client: Client, controllers: list[str]) -> dict[str, GetMetadataResponse]:
    """Ask every controller for its group's metadata. Returns the answers by address; those that fail are left out."""
    found: dict[str, GetMetadataResponse] = {}

    async def ask(address: str) -> None:
        try:
            answer = await client.call(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO), LOOK_MS)
            found[address] = GetMetadataResponse.from_ext(answer.ext)
        except (RemotingError, HeaderError):
            return

    async with trio.open_nursery() as nursery:
        for address in controllers:
            nursery.start_soon(ask, address)
    return found


async def active_of(client: Client, controllers: list[str]) -> str | None:
    """Finds a controller that says it is active; of two, chance picks one."""
    return next((address for address, said in (await metadata_of(client, controllers)).items() if said.is_leader), None)


async def work(options: argparse.Namespace) -> None:
    """Answer line by line until standard input ends."""
    controllers = options.controllers.split(",")
    async with open_client() as client, trio.open_nursery() as nursery:
        working = ControllerWork(client, controllers, options.client)
        for address in controllers:
            nursery.start_soon(working.beat, address)
        print(json.dumps({"ready": True}), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            asked = json.loads(line)
            try:
                told = await working.do(asked)
            except BodyError as error:
                told = {"type": "info", "error": str(error)}
            print(json.dumps({"id": asked["id"], **told}), flush=True)
        nursery.cancel_scope.cancel()


async def roles(options: argparse.Namespace) -> None:
    """Print them whenever they change, until killed."""
    named, last = _named(options.controllers), None
    async with open_client() as client:
        while True:
            leads = await active_of(client, list(named))
            if leads is not None and leads != last:
                last = leads
                print(json.dumps({"active": [named[leads]], "leader": [named[leads]], "standby": [
                    name for address, name in named.items() if address != leads]}), flush=True)
            await trio.sleep(LOOK_S)


async def well(options: argparse.Namespace) -> None:
    """End with 0 if one is active and all name it; else with 1, and words."""
    named = _named(options.controllers)
    async with open_client() as client:
        found = await metadata_of(client, list(named))
    leading = {said.controller_leader_id for said in found.values()}
    if len(found) < len(named) or len(leading) != 1 or not any(said.is_leader for said in found.values()):
        print(f"silent: {', '.join(name for address, name in named.items() if address not in found) or 'nobody'}; "
              f"named as the leader: {', '.join(map(str, leading)) or 'nobody'}")
        sys.exit(1)


def _named(addresses: str) -> dict[str, str]:
    return {address: f"controller-{number}" for number, address in enumerate(addresses.split(","), 1)}


def main() -> None:
    """Work, tell the roles, or say whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs: dict[str, Callable[[argparse.Namespace], Awaitable[None]]] = {"work": work, "roles": roles, "well": well}
    parser.add_argument("what", choices=runs)
    parser.add_argument("--controllers", required=True)
    parser.add_argument("--client", type=int, default=0)
    options = parser.parse_args()
    trio.run(runs[options.what], options)


if __name__ == "__main__":
    main()
