"""Contradictions in the settings of a group's member."""

from __future__ import annotations

import attrs
import pytest

from broker.replicas.config import ManagerConfig

CONFIG = ManagerConfig("c1", "a", "10.0.0.1:10911", ("10.0.1.1:9878",))


@pytest.mark.parametrize(("fields", "words"), [
    ({"controllers": ()}, "names no controller"), ({"master_lease_ms": 10_000}, "masterLeaseMs is 10000")])
def test_contradictions_are_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attrs.evolve(CONFIG, **fields)  # type: ignore[arg-type]


def test_a_lease_just_below_the_silence_that_controllers_allow_is_taken() -> None:
    assert attrs.evolve(CONFIG, master_lease_ms=9_999).master_lease_ms == 9_999
