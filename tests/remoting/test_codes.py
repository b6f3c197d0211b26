"""Names of versions as RocketMQ prints them, of any number that a client may claim."""

from __future__ import annotations

import pytest

from remoting.codes import GO_AWAY_VERSION, STRICT_ROUTE_VERSION, VERSION, version_name


@pytest.mark.parametrize(("number", "name"), [
    (VERSION, "V5_5_0"), (VERSION - 1, "V5_5_0_SNAPSHOT"), (STRICT_ROUTE_VERSION, "V4_9_4"),
    (GO_AWAY_VERSION, "V5_3_1"), (213, "V4_0_0"), (212, "V4_0_0_SNAPSHOT"), (611, "V5_9_9"),
    (211, "211"), (0, "0"), (-1, "-1"), (-(1 << 31), "-2147483648"), (612, "HIGHER_VERSION"),
    ((1 << 31) - 1, "HIGHER_VERSION")])
def test_every_number_has_a_name(number: int, name: str) -> None:
    assert version_name(number) == name
