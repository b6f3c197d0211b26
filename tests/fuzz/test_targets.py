"""The fuzz targets pass on what is there, and fail on decoders that break a promise. The long runs are `make fuzz`."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import cbor2
import pytest

from analysis.parsing import rows
from broker.abroad.tickets import Acked
from broker.ha.master import HaMaster
from broker.ha.slave import HaSlave
from broker.plain.slave import SlaveCore
from broker.store.checkpoint import Checkpoint
from broker.store.visible import Visible
from broker.store.writing import Writer
from fuzz import sealing, store_targets
from fuzz.__main__ import _line
from fuzz.targets import TARGETS
from raft import clientwire, frame, hello, wire
from raft.errors import MalformedMessage
from raft.membership import Membership
from raft.messages import Vote
from raft.storage import blocks, catalog, recovery
from remoting import record


def mutated(seed: bytes, rng: Random) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(3):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case _:
                del data[at : at + rng.randrange(1, 9)]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_their_mutations_break_no_promise(name: str) -> None:
    target, rng = TARGETS[name], Random(name)
    seeds = target.seeds()
    assert seeds
    target.check(b"")
    for seed in seeds:
        target.check(seed)
    for _ in range(300):
        target.check(mutated(rng.choice(seeds), rng))


def crash(*_: object, **__: object) -> Any:
    """What no decoder may raise."""
    raise LookupError("boom")


def accepts(call: Callable[[bytes], Any], data: bytes) -> bool:
    try:
        call(data)
    except MalformedMessage:
        return False
    return True


def test_sealed_bytes_pass_the_checksums() -> None:
    """Otherwise the fuzzer would test CRC-32C and nothing behind it."""
    one = frame.build(kind=1, group=1, term=2, first=5, payloads=[b"abc", b"defg"], wall_ms=9, chain=0)
    damaged = bytearray(one.data)
    damaged[50] ^= 1
    damaged[62] ^= 1
    assert not accepts(frame.parse, bytes(damaged))
    assert accepts(frame.parse, sealing.frames(bytes(damaged)))
    vote = bytearray(b"".join(wire.encode(Vote(1, 2, 3, 4, 1))))
    vote[20] ^= 1
    assert not accepts(wire.Decoder(10).feed, bytes(vote))
    assert accepts(wire.Decoder(10).feed, sealing.messages(bytes(vote)))
    assert not isinstance(blocks.check_block(sealing.segment(b"\0\0", 1, 1), 0), str)
    ping = bytearray(hello.encode_greeting(hello.Ping()))
    ping[21] ^= 1
    assert not accepts(hello.decode_greeting, bytes(ping))
    assert accepts(hello.decode_greeting, sealing.greeting(bytes(ping)))


def test_sealed_records_are_read() -> None:
    noise = Random(3).randbytes(900)
    found, end = record.outlines(store_targets.sealed(noise), 0, check_crc=True)
    assert len(found) > 1 and end > 300
    assert not record.outlines(noise, 0)[0]


def test_shaped_keeps_what_it_is_told_to_keep() -> None:
    encoded = Membership(("n0",), (), ("n1",)).encode()
    template = cbor2.loads(encoded)
    assert sealing.shaped(bytes(50), template) == encoded
    assert len({sealing.shaped(Random(seed).randbytes(30), template) for seed in range(50)}) > 25


@pytest.mark.parametrize(
    ("name", "module", "attribute", "broken"),
    [
        ("frame", frame, "parse", crash),
        ("wire", wire.Decoder, "feed", lambda self, data: [Vote(1, 1, 1, 1, 1)]),
        ("greeting", hello, "decode_greeting", lambda data: (hello.Ping(), 0)),
        ("membership", Membership, "decode", crash),
        ("client-request", clientwire, "decode_request", crash),
        ("client-answer", clientwire, "decode_answer", crash),
        ("records", blocks, "parse_local", lambda *args: (1, 2)),
        ("segment", recovery, "check_block", crash),
        ("footer", catalog, "decode_footer", crash),
        ("store-records", record, "outline", crash),
        ("store-batch", record, "encode_batch", lambda messages: b""),
        ("store-directory", Visible, "advance", crash),
        ("store-log", Writer, "put", crash),
        ("store-ledger", Acked, "read", crash),
        ("store-small-files", Checkpoint, "decode", crash),
        ("ha-master", HaMaster, "received", crash),
        ("ha-slave", HaSlave, "received", crash),
        ("ha-plain-slave", SlaveCore, "received", crash),
        ("segment-rows", rows, "_entry_batches", crash),
    ],
)
def test_a_decoder_that_breaks_its_promise_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, module: Any, attribute: str, broken: Any
) -> None:
    seeds = TARGETS[name].seeds()
    monkeypatch.setattr(module, attribute, broken)

    def check_all() -> None:
        for seed in seeds:
            TARGETS[name].check(seed)

    with pytest.raises(Exception):  # noqa: B017  # whatever it is, it is not swallowed
        check_all()


def test_one_input_runs_again_without_the_engine() -> None:
    encoded = base64.b64encode(TARGETS["wire"].seeds()[1]).decode()
    command = [sys.executable, "-m", "fuzz", "--target", "wire", "--input", encoded]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_a_line_tells_of_success_and_of_failure() -> None:
    good = "#5 DONE cov: 217 ft: 9 corp: 12/9b\nstat::number_of_executed_units: 1000\nstat::peak_rss_mb: 52\n"
    line = _line("wire", "x", subprocess.CompletedProcess([], 0, "", good), 2.0)
    assert line["ok"] is True and "error" not in line
    assert (line["executions"], line["per_second"], line["peak_rss_mb"]) == (1000, 500, 52)
    assert (line["coverage"], line["corpus"]) == (217, 12)
    bad = _line("wire", "x", subprocess.CompletedProcess([], 77, "", good + "Traceback: boom"), 2.0)
    assert bad["ok"] is False and bad["error"] == "Traceback: boom"
    assert _line("wire", "x", subprocess.CompletedProcess([], 0, "", ""), 2.0)["ok"] is False, "nothing ran"
