"""First bytes: what each says, PROXY headers of both versions, and that chunking never changes the decision."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.address import join_address, split_address
from remoting.errors import FrameError
from remoting.sniff import SNIFF_BYTES_MAX, Found, Spoken, sniff

V2 = b"\r\n\r\n\0\r\nQUIT\n"


def v2(family: int, addresses: bytes, *, command: int = 0x21) -> bytes:
    return V2 + struct.pack("!BBH", command, family, len(addresses)) + addresses


V4 = ipaddress.ip_address("10.1.2.3").packed + ipaddress.ip_address("10.9.9.9").packed + struct.pack("!HH", 4711, 9876)
V6 = ipaddress.ip_address("fe80::1").packed + ipaddress.ip_address("fe80::2").packed + struct.pack("!HH", 4711, 9876)

HEADERS = {
    b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 9876\r\n": "10.1.2.3:4711",
    b"PROXY TCP6 fe80::1 fe80::2 4711 9876\r\n": "[fe80::1]:4711",
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n": None,
    v2(0x11, V4): "10.1.2.3:4711",
    v2(0x11, V4 + b"\x04\x00\x03abc"): "10.1.2.3:4711",
    v2(0x21, V6): "[fe80::1]:4711",
    v2(0x31, bytes(216)): None,
    v2(0x11, V4, command=0x20): None,
    v2(0x00, b""): None,
}


def test_the_first_byte_decides() -> None:
    for first in range(256):
        data = bytes([first]) + b"rest"
        if first <= 1:
            assert sniff(data) == Found(Spoken.REMOTING)
        elif first == 0x16:
            assert sniff(data) == Found(Spoken.TLS)
        elif first >= 0x80:
            assert sniff(data) == Found(Spoken.OTHER)
        else:
            with pytest.raises(FrameError, match=f"0x{first:02x}"):
                sniff(data)
    assert sniff(b"") is None


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(("first", "spoken"), [(0, Spoken.REMOTING), (0x16, Spoken.TLS), (0x99, Spoken.OTHER)])
def test_a_proxy_header_is_waited_for_byte_by_byte(header: bytes, first: int, spoken: Spoken) -> None:
    for size in range(len(header) + 1):
        assert sniff(header[:size], proxy=True) is None
    data = header + bytes([first]) + b"more"
    assert sniff(data, proxy=True) == Found(spoken, len(header), HEADERS[header])
    with pytest.raises(FrameError):
        sniff(data)


@pytest.mark.parametrize(("data", "words"), [
    (b"PROXI TCP4", "neither a frame nor a PROXY header"),
    (b"PUT / HTTP/1.1\r\n", "neither a frame nor a PROXY header"),
    (b"PROXY " + b"x" * 101, "without end within 107 bytes"),
    (b"PROXY TCP4 10.1.2.3 10.9.9.9 4711\r\n", "makes no sense"),
    (b"PROXY TCP4 10.1.2.300 10.9.9.9 4711 1\r\n", "makes no sense"),
    (b"PROXY TCP4 10.1.2.3 10.9.9.9 70000 1\r\n", "makes no sense"),
    (b"PROXY TCP4 10.1.2.3 10.9.9.9 -1 1\r\n", "makes no sense"),
    (b"PROXY TCP5 10.1.2.3 10.9.9.9 1 1\r\n", "makes no sense"),
    (b"PROXY TCP4 \xff\xff 10.9.9.9 1 1\r\n", "makes no sense"),
    (b"PROXY \r\n", "makes no sense"),
    (v2(0x11, V4, command=0x11), "version and command 0x11"),
    (v2(0x11, V4, command=0x22), "version and command 0x22"),
    (v2(0x11, V4[:-1]), "11 bytes of addresses; 12 were due"),
    (v2(0x21, V4), "12 bytes of addresses; 36 were due"),
    (V2 + struct.pack("!BBH", 0x21, 0x11, SNIFF_BYTES_MAX), "at most 4095 are taken"),
    (b"PROXY UNKNOWN\r\nPROXY UNKNOWN\r\n", "0x50"),
])
def test_what_nobody_serves_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        sniff(data, proxy=True)


@given(st.binary(max_size=200) | st.builds(bytes.__add__, st.sampled_from(sorted(HEADERS)), st.binary(max_size=20)))
def test_more_bytes_never_change_a_decision(data: bytes) -> None:
    decided = None
    for size in range(len(data) + 1):
        try:
            found: object = sniff(data[:size], proxy=True)
        except FrameError:
            found = FrameError
        assert decided is None or found == decided
        decided = found
        assert found is not None or size <= SNIFF_BYTES_MAX


@given(st.sampled_from(sorted(HEADERS)), st.integers(0), st.integers(0, 255))
def test_a_damaged_proxy_header_never_raises_anything_else(header: bytes, at: int, value: int) -> None:
    damaged = bytearray(header + b"\0")
    damaged[at % len(header)] = value
    try:
        found = sniff(damaged, proxy=True)
    except FrameError:
        return
    assert found is None or found.size <= len(damaged)


@pytest.mark.parametrize(("address", "host", "port"), [
    ("127.0.0.1:9876", "127.0.0.1", 9876), ("localhost:0", "localhost", 0), ("[::1]:65535", "::1", 65535),
])
def test_addresses_come_apart_and_together(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
    assert join_address(host, port) == address


@pytest.mark.parametrize("address", ["", ":1", "h", "h:", "h:x", "h:-1", "h:65536", "h:99999999999", "h:٣"])
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        split_address(address)


def test_ipv4_through_an_ipv6_socket_is_written_as_ipv4() -> None:
    assert join_address("::ffff:10.0.0.1", 1) == "10.0.0.1:1"
    assert join_address("::ffff:0:1", 1) == "[::ffff:0:1]:1"
