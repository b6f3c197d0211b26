"""Bits of Java's Bloom filter, as a Java broker 5.5.0 has computed them."""

from __future__ import annotations

import pytest

from broker.filters.bloom import murmur3, positions


@pytest.mark.parametrize(("group", "topic", "bits"), [
    ("G2", "T1", [111, 20, 41]), ("CID_abc", "topic", [31, 80, 80])])
def test_positions_are_javas(group: str, topic: str, bits: list[int]) -> None:
    assert positions(group, topic) == bits


def test_long_names_are_mixed_in_blocks() -> None:
    """Published vectors of the hash."""
    assert murmur3(b"") == 0
    assert murmur3(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
