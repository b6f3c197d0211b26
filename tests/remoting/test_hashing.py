"""The hash of a string is the one that Java gives it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.hashing import java_hash


@pytest.mark.parametrize(("text", "code"), [("", 0), ("a", 97), ("TagA", 2598919), ("世", 19990), ("𝄞", 1772394)])
def test_java_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


@given(st.text(st.characters(), max_size=600))
def test_java_hash_is_the_sum_that_java_defines(text: str) -> None:
    raw = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(raw), 2):
        code = 31 * code + int.from_bytes(raw[at : at + 2], "big") & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == code


def test_the_smallest_hash() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
