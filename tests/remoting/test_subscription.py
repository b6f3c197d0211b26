"""Expressions of subscriptions, as clients write them and brokers read them."""

from __future__ import annotations

import pytest

from remoting.subscription import subscribe, wants


def test_expressions_name_tags_or_all() -> None:
    both = subscribe("t", "new || old||", 7)
    assert (both.tags_set, both.sub_version) == (frozenset({"new", "old"}), 7)
    assert both.code_set == {108960, 110119}, "String.hashCode of new and old"
    assert wants(both, "old") and not wants(both, "other") and not wants(both, None)
    everything = subscribe("t", " * ")
    assert everything.sub_string == "*" and wants(everything, None) and wants(everything, "any")
    with pytest.raises(ValueError, match="names no tag"):
        subscribe("t", "||")
