"""Transports against each other over memory streams, on virtual time.

What a node can rely on: messages arrive in order per lane, nothing a stranger sends does more than close its own
connection, every refusal has words at both ends, and a lost connection comes back by itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import pairwise
from random import Random

import attrs
import pytest
import trio
from google_crc32c import value as crc32c
from trio.abc import Stream
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from raft import wire
from raft.errors import ConfigError, UsageError
from raft.handshake import greet, read_greeting, split_address
from raft.hello import Hello, HelloRefusal, Lane, Ping, encode_greeting
from raft.messages import Append, ReadRequest, Vote
from raft.status import RefusalKind
from raft.transport import HEARD_MAX, Transport, TransportLimits
from tests.raft.transports import ADDRESSES, CONFIG, Net, Node, append, hello_of, network, settle, vote

# --- messages ------------------------------------------------------------------------------------------------


async def test_messages_arrive_once_and_in_order(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        n0.say("n1", *[vote(term) for term in range(1, 51)])
        n0.say("n1", *[append(index) for index in range(1, 51)])
        n1.say("n0", ReadRequest(1, 1, 7))
        await settle()
        assert [m.term for _, m in n1.got if isinstance(m, Vote)] == list(range(1, 51))
        assert [m.frames[0].first for _, m in n1.got if isinstance(m, Append)] == list(range(1, 51))
        assert n0.got == [("n1", ReadRequest(1, 1, 7))]
        assert {peer for peer, _ in n1.got} == {"n0"}
        assert n1.transport.counters.messages_received == 100 == n0.transport.counters.messages_sent
        assert n0.transport.counters.bytes_sent == n1.transport.counters.bytes_received


async def test_one_batch_end_for_all_messages_of_one_receive(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1")
        await settle()
        n1.batches.clear()
        n0.say("n1", vote(1), vote(2), vote(3))
        await settle()
        assert n1.batches == [3]


async def test_both_ends_learn_who_the_other_is(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        assert set(n0.identified) == {("n1", hello_of("n1").incarnation)}
        assert set(n1.identified) == {("n0", hello_of("n0").incarnation)}
        assert n0.transport.connected("n1") and not n0.transport.connected("n2")


async def test_callbacks_may_send_and_flush(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        n1.transport._on_identify = lambda peer, _: n1.say(peer, vote(9))
        n1.transport._on_message = lambda peer, _: n1.say(peer, ReadRequest(1, 1, 1))
        await settle()
        assert ("n1", vote(9)) in n0.got, "sent while the lane to n0 was still being made"
        n0.say("n1", vote(1))
        await settle()
        assert ("n1", ReadRequest(1, 1, 1)) in n0.got


# --- lanes and limits ----------------------------------------------------------------------------------------


async def blocked_bulk(net: Net) -> Callable[[], None]:
    """From now on no byte of a bulk lane passes; returns what lets them pass."""
    gate = trio.Event()
    real = net.connect
    lanes: list[int] = []

    async def connect(address: str) -> Stream:
        stream = await real(address)
        assert isinstance(stream, trio.StapledStream)
        send, kind = stream.send_stream.send_all, len(lanes)
        lanes.append(kind)

        async def send_all(data: bytes) -> None:
            if data[:4] != b"\xa7QRh" and data[2] == 1 and len(data) > wire.HEADER_BYTES:
                await gate.wait()
            await send(data)

        stream.send_stream.send_all = send_all
        return stream

    net.connect = connect  # type: ignore[method-assign]
    return gate.set


async def test_control_passes_while_bulk_is_stuck(autojump_clock: MockClock) -> None:
    async with network() as net:
        release = await blocked_bulk(net)
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        n0.say("n1", *[append(index, 100_000) for index in range(1, 101)])
        n0.say("n1", vote(5))
        await settle()
        assert n1.got == [("n0", vote(5))]
        release()
        await settle()
        assert len(n1.got) == 101


async def test_a_full_queue_drops_counts_and_asks_for_a_probe(autojump_clock: MockClock) -> None:
    async with network() as net:
        release = await blocked_bulk(net)
        limits = TransportLimits(queue_bytes_max=1_000_000)
        n0, n1 = await net.start("n0", "n1", limits=limits), await net.start("n1", "n0")
        await settle()
        n0.say("n1", append(1, 200_000))
        await settle()
        n0.say("n1", *[append(index, 100_000) for index in range(2, 30)])
        assert n0.transport.counters.dropped_full == 28 - 9
        n0.say("n1", vote(2))
        await settle()
        assert n1.got == [("n0", vote(2))]
        assert n0.unreachable == []
        release()
        await settle()
        assert n0.unreachable == ["n1"]
        assert [m.frames[0].first for _, m in n1.got if isinstance(m, Append)] == list(range(1, 11))


async def test_what_no_one_can_take_is_dropped_and_counted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with network() as net:
        small = attrs.evolve(
            CONFIG, message_bytes_max=100_000, append_bytes_max=50_000, frame_bytes_max=50_000, entry_bytes_max=50_000,
            snapshot_chunk_bytes=50_000,
        )
        n0 = await net.start("n0", "n1", config=small)
        n0.say("n1", vote())
        n0.say("n3", vote())
        n0.say("n0", vote())
        await settle()
        assert n0.transport.counters.dropped_unknown_peer == 2
        await net.start("n1")
        await trio.sleep(2)
        n0.say("n1", append(1, 200_000))
        assert n0.transport.counters.dropped_too_large == 1
        assert "exceeds message_bytes_max=100000" in caplog.text


async def test_nothing_is_kept_for_a_peer_that_is_away(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1")
        await trio.sleep(10.3)
        n0.say("n1", vote(1))
        assert n0.transport.counters.dropped_unconnected == 1
        n1 = await net.start("n1", "n0")
        await trio.sleep(2)
        assert n1.got == []
        n0.say("n1", vote(2))
        await settle()
        assert n1.got == [("n0", vote(2))]


async def test_a_message_beyond_the_limit_closes_the_connection_before_it_is_read(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1")
        stream = await net.dial("n1")
        await greet(stream, hello_of("n2"), bytearray())
        head = bytearray(b"".join(wire.encode(append(1, 100)))[: wire.HEADER_BYTES])
        head[80:84] = (CONFIG.message_bytes_max + 1).to_bytes(4, "little")
        head[84:88] = crc32c(bytes(head[:84])).to_bytes(4, "little")
        await stream.send_all(head)
        assert await stream.receive_some() == b""
        assert n1.transport.counters.malformed == 1
        assert n1.transport._unfinished_bytes == 0


async def test_unfinished_messages_of_all_connections_share_one_limit(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1", limits=TransportLimits(receive_bytes_max=100_000))
        whole = b"".join(wire.encode(append(1, 90_000)))
        streams = []
        for lane in (Lane.CONTROL, Lane.BULK):
            stream = await net.dial("n1")
            await greet(stream, hello_of("n2", lane=lane), bytearray())
            streams.append(stream)
        await streams[0].send_all(whole[:60_000])
        await settle()
        assert n1.transport._unfinished_bytes == 60_000
        await streams[1].send_all(whole[:60_000])
        await settle()
        assert await streams[1].receive_some() == b""
        assert n1.transport._unfinished_bytes == 60_000
        await streams[0].send_all(whole[60_000:])
        await settle()
        assert len(n1.got) == 1 and n1.transport._unfinished_bytes == 0


async def greet_as_client(stream: Stream) -> None:
    await greet(stream, Hello(cluster="", node="", incarnation=b"", lane=Lane.CLIENT), bytearray())


async def test_unfinished_requests_of_clients_count_and_give_way_to_nodes(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1", limits=TransportLimits(receive_bytes_max=100_000))
        small, large, late = [await net.dial("n1") for _ in range(3)]
        for stream in (small, large, late):
            await greet_as_client(stream)
        for stream, size in ((small, b"30000"), (large, b"60000")):
            await stream.send_all(size)
            assert await stream.receive_some() == size
        await late.send_all(b"20000")
        assert await late.receive_some() == b""
        assert n1.transport._unfinished_bytes == 90_000
        whole = b"".join(wire.encode(append(1, 90_000)))
        bulk = await net.dial("n1")
        await greet(bulk, hello_of("n2", lane=Lane.BULK), bytearray())
        await bulk.send_all(whole[:60_000])
        assert await large.receive_some() == b""
        assert n1.transport._unfinished_bytes == 90_000
        await bulk.send_all(whole[60_000:])
        await settle()
        assert len(n1.got) == 1 and n1.transport._unfinished_bytes == 30_000
        await small.send_all(b"still here")
        assert await small.receive_some() == b"STILL HERE"


@pytest.mark.parametrize("held", [0, 10_000], ids=["nothing", "little"])
async def test_a_client_that_holds_nothing_stays_where_nodes_hold_too_much(
    held: int, autojump_clock: MockClock,
) -> None:
    """Nor is one cut off that holds too little to make room: the node is closed anyway."""
    async with network() as net:
        n1 = await net.start("n1", limits=TransportLimits(receive_bytes_max=100_000))
        client = await net.dial("n1")
        await greet_as_client(client)
        await client.send_all(b"%d" % held)
        assert await client.receive_some() == b"%d" % held
        whole = b"".join(wire.encode(append(1, 90_000)))
        streams = []
        for lane in (Lane.CONTROL, Lane.BULK):
            stream = await net.dial("n1")
            await greet(stream, hello_of("n2", lane=lane), bytearray())
            await stream.send_all(whole[:60_000])
            streams.append(stream)
        assert await streams[1].receive_some() == b""
        assert n1.transport._unfinished_bytes == 60_000 + held
        await client.send_all(b"still here")
        assert await client.receive_some() == b"STILL HERE"


async def test_a_damaged_message_that_came_in_parts_leaves_the_limit_as_it_was(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1")
        damaged = bytearray(b"".join(wire.encode(append(1, 90_000))))
        damaged[-1] ^= 1
        stream = await net.dial("n1")
        await greet(stream, hello_of("n2", lane=Lane.BULK), bytearray())
        for part in (damaged[:60_000], damaged[60_000:]):
            await stream.send_all(part)
            await settle()
        assert n1.transport.counters.malformed == 1
        assert n1.transport._unfinished_bytes == 0


async def test_connections_beyond_the_limit_are_closed_at_once(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1", limits=TransportLimits(connections_max=3, hello_timeout_ms=60_000))
        streams = [await net.dial("n1") for _ in range(5)]
        await settle()
        assert n1.transport.counters.accepts_over_limit == 2
        assert await streams[4].receive_some() == b""
        await streams[0].aclose()
        await settle()
        again = await net.dial("n1")
        await greet(again, hello_of("n2"), bytearray())


@pytest.mark.parametrize("silent", [True, False], ids=["who never greet", "clients"])
async def test_a_peer_finds_a_place_when_strangers_have_them_all(silent: bool, autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1", "n2", limits=TransportLimits(connections_max=3, hello_timeout_ms=60_000))
        strangers = [await net.dial("n1") for _ in range(3)]
        for stranger in () if silent else strangers:
            await greet_as_client(stranger)
        await settle()
        waiting = [await net.dial("n1") for _ in range(HEARD_MAX)]
        for lane in (Lane.CONTROL, Lane.BULK):
            peer = await net.dial("n1")
            await greet(peer, hello_of("n2", lane=lane), bytearray())
        assert n1.transport.connected("n2")
        assert await waiting[0].receive_some() == b""  # who had not greeted for longest
        assert n1.transport.counters.accepts_over_limit == 1
        for hello in (hello_of("n3"), Hello(cluster="", node="", incarnation=b"", lane=Lane.CLIENT)):
            late = await net.dial("n1")
            with pytest.raises(trio.BrokenResourceError):
                await greet(late, hello, bytearray())
        assert n1.transport.counters.accepts_over_limit == 3
        await waiting[-1].aclose()
        await settle()
        assert len(n1.transport._heard) == HEARD_MAX - 2
        assert n1.transport._heard.keys() <= n1.transport._inbound


async def test_who_was_heard_without_a_place_takes_one_that_came_free(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1", "n2", limits=TransportLimits(connections_max=1))
        first, second = await net.dial("n1"), await net.dial("n1")
        await settle()
        await first.aclose()
        await settle()
        await greet_as_client(second)
        assert len(n1.clients) == 1


async def test_who_never_greets_is_closed(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1", limits=TransportLimits(hello_timeout_ms=700))
        silent, slow = await net.dial("n1"), await net.dial("n1")
        started = trio.current_time()
        for byte in encode_greeting(hello_of("n2"))[:10]:
            await slow.send_all(bytes([byte]))
            await trio.sleep(0.05)
        assert await slow.receive_some() == b""
        assert await silent.receive_some() == b""
        assert math.isclose(trio.current_time() - started, 0.7)
        assert n1.transport.counters.hello_timeouts == 2
        assert not n1.transport._inbound


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(100), b"\xa7QRh" + bytes(60), b"\xa7\x01\x01",
        encode_greeting(Ping()), encode_greeting(HelloRefusal(RefusalKind.OTHER, "no")),
    ],
    ids=["http", "tls", "zeros", "bad hello", "message", "ping", "refusal"],
)
async def test_a_stranger_closes_only_its_own_connection(autojump_clock: MockClock, junk: bytes) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        stranger = await net.dial("n1")
        await stranger.send_all(junk)
        assert await stranger.receive_some() == b""
        assert n1.transport.counters.malformed == 1
        n0.say("n1", vote())
        await settle()
        assert n1.got == [("n0", vote())]


@pytest.mark.parametrize("seed", range(30))
async def test_damaged_messages_close_only_their_connection(autojump_clock: MockClock, seed: int) -> None:
    rng = Random(seed)
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        stranger = await net.dial("n1")
        await greet(stranger, hello_of("n2"), bytearray())
        data = bytearray(b"".join(wire.encode(append(1, 50))) + wire.encode(vote())[0] * 3)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        await stranger.send_all(data)
        await stranger.send_eof()  # type: ignore[attr-defined]
        await settle()
        assert n1.transport.counters.malformed <= 1
        n0.say("n1", vote(77))
        await settle()
        assert n1.got[-1] == ("n0", vote(77))


async def test_a_stranger_that_breaks_off_at_any_byte_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1")
        data = encode_greeting(hello_of("n2")) + b"".join(wire.encode(append(1)))
        for cut in range(0, len(data), 7):
            stranger = await net.dial("n1")
            await stranger.send_all(data[:cut])
            await stranger.aclose()
            await settle()
            assert not n1.transport._inbound and not n1.transport._peers and not n1.transport._unfinished_bytes


# --- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"cluster": "other"}, RefusalKind.CLUSTER, "cluster 'other'"),
        ({"versions": (2, 2)}, RefusalKind.VERSION, "versions 2 to 2"),
        ({"rules": "dledger"}, RefusalKind.RULES, "'dledger' election rules"),
        ({"node": "n2"}, RefusalKind.IDENTITY, "looked for node 'n1' and found node 'n2'"),
    ],
    ids=str,
)
async def test_a_misfit_is_refused_in_the_same_words_at_both_ends(
    autojump_clock: MockClock, changes: dict[str, object], kind: RefusalKind, words: str
) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1")
        other = await net.start(**{"node": "n1", **changes}, at=ADDRESSES["n1"])  # type: ignore[arg-type]
        await trio.sleep(3)
        seen = n0.transport.refusals["n1"]
        assert seen.kind is kind and words in seen.reason
        (theirs,) = other.transport.refusals.values()
        assert theirs.kind is kind and theirs.peer == "n0" and words in theirs.reason
        assert n0.transport.problem("n1") == seen.reason
        assert n0.transport.counters.refused > 2 < other.transport.counters.refused
        assert not n0.identified and not other.identified
        assert not n0.transport.connected("n1")


async def test_BUG_A4_a_peer_with_our_own_id_is_refused_in_words(autojump_clock: MockClock) -> None:
    async with network() as net:
        n1 = await net.start("n1")
        stranger = await net.dial("n1")
        await stranger.send_all(encode_greeting(hello_of("n1", incarnation=b"x" * 16, address="elsewhere:1")))
        answer = await read_greeting(stranger, bytearray())
        words = "two nodes have the id 'n1': one at 'host1:2', one at 'elsewhere:1'"
        assert answer == HelloRefusal(RefusalKind.IDENTITY, words)
        assert not n1.identified and not n1.transport._peers


async def test_an_address_book_that_points_home_is_noticed(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1")
        net.nodes[ADDRESSES["n1"]] = n0
        await trio.sleep(1)
        assert "reached itself: the address of 'n1' is its own" in n0.transport.refusals["n1"].reason


@pytest.mark.parametrize(("changes", "words"), [
    ({"incarnation": b"z" * 16}, "two nodes share an id, or one was wiped"),
    ({"boot": 12345}, "copied directory"),
], ids=["incarnation", "boot"])
async def test_a_second_node_under_a_connected_id_is_refused_in_words(
    autojump_clock: MockClock, changes: dict[str, object], words: str
) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        double = await net.dial("n0")
        await double.send_all(encode_greeting(attrs.evolve(n1.transport.hello, **changes)))  # type: ignore[arg-type]
        answer = await read_greeting(double, bytearray())
        assert isinstance(answer, HelloRefusal) and words in answer.reason
        assert words in n0.transport.refusals["n1"].reason
        n1.say("n0", vote())
        await settle()
        assert n0.got == [("n1", vote())], "the first one keeps its connection"


async def test_a_second_process_that_greets_while_the_first_is_being_answered_harms_nobody(
    autojump_clock: MockClock,
) -> None:
    async with network() as net:
        n1 = await net.start("n1")
        first, theirs = lockstep_stream_pair()  # what is sent there waits until it is taken
        net.nursery.start_soon(n1.transport.serve_stream, theirs)
        await first.send_all(encode_greeting(hello_of("n2", boot=1)))
        await settle()
        second = await net.dial("n1")
        await second.send_all(encode_greeting(hello_of("n2", boot=2)))
        assert isinstance(await read_greeting(second, bytearray()), HelloRefusal)
        assert isinstance(await read_greeting(first, bytearray()), Hello)
        assert n1.transport.connected("n2")


async def test_a_node_that_comes_back_while_its_old_connection_lingers_gets_in_soon(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0")
        ghost = await net.dial("n0")
        await greet(ghost, hello_of("n1", boot=1), bytearray())
        await trio.aclose_forcefully(ghost.receive_stream)  # type: ignore[attr-defined]
        await settle()
        assert n0.transport.connected("n1"), "the half that n0 reads is still open, as after a power cut"
        n1 = await net.start("n1", "n0")
        await trio.sleep(1)
        assert ("n0", hello_of("n0").incarnation) in n1.identified
        assert n0.transport.counters.refused >= 1 and "n1" not in n0.transport.refusals
        n1.say("n0", vote())
        await settle()
        assert n0.got == [("n1", vote())]


async def test_dialling_anew_replaces_the_former_connection(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0")
        hello = hello_of("n1", boot=5)
        first, second = await net.dial("n0"), await net.dial("n0")
        await greet(first, hello, bytearray())
        await greet(second, hello, bytearray())
        assert await first.receive_some() == b""
        await second.send_all(wire.encode(vote())[0])
        await settle()
        assert n0.got == [("n1", vote())] and len(n0.transport._inbound) == 1


async def test_made_up_names_do_not_fill_the_memory_of_refusals(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0")
        for number in range(100):
            stranger = await net.dial("n0")
            await stranger.send_all(encode_greeting(hello_of(f"x{number}", cluster="other")))
            await read_greeting(stranger, bytearray())
            await stranger.aclose()
        await settle()
        assert len(n0.transport.refusals) == 64 and "x99" in n0.transport.refusals


async def test_refusals_are_logged_once_per_reason(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with network() as net:
        n0 = await net.start("n0", "n1")
        await net.start("n1", cluster="other")
        await trio.sleep(20)
        assert n0.transport.counters.refused > 10
        assert sum("handshake with n1" in record.getMessage() for record in caplog.records) == 1


# --- coming and going ----------------------------------------------------------------------------------------


async def test_lost_connections_come_back_and_the_driver_hears_of_it(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        for term in range(1, 6):
            heard = n0.unreachable.count("n1")
            await net.cut()
            await settle()
            assert n0.unreachable.count("n1") > heard
            await trio.sleep(3)
            n0.say("n1", vote(term))
            n1.say("n0", vote(term))
            await settle()
            assert n1.got[-1] == ("n0", vote(term))
            assert n0.got[-1] == ("n1", vote(term))


@pytest.mark.parametrize("name", ["a\nb", "n" * 256])
async def test_a_member_that_no_hello_can_name_is_not_dialled(autojump_clock: MockClock, name: str) -> None:
    """A membership of before names were checked may hold it. Dialling it ended the process, at each start."""
    async with network() as net:
        node = await net.start("n0")
        await net.start("n1")
        node.transport.set_address(name, "n1")
        node.transport.set_peers([name, "n1"])
        await settle()
        assert node.transport.connected("n1") and not node.transport.connected(name)
        assert "remove it from the membership" in node.transport.problem(name)
        node.transport.send(name, vote(1))
        assert node.transport.counters.dropped_unconnected == 1


async def test_attempts_back_off_with_jitter_up_to_the_limit(autojump_clock: MockClock) -> None:
    async with network() as net:
        await net.start("n0", "n1", limits=TransportLimits(backoff_min_ms=10, backoff_max_ms=1000))
        await trio.sleep(60)
        times = [at for at, _ in net.dials]
        lane = times[::2]
        gaps = [after - before for before, after in pairwise(lane)]
        assert all(0.004 < gap <= 1.0 for gap in gaps)
        assert gaps[0] <= 0.01 and gaps[-1] >= 0.4
        assert 120 <= len(times) <= 300
        assert len({round(gap, 6) for gap in gaps[-20:]}) > 10, "jitter"


async def test_a_peer_that_dials_us_is_dialled_at_once(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1", limits=TransportLimits(backoff_min_ms=100_000, backoff_max_ms=100_000))
        await settle()
        dials = len(net.dials)
        await net.start("n1", "n0")
        await settle()
        assert {address for _, address in net.dials[dials:]} == {ADDRESSES["n0"], ADDRESSES["n1"]}
        n0.say("n1", vote())
        await settle()
        assert n0.transport.counters.dropped_unconnected == 0


async def test_connect_soon_does_not_wait(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1", limits=TransportLimits(backoff_min_ms=100_000, backoff_max_ms=100_000))
        await settle()
        n1 = await net.start("n1")
        n0.transport.connect_soon("n1")
        await settle()
        n0.say("n1", vote())
        await settle()
        assert n1.got == [("n0", vote())]


async def test_a_peer_that_moved_is_found_by_a_new_address_or_by_its_own_word(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1")
        n1 = await net.start("n1", at="moved:1")
        await trio.sleep(5)
        assert not n0.transport.connected("n1")
        n0.transport.set_address("n1", "moved:1")
        await settle()
        n0.say("n1", vote(1))
        await settle()
        assert n1.got == [("n0", vote(1))]
        net.scopes["n1"].cancel()
        del net.nodes["moved:1"]
        await settle()
        again = await net.start("n1", "n0", at="moved:2", address="moved:2")
        await trio.sleep(5)
        n0.say("n1", vote(2))
        await settle()
        assert again.got == [("n0", vote(2))]


async def test_a_guest_can_be_answered_as_long_as_it_stays(autojump_clock: MockClock) -> None:
    """A joiner is not in the leader's address book, nor the leader in the joiner's membership: both must talk."""
    async with network() as net:
        n0 = await net.start("n0")
        n1 = await net.start("n1", "n0")
        await settle()
        n0.say("n1", vote(3))
        await settle()
        assert n1.got == [("n0", vote(3))]
        n1.transport.set_peers([])
        net.stop("n1")
        await settle()
        assert not n0.transport._peers
        n0.say("n1", vote(4))
        assert n0.transport.counters.dropped_unknown_peer == 1


async def test_peers_come_and_go_at_run_time(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1, n2 = await net.start("n0"), await net.start("n1"), await net.start("n2")
        for members in (["n0", "n1"], ["n0", "n2"], ["n1", "n2"], []):
            n0.transport.set_peers(members)
            await settle()
            others = set(members) - {"n0"}
            assert all(n0.transport.connected(node) for node in others), "at once"
            await trio.sleep(40)
            assert {node for node in ("n1", "n2") if n0.transport.connected(node)} == others, "and no others later"
            assert {name for name, node in (("n1", n1), ("n2", n2)) if node.transport.connected("n0")} == others
        assert not n0.transport._peers and not n1.transport._peers and not n2.transport._peers


async def test_a_guest_in_traffic_stays_and_an_idle_one_is_dialled_again_when_needed(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0"), await net.start("n1", "n0")
        for _ in range(10):
            await trio.sleep(6)
            n1.say("n0", vote())
        dialled = n0.transport.counters.dialled
        await trio.sleep(60)
        assert n0.transport._peers["n1"].dialling is None
        n0.say("n1", vote(5))
        await settle()
        assert n1.got == [("n0", vote(5))]
        assert n0.transport.counters.dialled == dialled + 2


async def test_peers_and_addresses_may_be_set_before_it_runs(autojump_clock: MockClock) -> None:
    async with network() as net:
        node = Node(net, "n0")
        node.transport.set_peers(["n1"])
        n1 = await net.start("n1")
        net.nursery.start_soon(node.transport.run)
        await settle()
        node.say("n1", vote())
        await settle()
        assert n1.got == [("n0", vote())]


async def test_stopping_ends_every_task_and_both_ends_notice(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0, n1 = await net.start("n0", "n1"), await net.start("n1", "n0")
        await settle()
        n0.say("n1", vote())
        net.stop("n0")
        await settle()
        assert not n0.transport._inbound
        assert n0.transport._nursery is None
        assert not n1.transport.connected("n0")
        assert n1.unreachable.count("n0") >= 2


async def test_a_lane_that_hears_more_than_a_ping_is_given_up(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1")

        async def connect(address: str) -> Stream:
            ours, theirs = memory_stream_pair()
            await theirs.send_all(encode_greeting(hello_of("n1")) + encode_greeting(Ping()) + b"chatter")
            return ours

        n0.transport._connect = connect
        await trio.sleep(3)
        assert n0.identified
        assert "not a raft greeting" in n0.transport.problem("n1")


async def test_a_far_end_that_never_answers_is_given_up(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0", "n1", limits=TransportLimits(connect_timeout_ms=300))
        pairs = []

        async def connect(address: str) -> Stream:
            pairs.append(memory_stream_pair())
            return pairs[-1][0]

        n0.transport._connect = connect
        await trio.sleep(3)
        assert n0.transport.problem("n1") == f"{ADDRESSES['n1']} did not answer within 300 ms"
        assert len(pairs) >= 4


def test_misuse_is_refused_by_name() -> None:
    hello = hello_of("n0")
    with pytest.raises(ConfigError, match="address='nowhere'"):
        Transport(hello, config=CONFIG, rng=Random(1), on_message=lambda *_: None, addresses={"n1": "nowhere"})
    with pytest.raises(ConfigError, match="connections_max=0"):
        TransportLimits(connections_max=0)
    with pytest.raises(ConfigError, match="backoff_min_ms=20"):
        TransportLimits(backoff_max_ms=10)
    for wrong in ("", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "host:²"):
        with pytest.raises(ConfigError):
            split_address(wrong)
    assert split_address("[::1]:7000") == ("::1", 7000)


async def test_it_runs_once_and_serves_only_while_it_runs(autojump_clock: MockClock) -> None:
    async with network() as net:
        node = Node(net, "n0")
        with pytest.raises(UsageError):
            await node.transport.serve_stream(memory_stream_pair()[0])
        net.nursery.start_soon(node.transport.run)
        await settle()
        with pytest.raises(UsageError):
            await node.transport.run()


# --- clients and shared ports --------------------------------------------------------------------------------


async def test_a_client_is_handed_over_after_both_hellos(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0")
        stream = await net.dial("n0")
        client = Hello(cluster="c", node="", incarnation=b"", lane=Lane.CLIENT, expects="n0")
        await stream.send_all(encode_greeting(client) + b"early")
        received = bytearray()
        assert isinstance(await read_greeting(stream, received), Hello)
        await stream.send_all(b"hi")
        assert await stream.receive_some() == b"HI"
        assert n0.clients == [(client, b"early")]
        await stream.aclose()
        await settle()
        assert not n0.transport._inbound and not n0.identified


async def test_clients_are_refused_in_words_where_none_are_served(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0")
        n0.transport._on_client = None
        stream = await net.dial("n0")
        await stream.send_all(encode_greeting(Hello(cluster="", node="", incarnation=b"", lane=Lane.CLIENT)))
        answer = await read_greeting(stream, bytearray())
        assert answer == HelloRefusal(RefusalKind.OTHER, "node 'n0' serves no clients on this port")


async def test_a_server_that_shares_its_port_hands_over_what_it_has_read(autojump_clock: MockClock) -> None:
    async with network() as net:
        n0 = await net.start("n0")
        for taken in (1, 10, 40, None):
            ours, theirs = memory_stream_pair()
            data = encode_greeting(hello_of("n1")) + wire.encode(vote())[0]
            await ours.send_all(data[len(data) if taken is None else taken :])
            n0.got.clear()
            net.nursery.start_soon(n0.transport.serve_stream, theirs, data[:taken])
            await settle()
            assert n0.got == [("n1", vote())]
            await ours.aclose()
            await settle()
