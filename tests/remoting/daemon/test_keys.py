"""Configuration keys as fields: names, kinds, bounds, and refusals that name key, value and rule."""

from __future__ import annotations

import attrs
import pytest

from remoting.daemon.keys import ConfigError, key, names, properties, read, refuse_unknown


@attrs.frozen(kw_only=True)
class Sample:
    listen_port: int = key(9, "a port", least=1, most=99)
    least_only: int = key(1, "from one", least=1)
    on: bool = key(False, "a switch", live=True)
    mode: str = key("a", "a choice", name="x.mode", choices=("a", "b"))
    own: int = 3
    """No key."""


def test_keys_are_named_as_in_files() -> None:
    assert list(names(Sample)) == ["listenPort", "leastOnly", "on", "x.mode"]
    assert properties(Sample(on=True)) == {"leastOnly": "1", "listenPort": "9", "on": "true", "x.mode": "a"}


def test_values_are_read_on_top_of_what_was() -> None:
    first = read(Sample, {"listenPort": " 5 ", "on": "TRUE", "foreign": "passed over"})
    assert first == Sample(listen_port=5, on=True)
    assert read(Sample, {"x.mode": "b"}, start=first) == Sample(listen_port=5, on=True, mode="b")


@pytest.mark.parametrize(("name", "value", "rule"), [
    ("listenPort", "0", "from 1 to 99"), ("listenPort", "100", "from 1 to 99"), ("listenPort", "x", "whole number"),
    ("listenPort", "1" * 30, "whole number"), ("listenPort", "", "whole number"), ("leastOnly", "0", "at least 1"),
    ("on", "yes", "true or false"), ("x.mode", "c", "one of a, b"),
])
def test_a_wrong_value_is_refused_with_key_value_and_rule(name: str, value: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(Sample, {name: value})
    assert (refused.value.key, refused.value.value) == (name, value)
    assert rule in refused.value.rule
    assert str(refused.value).startswith(f"{name} = {value}: ")


def test_an_unknown_key_is_refused_with_the_one_that_was_meant() -> None:
    refuse_unknown({"on": "", "foreign": ""}, {*names(Sample), "foreign"})
    with pytest.raises(ConfigError, match="is no known key; listenPort is"):
        refuse_unknown({"listenport": "1"}, names(Sample))
    with pytest.raises(ConfigError, match=r"is no known key$"):
        refuse_unknown({"quite else": "1"}, names(Sample))
