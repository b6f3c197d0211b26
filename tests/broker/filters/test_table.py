"""What groups have registered: which version counts, who dies when, what is copied, and how much is kept."""

from __future__ import annotations

import json

import pytest

from broker.filters import table as module
from broker.filters.table import ConsumerFilters, FilterKeys, Filters
from remoting.bodies.consumers import SubscriptionData
from remoting.daemon.keys import ConfigError, names, read
from remoting.errors import BodyError

JAVAS = (b'{"filterDataByTopic":{"T1":{"groupFilterData":{"G2":{"bloomFilterData":{"bitNum":112,"bitPos":[111,20,41]},'
         b'"bornTime":1700000000000,"clientVersion":7,"consumerGroup":"G2","dead":false,"deadTime":0,'
         b'"expression":"a > 3","expressionType":"SQL92","topic":"T1"}},"topic":"T1"}}}')


class Clock:
    ms = 1_700_000_100_000

    def __call__(self) -> int:
        return self.ms


def filters(kept: ConsumerFilters | None = None, clock: Clock | None = None) -> tuple[Filters, list[int]]:
    made, changes = Filters(FilterKeys(), clock or Clock(), kept), list[int]()
    made.on_change = lambda: changes.append(1)
    return made, changes


def sql(topic: str, text: str, version: int) -> SubscriptionData:
    return SubscriptionData(topic, text, sub_version=version, expression_type="SQL92")


def text_of(made: Filters, group: str, topic: str) -> str | None:
    found = made.get(group, topic)
    return None if found is None else found.expression.text


def test_the_higher_version_counts_and_an_equal_one_revives() -> None:
    clock = Clock()
    made, changes = filters(clock=clock)
    made.register("g", [sql("t", "a > 1", 5)])
    made.register("g", [sql("t", "a > 2", 5)])
    made.register("g", [sql("t", "a > 2", 4)])
    assert (text_of(made, "g", "t"), len(changes), len(made)) == ("a > 1", 1, 1)
    clock.ms += 10
    made.register("g", [sql("t", "a > 2", 6)])
    found = made.get("g", "t")
    assert found is not None and (found.expression.text, found.version, found.born_ms) == ("a > 2", 6, clock.ms)
    clock.ms += 10
    made.unregister("g")
    assert found.dead_ms == clock.ms and made.get("g", "t") is found, "dead, and still there"
    made.register("g", [sql("t", "a > 1", 5)])
    assert found.dead_ms
    made.register("g", [sql("t", "a > 2", 6)])
    assert not found.dead_ms
    made.register("g", [sql("t", "a > 2", 8)])
    assert made.get("g", "t") is found and (found.version, found.born_ms) == (8, clock.ms - 10)
    made.unregister("g")
    made.register("g", [sql("t", "a > 2", 9)])
    assert made.get("g", "t") is found and not found.dead_ms


def test_an_expression_that_is_none_removes_the_one_before() -> None:
    made, changes = filters()
    made.register("g", [sql("t", "a >", 5), SubscriptionData("u", "x || y"),
                        SubscriptionData("v", "", expression_type="X")])
    assert not changes and not made.has("g")
    made.register("g", [sql("t", "a > 1", 6)])
    made.register("g", [sql("t", "a >", 6)])
    assert text_of(made, "g", "t") == "a > 1", "not of the same version"
    made.register("g", [sql("t", "a >", 7)])
    assert (text_of(made, "g", "t"), made.has("g"), len(made)) == (None, False, 0)


@pytest.mark.parametrize("other", [
    SubscriptionData("t", "x || y", sub_version=9), SubscriptionData("t", "", sub_version=9, expression_type="SQL92")])
def test_what_brings_no_expression_leaves_the_one_before(other: SubscriptionData) -> None:
    """As in Java: the group still wants the topic."""
    made, changes = filters()
    made.register("g", [sql("t", "a > 1", 5)])
    made.register("g", [other])
    assert (text_of(made, "g", "t"), len(changes)) == ("a > 1", 1)


def test_each_change_is_told_so_that_the_file_is_written() -> None:
    clock = Clock()
    made, changes = filters(clock=clock)
    for step, (version, text) in enumerate(((5, "a > 1"), (6, "a > 1"), (7, "a > 2"), (8, "a >"), (9, "a > 1")), 1):
        made.register("g", [sql("t", text, version)])
        assert len(changes) == step
    made.unregister("g")
    assert len(changes) == 6
    made.register("g", [sql("t", "a > 1", 9)])
    assert len(changes) == 7
    made.register("g", [])
    clock.ms += 86_400_000
    made.clean()
    assert (len(changes), len(made)) == (9, 0)


def test_a_table_that_nobody_listens_to_registers_all_the_same() -> None:
    made = Filters(FilterKeys(), Clock())
    made.register("g", [sql("t", "a > 1", 5)])
    assert text_of(made, "g", "t") == "a > 1"


def test_a_group_costs_what_its_dearest_filter_does() -> None:
    made, _ = filters()
    made.register("g", [sql("t", "a > 1", 5), sql("u", "a > 1" + " " * 600, 5)])
    assert [made.cost(group) for group in ("g", "nobody")] == [3, 0]


@pytest.mark.parametrize(("text", "span_ms"), [
    ("0", 0), (str((1 << 63) - 1), (1 << 63) - 1), ("-1", None), (str(1 << 63), None)])
def test_keys_have_javas_names_and_bounds(text: str, span_ms: int | None) -> None:
    assert read(FilterKeys, {}) == FilterKeys(
        enable_property_filter=False, filter_support_retry=False, filter_data_clean_time_span=86_400_000)
    assert all(field.metadata["live"] for field in names(FilterKeys).values()), "a running broker follows"
    if span_ms is None:
        with pytest.raises(ConfigError):
            read(FilterKeys, {"filterDataCleanTimeSpan": text})
    else:
        assert read(FilterKeys, {"filterDataCleanTimeSpan": text}).filter_data_clean_time_span == span_ms


def test_topics_that_a_group_wants_no_more_die_and_are_forgotten_after_a_day() -> None:
    clock = Clock()
    made, _ = filters(clock=clock)
    made.register("g", [sql("t", "a > 1", 5), sql("u", "a > 1", 5)])
    made.register("h", [sql("t", "a > 1", 5)])
    made.register("g", [sql("u", "a > 1", 5), SubscriptionData("t", "*")][:1])
    dead = made.get("g", "t")
    assert dead is not None and dead.dead_ms == clock.ms
    clock.ms += 86_399_999
    made.clean()
    assert len(made) == 3
    clock.ms += 1
    made.clean()
    assert (text_of(made, "g", "t"), text_of(made, "g", "u"), len(made)) == (None, "a > 1", 2)


def test_the_file_is_javas() -> None:
    made, changes = filters(ConsumerFilters.from_json(JAVAS))
    found = made.get("G2", "T1")
    assert found is not None and (found.version, found.dead_ms) == (7, Clock.ms - 30_000), "all are dead at first"
    assert not changes
    made.register("G2", [sql("T1", "a > 3", 7)])
    assert json.loads(made.snapshot().to_json()) == json.loads(JAVAS)
    young = JAVAS.replace(b"1700000000000", b"1700000099999")
    found = filters(ConsumerFilters.from_json(young))[0].get("G2", "T1")
    assert found is not None and found.dead_ms == 1_700_000_099_999


def test_an_entry_without_its_numbers_is_as_old_as_can_be() -> None:
    kept = json.loads(JAVAS)
    entry = kept["filterDataByTopic"]["T1"]["groupFilterData"]["G2"]
    for name in ("bornTime", "deadTime", "clientVersion"):
        del entry[name]
    found = filters(ConsumerFilters.from_json(json.dumps(kept).encode()))[0].get("G2", "T1")
    assert found is not None and (found.born_ms, found.dead_ms, found.version) == (0, Clock.ms - 30_000, 0)


def test_replicas_of_all_releases_ask_for_filters_by_one_code() -> None:
    assert module.GET_ALL_FILTERS == 61_021


def test_entries_that_nobody_could_have_registered_are_passed_over() -> None:
    for change in ((b"a > 3", b"a >"), (b"SQL92", b"SQL93"), (b'"expression":"a > 3",', b"")):
        assert len(filters(ConsumerFilters.from_json(JAVAS.replace(*change)))[0]) == 0


def test_a_copy_brings_what_is_newer_and_takes_nothing_away() -> None:
    made, changes = filters()
    made.register("mine", [sql("t", "a > 1", 5)])
    made.copy(JAVAS)
    found = made.get("G2", "T1")
    assert found is not None and not found.dead_ms and len(made) == 2 and len(changes) == 2
    made.copy(JAVAS)
    assert len(changes) == 2
    made.register("G2", [sql("T1", "a > 4", 9)])
    made.copy(JAVAS)
    assert text_of(made, "G2", "T1") == "a > 4"
    made.copy(JAVAS.replace(b'"clientVersion":7', b'"clientVersion":10'))
    assert text_of(made, "G2", "T1") == "a > 3"
    with pytest.raises(BodyError):
        made.copy(b'{"filterDataByTopic":5}')


def test_there_is_room_for_so_many_and_the_dead_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILTERS_MAX", 3)
    made, _ = filters()
    for group in "abcd":
        made.register(group, [sql("t", "a > 1", 5)])
    assert [text_of(made, group, "t") for group in "abcd"] == ["a > 1"] * 3 + [None]
    made.unregister("b")
    made.register("d", [sql("t", "a > 1", 5)])
    assert [text_of(made, group, "t") for group in "abcd"] == ["a > 1", None, "a > 1", "a > 1"]


def test_there_is_room_for_so_many_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHARACTERS_MAX", 12)
    made, _ = filters()
    made.register("a", [sql("t", "a > 1", 5)])
    made.register("b", [sql("t", "a > 10", 5)])
    made.register("c", [sql("t", "a", 5)])
    made.register("d", [sql("t", "b", 5)])
    assert [text_of(made, group, "t") for group in "abcd"] == ["a > 1", "a > 10", "a", None]
    made.register("a", [sql("t", "c", 6)])
    made.register("d", [sql("t", "bb", 5)])
    assert [text_of(made, group, "t") for group in "ad"] == ["c", "bb"]
