"""Compressed bodies: what Java producers send above a size, and what ours send likewise.

zlib comes with Python; lz4 (frame format) and zstd need a library each, which is asked for when the first such body
comes. Expanding is bounded: a few bytes may claim to be gigabytes. It knows bodies alone. Source: ``Lz4Compressor``,
``ZstdCompressor`` and ``ZlibCompressor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from remoting.errors import CompressionMissing, MessageIllegal
from remoting.record import COMPRESSED, COMPRESSION_SHIFT

_MASK: Final = 7


class Compression(IntEnum):
    """Numbers of the three bits in the system flag; 0 there is an old producer's zlib."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def flag_of(compression: Compression) -> int:
    """The bits of the system flag that say so."""
    return COMPRESSED | compression << COMPRESSION_SHIFT


def compress(body: bytes, compression: Compression, level: int = 5) -> bytes:
    """Raises ``CompressionMissing`` where the library is not installed."""
    if compression is Compression.ZLIB:
        return zlib.compress(body, level)
    if compression is Compression.LZ4:
        return bytes(_library("lz4.frame", compression).compress(body))
    return bytes(_library("zstandard", compression).ZstdCompressor(level=level).compress(body))


def expand(body: bytes, sys_flag: int, bytes_max: int) -> bytes:
    """The body as it was sent; itself, where the flag says that it is not compressed.

    Raises ``CompressionMissing``, and ``MessageIllegal`` for a body that is damaged or expands to more than
    ``bytes_max``.
    """
    if not sys_flag & COMPRESSED:
        return body
    number = sys_flag >> COMPRESSION_SHIFT & _MASK
    try:
        compression = Compression(number or Compression.ZLIB)
    except ValueError:
        raise MessageIllegal(f"compression {number}: only 0 and 3 (zlib), 1 (lz4) and 2 (zstd) are known") from None
    expander, errors = _expander(compression)
    try:
        found = expander(body, bytes_max + 1)
    except errors as error:
        raise MessageIllegal(f"a {compression.name} body of {len(body)} bytes cannot be expanded: {error}") from None
    if len(found) > bytes_max:
        raise MessageIllegal(f"a {compression.name} body of {len(body)} bytes expands to more than {bytes_max}")
    return bytes(found)


def _expander(compression: Compression) -> tuple[Any, tuple[type[Exception], ...]]:
    """A function of (body, most bytes wanted), and what it raises for a body that is none."""
    if compression is Compression.ZLIB:
        return _expand_zlib, (zlib.error, EOFError)
    library = _library("lz4.frame" if compression is Compression.LZ4 else "zstandard", compression)
    if compression is Compression.LZ4:
        def expand_lz4(body: bytes, bytes_max: int) -> bytes:
            whole = library.LZ4FrameDecompressor()
            return _whole(whole.decompress(body, max_length=bytes_max), whole.eof, bytes_max)

        return expand_lz4, (RuntimeError, EOFError)

    def expand_zstd(body: bytes, bytes_max: int) -> bytes:
        # Java's stream writes no size into the frame: read it piece by piece.
        with library.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body) as reader:
            pieces, left = [], bytes_max
            while left and (piece := reader.read(min(left, 1 << 20))):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)

    return expand_zstd, (library.ZstdError,)


def _expand_zlib(body: bytes, bytes_max: int) -> bytes:
    whole = zlib.decompressobj()
    return _whole(whole.decompress(body, bytes_max), whole.eof, bytes_max)


def _whole(found: bytes, at_end: bool, bytes_max: int) -> bytes:
    if not at_end and len(found) < bytes_max:
        raise EOFError("it is cut off")
    return found


def _library(name: str, compression: Compression) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise CompressionMissing(compression.name, name.partition(".")[0]) from None
