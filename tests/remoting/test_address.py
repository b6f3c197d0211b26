"""Addresses as text: taken apart, put together, and as somebody elsewhere calls them."""

from __future__ import annotations

import pytest

from remoting.address import called_from, is_loopback, join_address, split_address


@pytest.mark.parametrize(("address", "host", "port"), [
    ("10.0.0.1:9877", "10.0.0.1", 9877), ("[::1]:1", "::1", 1), ("a-0.b.svc:65535", "a-0.b.svc", 65535)])
def test_apart_and_together(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
    assert join_address(host, port) == address


@pytest.mark.parametrize("address", [
    "", "a", ":1", "a:", "a:-1", "a:x", "a:65536", "a:999999", "a:\u0661", "[::1", "::1]:9"])
def test_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        split_address(address)


@pytest.mark.parametrize(("host", "expected"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LocalHost", True),
    ("10.0.0.1", False), ("0.0.0.0", False), ("::", False), ("localhost.example", False), ("", False)])
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(("address", "met_at", "called"), [
    ("127.0.0.1:9878", "10.0.0.7:9877", "10.0.0.7:9878"),
    ("localhost:9878", "[2001:db8::1]:9877", "[2001:db8::1]:9878"),
    ("127.0.0.1:9878", "127.0.0.1:9877", "127.0.0.1:9878"),
    ("127.0.0.1:9878", "[::1]:9877", "127.0.0.1:9878"),
    ("10.0.0.2:9877", "10.0.0.7:9877", "10.0.0.2:9877"),
    ("controller-1:9877", "10.0.0.7:9877", "controller-1:9877"),
    ("127.0.0.1:9878", "?", "127.0.0.1:9878"),
    ("127.0.0.1:9878", "/run/socket", "127.0.0.1:9878"),
    ("127.0.0.1:9878", "0.0.0.0:9877", "127.0.0.1:9878"),
])
def test_the_loopback_is_called_as_it_was_met(address: str, met_at: str, called: str) -> None:
    assert called_from(address, met_at) == called
