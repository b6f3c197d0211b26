"""Whatever comes to a controller's port: an answer in words or a closed connection, a counter, and no change anywhere.

Whole controllers on virtual time; the last test has a process and sockets.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from controller.metadata.codec import FORMAT
from controller.own_codes import ChangeControllerGroupRequest, OwnCode
from harness.simulation.worlds.controllers import CLUSTER, SimpleBroker, World, group_of, world
from raft.errors import RaftError
from raft.hello import MAGIC
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY, Command, Encoding
from remoting.daemon.keys import ConfigError
from remoting.fields import described, int_range
from remoting.frame import FrameReader, encode
from remoting.header import Header
from remoting.headers import controller as headers

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "remoting" / "golden"
CODE, INVALID = RequestCode, ResponseCode.CONTROLLER_INVALID_REQUEST
LONG = "n" * 100_000
PATIENCE_S = 60.0
IN_SYNC = SyncStateSet(frozenset({1, 2}), 2).to_json()
"""What the groups of ``group_of`` have already."""

WHOLE: dict[int, tuple[Header, bytes]] = {
    CODE.BROKER_HEARTBEAT: (headers.BrokerHeartbeatRequest(
        CLUSTER, "z:1", "z", 1, 1, 5, 5, 10_000, 1, 1_000, True, 2, False, False, 7), b""),
    CODE.CONTROLLER_ALTER_SYNC_STATE_SET: (headers.AlterSyncStateSetRequest("a", 1, 1, 7, CLUSTER), IN_SYNC),
    CODE.CONTROLLER_ELECT_MASTER: (headers.ElectMasterRequest(CLUSTER, "a", 1, False, 7), b""),
    CODE.CONTROLLER_REGISTER_BROKER: (headers.RegisterBrokerToControllerRequest(
        CLUSTER, "a", 2, "a-2:1", 7, broker_life=7), b""),
    CODE.CONTROLLER_GET_REPLICA_INFO: (headers.GetReplicaInfoRequest("a", CLUSTER), b""),
    CODE.CONTROLLER_GET_METADATA_INFO: (Header(), b""),
    CODE.CONTROLLER_GET_SYNC_STATE_DATA: (Header(), b'["a"]'),
    CODE.UPDATE_CONTROLLER_CONFIG: (Header(), b""),
    CODE.GET_CONTROLLER_CONFIG: (Header(), b""),
    CODE.CLEAN_BROKER_DATA: (headers.CleanBrokerDataRequest("a", CLUSTER, "2", False, 7), b""),
    CODE.CONTROLLER_GET_NEXT_BROKER_ID: (headers.GetNextBrokerIdRequest(CLUSTER, "a"), b""),
    CODE.CONTROLLER_APPLY_BROKER_ID: (headers.ApplyBrokerIdRequest(CLUSTER, "a", 1, "a-1:1;1"), b""),
    OwnCode.IMPORT_METADATA: (Header(), b"[]"),
    OwnCode.CHANGE_CONTROLLER_GROUP: (ChangeControllerGroupRequest("", ""), b""),
    OwnCode.EXPLAIN: (Header(), b""),
}
"""Every code that is served: a whole request, of all its fields, that changes nothing."""
NAMES = {"clusterName": "cluster name", "brokerName": "broker name"}


@attrs.define
class Unmoved:
    """That nothing changed on any controller and no handler had a defect, from entering to leaving."""

    world: World
    before: bytes = b""

    def hashes(self) -> set[bytes]:
        return {running.core.machine.state_hash() for running in self.world.running.values()}

    def check(self, where: object) -> None:
        assert self.hashes() == {self.before}, where
        assert not any(running.server.counters.failed for running in self.world.running.values()), where

    async def __aenter__(self) -> Self:
        await trio.sleep(1)
        (self.before,) = self.hashes()
        return self

    async def __aexit__(self, *error: object) -> None:
        if error[0] is None:
            await trio.sleep(1)
            self.check("at the end")
            (await self.world.active())


async def send(made: World, name: str, code: int, ext: Mapping[str, str], body: bytes = b"") -> Command:
    assert made.client is not None
    return await made.client.call(f"{name}:1", Command(code, ext=dict(ext), body=body))


def described_by(cls: type[Header]) -> list[tuple[str, Any, bool]]:
    return [(field.wire, field.hint, field.required) for field in described(cls)] if cls is not Header else []


def unreadable(hint: Any) -> Iterator[str]:
    if hint not in (str, bool):
        least, most = int_range(hint)
        yield from ("x", "", " ", "1.5", "0x1", "9" * 30, LONG, "1\x00", str(most + 1), str(least - 1))


def absurd(wire: str, hint: Any) -> Iterator[str]:
    if hint is bool:
        yield from ("maybe", "", LONG)
    elif hint is str:
        yield from ("", " ", LONG, "a\nb", "\x00", "\x7f", "a\u2028b") + (("a#b", "a;b") if wire in NAMES else ())
    else:
        yield from ("-7", "0", str(int_range(hint)[1]), str(int_range(hint)[0]))


async def test_BUG_S7_every_field_of_every_code(autojump_clock: MockClock) -> None:
    """A field that is needed and missing, or cannot be read, is named in the refusal, and nothing is changed."""
    async with world() as made:
        while {running.core.machine.format for running in made.running.values()} != {FORMAT}:
            await trio.sleep(0.1)
        await group_of(made, "a", 2, broker_life=7)
        active = await made.active()
        async with Unmoved(made) as unmoved:
            for code, (header, body) in WHOLE.items():
                whole = header.to_ext()
                answer = await send(made, active, code, whole, body)
                assert answer.code in (0, 1, 2009, ResponseCode.CONTROLLER_MASTER_STILL_EXIST), (code, answer)
                for wire, hint, required in described_by(type(header)):
                    wrong: list[dict[str, str]] = [{**whole, wire: text} for text in unreadable(hint)]
                    if required:
                        wrong.append({name: value for name, value in whole.items() if name != wire})
                    for ext in wrong:
                        answer = await send(made, active, code, ext, body)
                        assert answer.code == INVALID and wire in str(answer.remark), (code, wire, answer)
                        assert len(str(answer.remark)) < 300
                    for text in absurd(wire, hint):
                        answer = await send(made, active, code, {**whole, wire: text}, body)
                        assert not answer.code or answer.remark, (code, wire, text[:9])
                        assert len(str(answer.remark)) < 600
                        if wire in NAMES and text.strip():
                            assert answer.code == INVALID and NAMES[wire] in str(answer.remark), (code, text[:9])
                        unmoved.check((code, wire, text[:9]))
            counted = made.running[active].core.recorder.requests
            assert all(counted[CODE(code).name, "failed"] > 10 for code in (904, 1001, 1002, 1003, 1013)), counted


async def test_followers_refuse_before_they_read(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "a", 2)
        follower = next(name for name in made.names if name != made.running[name].core.node.leader)
        async with Unmoved(made):
            for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013, *OwnCode):
                answer = await send(made, follower, code, {"brokerId": LONG}, b"\xff")
                assert answer.code in (ResponseCode.CONTROLLER_NOT_LEADER, 0) and (code != 1001 or answer.remark)


async def test_unknown_codes(autojump_clock: MockClock) -> None:
    async with world(count=1) as made:
        async with Unmoved(made):
            for code in (0, -1, 1, 103, 1007, 1008, 1014, 32_767, 2**31 - 1, -2**31):
                answer = await send(made, "n0", code, {})
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and str(code) in str(answer.remark)
            counters = made.running["n0"].server.counters
            assert counters.unsupported == 10
            names = {name for name, _ in made.running["n0"].core.recorder.requests}
            assert "UNKNOWN" in names and not any(name.isdecimal() for name in names)


BODIES = [
    b"\x00", b"\xff\xfe", b"{", b"[", b'{"a":', b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000, b"nul", b"null",
    b"1",    b'"a"', b"{}", b'{"syncStateSet":null}', b'{"syncStateSet":[1,2],"syncStateSetEpoch":"x"}',
    b'{"syncStateSet":["a:1"],"syncStateSetEpoch":2}', b'{"syncStateSet":[1,2,99],"syncStateSetEpoch":2}',
    b'{"syncStateSet":[2],"syncStateSetEpoch":2}', b'{"syncStateSet":[1,2],"syncStateSetEpoch":99999999999}',
    b'{"syncStateSet":[' + b",".join(str(2**62 + each).encode() for each in range(10_000)) + b"]}",
    b'{"syncStateSet":[1,9223372036854775808]}', b'{"$ref":"$"}', b'[{"$ref":"$[0]"}]',
    b'["' + b"x" * 3_000_000 + b'"]', b" " * 4_000_000, json.dumps(["a"] * 20_000).encode(),
    b'[{"cluster":"c"}]', b'[{"cluster":1}]', b'[[]]', b'[{"cluster":"c","name":"b","replicas":[1]}]',
    b'[{"cluster":"c","name":"b","replicas":{"x":"h:1"}}]',
    b'[{"cluster":"c","name":"b","replicas":{"1":"h:1"},"nextBrokerId":9223372036854775808,"syncStateSet":[1],'
    b'"syncStateSetEpoch":1,"master":1,"masterEpoch":1}]',
    b'[{"cluster":"c","name":"b#","replicas":{"1":"h:1"},"nextBrokerId":2,"syncStateSet":[1],"syncStateSetEpoch":1,'
    b'"master":1,"masterEpoch":1}]',
]


async def test_bodies_that_are_none(autojump_clock: MockClock) -> None:
    async with world(count=1) as made:
        await group_of(made, "a", 2)
        async with Unmoved(made) as unmoved:
            for code in (CODE.CONTROLLER_ALTER_SYNC_STATE_SET, CODE.CONTROLLER_GET_SYNC_STATE_DATA,
                         OwnCode.IMPORT_METADATA):
                for body in BODIES:
                    answer = await send(made, "n0", code, WHOLE[code][0].to_ext(), body)
                    assert not answer.code or answer.remark, (code, body[:40])
                    assert len(str(answer.remark)) < 700, (code, body[:40])
                    unmoved.check((code, body[:40]))


async def test_an_import_larger_than_an_entry_is_refused_in_words(autojump_clock: MockClock) -> None:
    async with world(count=1) as made:
        groups = [{"cluster": "c", "name": f"{'b' * 200}{number}", "replicas": {"1": "h:1"}, "nextBrokerId": 2,
                   "syncStateSet": [1], "syncStateSetEpoch": 1, "master": 1, "masterEpoch": 1}
                  for number in range(5_000)]
        async with Unmoved(made):
            answer = await send(made, "n0", OwnCode.IMPORT_METADATA, {}, json.dumps(groups).encode())
            assert answer.code == ResponseCode.SYSTEM_ERROR and "larger than the node takes" in str(answer.remark)


@pytest.mark.parametrize(("body", "words"), [
    (b"preferredMasters=a/b:1", "electPolicy"), (b"electPolicy=preferred\npreferredMasters=a:x", "cluster/group:id"),
    (b"electPolicy=preferred\npreferredMasters=c/a:99999999999999999999", "cluster/group:id"),
    (b"electPolicy=preferred\npreferredMasters=c/a:-1", "cluster/group:id"),
    (b"controllerDLegerPeers=n7-a:1", "controllerDLegerSelfId"), (b"electionTimeoutMs=1_000", "whole number"),
    (b"electionTimeoutMs=" + b"9" * 60_000, "whole number"), (b"a" * 60_000 + b"=1", "no known key"),
    (b"\xff\xfe", "not properties"), (b"a=\\u12", "not properties"), (b"#" * 100_000, "at most"),
    (b"rocketmqHome=/tmp", "black list"), (b"notifyBrokerRoleChanged=\x00", "true or false"),
])
async def test_a_configuration_that_could_not_start_is_not_taken(
    autojump_clock: MockClock, body: bytes, words: str,
) -> None:
    async with world(count=1) as made:
        core = made.running["n0"].core
        before = core.config, core.active.settings
        answer = await send(made, "n0", CODE.UPDATE_CONTROLLER_CONFIG, {}, body)
        assert answer.code and words in str(answer.remark)
        assert len(str(answer.remark)) < 1_500
        assert (core.config, core.active.settings) == before
        assert core.files.read(core.config_path) is None
        assert not made.running["n0"].server.counters.failed


@pytest.mark.parametrize(("add", "words"), [
    ("n9", "id-host:port"), ("-h:1", "id-host:port"), ("n\x00-h:1", "id-host:port"), (LONG + "-h:1", "id-host:port"),
    ("n9-h", "no address"), ("n9-h:99999", "no address"), ("n9-" + LONG, "no broker address"),
    ("n9-h\n:1", "no broker address"), ("n9-n0:1", "address"),
])
async def test_members_that_cannot_be(autojump_clock: MockClock, add: str, words: str) -> None:
    async with world(count=1) as made:
        async with Unmoved(made):
            answer = await made.ask("n0", OwnCode.CHANGE_CONTROLLER_GROUP, ChangeControllerGroupRequest(add, ""))
            assert answer.code and words in str(answer.remark)
            assert len(str(answer.remark)) < 700
            assert set(made.running["n0"].core.node._driver.replica.membership.members) == {"n0"}


# --- what brokers may not ------------------------------------------------------------------------------------


async def refusal(broker: SimpleBroker, code: int, header: Header, body: bytes = b"") -> int:
    answer = await broker.call(code, header, body)
    assert not answer.code or answer.remark
    return answer.code


async def test_stale_epochs_other_peoples_ids_and_replayed_check_codes(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, second = await group_of(made, "a", 2)
        alter, apply, code = headers.AlterSyncStateSetRequest, headers.ApplyBrokerIdRequest, ResponseCode
        async with Unmoved(made):
            for header, body, refused in (
                (alter("a", 1, 0), {1}, code.CONTROLLER_FENCED_MASTER_EPOCH),
                (alter("a", 1, 2), {1}, code.CONTROLLER_FENCED_MASTER_EPOCH),
                (alter("a", 2, 1), {1, 2}, code.CONTROLLER_INVALID_MASTER),
                (alter("a", 3, 1), {3}, code.CONTROLLER_INVALID_MASTER),
                (alter("b", 1, 1), {1}, code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
                (alter("a", 1, 1), {1, 3}, code.CONTROLLER_INVALID_REPLICAS),
                (alter("a", 1, 1), {2}, code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
            ):
                said = SyncStateSet(frozenset(body), 2).to_json()
                assert await refusal(second, CODE.CONTROLLER_ALTER_SYNC_STATE_SET, header, said) == refused, header
            for epoch in (1, 3):
                assert (await first.alter({1}, 1, epoch)).code == code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
            for asked, expected in (
                (apply(CLUSTER, "a", 1, "a-1:1;1"), code.SUCCESS),  # replayed by its owner: the same answer
                (apply(CLUSTER, "a", 1, "a-2:1;1"), code.CONTROLLER_BROKER_ID_INVALID),
                (apply(CLUSTER, "a", 2, "a-1:1;1"), code.CONTROLLER_BROKER_ID_INVALID),
                (apply(CLUSTER, "a", 9, "a-9:1;1"), code.CONTROLLER_BROKER_ID_INVALID),
                (apply(CLUSTER, "a", 3, "no address;1\n"), INVALID),
                (apply(CLUSTER, "a", 3, "a#1:1;1"), INVALID),
            ):
                assert await refusal(second, CODE.CONTROLLER_APPLY_BROKER_ID, asked) == expected, asked
            for unknown in (0, 3, -5):
                assert await refusal(second, CODE.CONTROLLER_ELECT_MASTER, headers.ElectMasterRequest(
                    CLUSTER, "a", unknown)) == code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
                assert await refusal(second, CODE.CONTROLLER_REGISTER_BROKER, headers.RegisterBrokerToControllerRequest(
                    CLUSTER, "a", unknown, "h:1")) == code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


async def test_brokers_older_than_the_protocol(autojump_clock: MockClock) -> None:
    """Releases 5.0.x know no ids: they name brokers by address."""
    async with world(count=1) as made:
        await group_of(made, "a", 2)
        by_address = {"clusterName": CLUSTER, "brokerName": "a", "brokerAddress": "a-1:1", "masterAddress": "a-1:1",
                      "masterEpoch": "1", "epoch": "1", "maxOffset": "9", "electionPriority": "1",
                      "heartbeatTimeoutMills": "10000"}
        async with Unmoved(made):
            for code, body, field in (
                (CODE.CONTROLLER_ALTER_SYNC_STATE_SET, b'{"syncStateSet":["a-1:1"],"syncStateSetEpoch":2}',
                 "masterBrokerId"),
                (CODE.CONTROLLER_ELECT_MASTER, b"", "brokerId"), (CODE.CONTROLLER_REGISTER_BROKER, b"", "brokerId"),
            ):
                answer = await send(made, "n0", code, by_address, body)
                assert answer.code == INVALID and f"{field} is missing" in str(answer.remark), answer
            beat = {"clusterName": CLUSTER, "brokerAddr": "a-1:1", "brokerName": "a", "epoch": "1"}
            answer = await send(made, "n0", CODE.BROKER_HEARTBEAT, beat)
            assert answer.code == INVALID == 2005 and "brokerId" in str(answer.remark)


async def test_floods_of_strangers_are_bounded_and_forgotten(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, *_ = await group_of(made, "a", 2)
        cores = [running.core for running in made.running.values()]
        for core in cores:
            core.active.liveness._max = 300
        async with Unmoved(made):
            for name in made.names:
                for number in range(400):
                    ext = {**WHOLE[904][0].to_ext(), "brokerName": f"z{number % 40}", "brokerId": str(number)}
                    assert (await send(made, name, CODE.BROKER_HEARTBEAT, ext)).code == 0
            for core in cores:
                assert len(core.active.liveness) <= 302
                assert core.active.liveness.refused == 102
            await first.beat()
            assert (await made.master_of("a")).master_broker_id == 1
            held = [connection for running in made.running.values() for connection in running.server.connections]
            assert all(set(connection.identity or ()) <= {"a"} for connection in held)  # type: ignore[call-overload]
            await made.network.drop("client")
            await trio.sleep(1)
            assert all(len(core.active.liveness) == 2 for core in cores)


async def test_strangers_in_one_group_leave_room_for_its_election(autojump_clock: MockClock) -> None:
    async with world(count=1) as made:
        first, *_ = await group_of(made, "a", 2)
        for number in range(3, 2_000):
            ext = {**WHOLE[904][0].to_ext(), "brokerName": "a", "brokerId": str(2**62 + number)}
            await send(made, "n0", CODE.BROKER_HEARTBEAT, ext)
        await first.kill()
        assert (await made.wait_master("a", 2)).master_epoch == 2


# --- peers that are none -------------------------------------------------------------------------------------


async def failed_start(made: World, name: str, **more: str) -> str:
    """What the controller said when it would not start."""
    said: list[str] = []
    try:
        with trio.fail_after(60):
            async with trio.open_nursery() as made.nursery:
                await made.start(name, **more)
    except* (ConfigError, RaftError) as failures:
        found: BaseException = failures
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        said.append(str(found))
    (one,) = said
    return one


@pytest.mark.parametrize(("more", "words"), [
    ({"controllerDLegerGroup": "other"}, "is a controller of group g; this one is of group other"),
    ({"controllerDLegerPeers": "n0-n0:1;n1-elsewhere:1;n9-n9:1"}, ""),
    ({"controllerDLegerPeers": "n0-n1:1;n9-n9:1"}, "has n0 at n0:1, not at n1:1"),
    ({"controllerDLegerPeers": "n0-n0:1;n9-n2:1"}, "has n2 at n2:1; here that is n9"),
    ({"controllerDLegerSelfId": "n1", "controllerDLegerPeers": "n0-n0:1;n1-n9:1"}, "has n1 at n1:1, not at n9:1"),
])
async def test_a_configuration_with_foreign_peers(
    autojump_clock: MockClock, more: dict[str, str], words: str,
) -> None:
    async with world() as made:
        listening = dict(made.network.listeners)
        async with Unmoved(made):
            if words:
                said = await failed_start(made, "n9", **more)
                assert said.startswith("controllerDLegerPeers = n") and words in said, said
                made.network.listeners.update(listening)
            else:  # a peer that is not there disagrees with nobody; this one waits to be added
                await made.start("n9", **more)
                await trio.sleep(30)
                del made.running["n9"]


async def test_a_peer_that_is_no_controller(autojump_clock: MockClock) -> None:
    async with world(count=1) as made:
        broker = await made.broker("a", 1)
        said = await failed_start(made, "n9", controllerDLegerPeers=f"n0-{broker.address};n9-n9:1")
        assert "is no controller of this kind" in said


async def test_groups_of_different_names_never_mix(autojump_clock: MockClock) -> None:
    """Both start at once, so nobody can ask the other first: raft's own greeting refuses them."""
    async with world(count=1, late=0) as made:
        async with Unmoved(made):
            made.names = ["n0"]
            made.network.listeners["hidden"] = made.network.listeners.pop("n0:1")
            await made.start("n5", controllerDLegerGroup="other", controllerDLegerPeers="n0-n0:1;n5-n5:1")
            made.network.listeners["n0:1"] = made.network.listeners.pop("hidden")
            await trio.sleep(30)
            stranger = made.running.pop("n5").core
            assert not stranger.active.active
            said = stranger.node.explain()
            assert any("group" in line or "cluster" in line for line in said), said


# --- bytes ---------------------------------------------------------------------------------------------------


def golden_frames() -> list[bytes]:
    """Every frame of a code that a controller serves, but those that rightly make a new group."""
    frames = []
    for path in sorted(GOLDEN.glob("*/*.ndjson")):
        code = int(path.name.partition("-")[0])
        if code in WHOLE and code != CODE.CONTROLLER_APPLY_BROKER_ID:
            frames += [bytes.fromhex(json.loads(line)["frame"]) for line in path.read_text("utf-8").splitlines()]
    return frames


def garbage(rng: Random, frames: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(frames))
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.randrange(1, 200))
        case 1:
            return bytes(frame[: rng.randrange(1, len(frame))])
        case 2:
            return struct.pack(">i", rng.choice([-1, 0, 1, 3, 4, 1 << 24, 1 << 25, 2**31 - 1])) + rng.randbytes(20)
        case 3:
            return struct.pack(">ii", 60, rng.choice([0, 1]) << 24 | rng.randrange(200)) + rng.randbytes(56)
        case 4:
            return rng.choice([MAGIC, b"\x80", b"\xff", MAGIC + b"\x01"]) + rng.randbytes(rng.randrange(200))
        case 5:
            return b"\x16\x03\x01" + rng.randbytes(rng.randrange(300))
        case 6:
            return rng.choice([b"PROXY ", b"GET / HTTP/1.1\r\n\r\n", b"\r\n\r\n\0\r\nQUIT\n"]) + rng.randbytes(150)
        case _:
            for _ in range(rng.randrange(1, 6)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            return bytes(frame)


async def test_any_bytes_on_the_port(autojump_clock: MockClock) -> None:
    rng, frames = Random(4), golden_frames()
    assert len(frames) > 50
    async with world() as made:
        await group_of(made, "a", 2)
        async with Unmoved(made) as unmoved:
            connect: Any = made.network.connector("stranger")
            streams = []
            for number in range(600):
                stream = await connect(f"{rng.choice(made.names)}:1")
                data = garbage(rng, frames)
                with trio.move_on_after(1):
                    await stream.send_all(data)
                streams.append(stream)
                if not number % 50:
                    await trio.testing.wait_all_tasks_blocked()
                    unmoved.check(data)
            await trio.sleep(150)  # longer than any of them may be idle
            for stream in streams:
                await trio.aclose_forcefully(stream)
        for running in made.running.values():
            counters = running.server.counters
            assert counters.bad_frames > 10 and counters.unknown_protocol > 10 and counters.handed_over > 10
            assert counters.idle > 3, "half frames"
            assert all("stranger" not in connection.peer for connection in running.server.connections)


@given(asked=st.lists(st.tuples(
    st.sampled_from(sorted(WHOLE)) | st.integers(-2**15, 2**15 - 1),
    st.dictionaries(
        st.sampled_from(sorted({wire for header, _ in WHOLE.values() for wire in header.to_ext()}))
        | st.text(max_size=5),
        st.sampled_from(["a", "b", CLUSTER, "1", "2", "3", "-1", "0", "true", "a-1:1;1", str(2**63), "", "1;2"])
        | st.text(max_size=9) | st.integers().map(str), max_size=9),
    st.sampled_from([b"", IN_SYNC, b"[]", b"{}", b'["a"]', b"a=b"]) | st.binary(max_size=30),
    st.integers(0, 2), st.booleans()), min_size=20, max_size=60))
@settings(
    max_examples=8, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_requests_at_all(asked: list[tuple[int, dict[str, str], bytes, int, bool]]) -> None:
    """What they ask may even make sense: then it may be done, the same on all controllers."""
    async def run() -> None:
        async with world() as made:
            await group_of(made, "a", 2)
            before = await made.master_of("a")
            for code, ext, body, number, oneway in asked:
                command = Command(code, flag=ONEWAY if oneway else 0, ext=ext, body=body)
                assert made.client is not None
                if oneway:
                    await made.client.send_oneway(f"n{number}:1", command)
                else:
                    answer = await made.client.call(f"n{number}:1", command)
                    assert not answer.code or answer.remark, (command, answer)
            await trio.sleep(1)
            assert len({running.core.machine.state_hash() for running in made.running.values()}) == 1
            assert not any(running.server.counters.failed for running in made.running.values())
            after = await made.master_of("a")
            assert after.master_epoch >= before.master_epoch

    trio.run(run, clock=MockClock(autojump_threshold=0))


# --- a process and sockets -----------------------------------------------------------------------------------


def resident_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/status").read_text(encoding="ascii").split("VmRSS:")
    return int(fields[1].split()[0]) / 1024


def flood(address: tuple[str, int], rng: Random, frames: list[bytes]) -> None:
    """Garbage, lengths that lie, and thousands of strangers."""
    for _ in range(150):
        with socket.create_connection(address, PATIENCE_S) as stream:
            stream.sendall(garbage(rng, frames))
    with ExitStack() as open_:
        for _ in range(20):  # 16 MiB each, of which they bring 1
            stream = open_.enter_context(socket.create_connection(address, PATIENCE_S))
            stream.sendall(struct.pack(">ii", (16 << 20) - 4, 100) + bytes(1 << 20))
        stream = open_.enter_context(socket.create_connection(address, PATIENCE_S))
        beats = ({**WHOLE[904][0].to_ext(), "brokerName": f"{'z' * 200}{number}"} for number in range(5_000))
        stream.sendall(b"".join(encode(Command(904, 1, ONEWAY, ext, encoding=Encoding.ROCKETMQ)) for ext in beats))
        stream.sendall(encode(Command(1005, 1, 0)) + encode(Command(1001, 2, 0, {"brokerName": LONG}, b"[" * 100_000)))
        reader, got = FrameReader(), 0
        while got < 2:
            data = stream.recv(1 << 16)
            assert data
            got += sum(1 for _ in reader.feed(data))


def test_a_process_lives_through_it_in_bounded_memory(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        keys = {"controllerDLegerGroup": "g", "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
                "controllerDLegerSelfId": "n0", "controllerStorePath": f"{tmp_path}/store", "bindAddress": "127.0.0.1"}
        with subprocess.Popen(
            [sys.executable, "-c", "import sys; from controller.cli import main; sys.exit(main())",
             "--log-level", "error", *(word for key, value in keys.items() for word in ("-D", f"{key}={value}"))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert "boot success" in process.stdout.readline()
                rng, frames, sizes = Random(5), golden_frames(), []
                for _ in range(4):
                    flood(("127.0.0.1", port), rng, frames)
                    sizes.append(resident_mb(process.pid))
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=30)
            finally:
                process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert sizes[-1] - sizes[0] < 24, sizes
    assert max(sizes) < 256, sizes
    assert not math.isnan(sizes[0])
