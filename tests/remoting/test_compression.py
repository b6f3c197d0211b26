"""Compressed bodies: ours and Java's come back, a bomb does not go off, and what is missing or damaged is named."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame as lz4_frame

from remoting.compression import Compression, compress, expand, flag_of
from remoting.errors import CompressionMissing, MessageIllegal

MIB = 1 << 20


@given(st.binary(max_size=5_000), st.sampled_from(Compression))
def test_bodies_come_back(body: bytes, compression: Compression) -> None:
    assert expand(compress(body, compression), flag_of(compression), MIB) == body


def test_bodies_of_java_come_back_too() -> None:
    body = b"x" * 100_000
    assert expand(zlib.compress(body), 0x1, MIB) == body, "an old producer, which says nothing of the kind"
    assert expand(lz4_frame.compress(body), 0x101, MIB) == body
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(body)
    assert expand(sizeless, 0x201, MIB) == body
    assert expand(body, 0, 10) is body, "what is not compressed is not looked at"


@pytest.mark.parametrize("compression", Compression)
def test_a_bomb_is_not_expanded(compression: Compression) -> None:
    bomb = compress(bytes(64 * MIB), compression)
    assert len(bomb) < MIB
    with pytest.raises(MessageIllegal, match="expands to more than 1048576"):
        expand(bomb, flag_of(compression), MIB)


@pytest.mark.parametrize("compression", Compression)
def test_damage_is_said_to_be_damage(compression: Compression) -> None:
    damaged = b"no such thing" + compress(b"x" * 1_000, compression)
    with pytest.raises(MessageIllegal, match="cannot be expanded"):
        expand(damaged, flag_of(compression), MIB)
    with pytest.raises(MessageIllegal, match="compression 5"):
        expand(b"", 1 | 5 << 8, MIB)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZLIB])
def test_a_body_that_is_cut_off_is_no_body(compression: Compression) -> None:
    with pytest.raises(MessageIllegal, match="cut off"):
        expand(compress(Random(1).randbytes(1_000), compression)[:-9], flag_of(compression), MIB)


@pytest.mark.parametrize(("compression", "library"), [(Compression.LZ4, "lz4"), (Compression.ZSTD, "zstandard")])
def test_a_missing_library_is_named_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, compression: Compression, library: str,
) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("remoting.compression.import_module", missing)
    words = rf"{library}.*quorate\[client-compression\]"
    with pytest.raises(CompressionMissing, match=words):
        compress(b"x", compression)
    with pytest.raises(CompressionMissing, match=words):
        expand(b"x", flag_of(compression), MIB)
    assert expand(compress(b"x", Compression.ZLIB), flag_of(Compression.ZLIB), MIB) == b"x"
