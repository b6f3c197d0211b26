"""Typed bodies: what the machinery reads, refuses with the place named, and writes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from remoting.body import Body, body
from remoting.errors import BodyError
from remoting.fields import Int32, Int64, wire_name


@body
class Inner(Body):
    number: Int32
    name: str | None = None


@body
class Outer(Body):
    one: Inner | None = None
    long_list: list[Inner] = attrs.field(factory=list)
    ids: frozenset[Int64] = frozenset()
    by_id: dict[Int64, Inner] = attrs.field(factory=dict)
    names: dict[str, str] = attrs.field(factory=dict)
    numbers: dict[Int32, Int64] = attrs.field(factory=dict)
    flag: bool = False
    rate: float = 0.0
    odd: Int32 = wire_name("OddName", default=1)
    things: dict[str, Any] = wire_name("stuff", factory=dict)
    text: str = "x"


FULL = Outer(
    Inner(1, "n"), [Inner(2)], frozenset({10, 9}), {2: Inner(3), -1: Inner(4)}, {"b": "c"}, {5: 2**63 - 1}, True, 1.5,
    7, {"k": [1, {"z": None}]}, "é",
)
JSON = (
    '{"OddName":7,"byId":{"-1":{"number":4},"2":{"number":3}},"flag":true,"ids":[9,10],"longList":[{"number":2}],'
    '"names":{"b":"c"},"numbers":{"5":9223372036854775807},"one":{"name":"n","number":1},"rate":1.5,'
    '"stuff":{"k":[1,{}]},"text":"é"}'
).encode()


def test_written_and_read() -> None:
    assert FULL.to_json() == JSON
    again = Outer.from_json(JSON)
    assert again.to_json() == JSON
    assert (again.one, again.ids, again.by_id, again.numbers) == (FULL.one, FULL.ids, FULL.by_id, FULL.numbers)
    assert again.things == {"k": [1, {}]}, "nulls are gone, wherever they were"
    assert FULL.to_json(ascii_only=True) == JSON.replace("é".encode(), rb"\u00e9")


@body
class Keyed(Body):
    table: dict[Inner, Int64] = attrs.field(factory=dict)
    deep: dict[Inner, Inner] = attrs.field(factory=dict)


def test_bodies_as_keys_are_written_as_objects_and_read_as_either() -> None:
    full = Keyed({Inner(1): 5, Inner(2, "b"): 6}, {Inner(3): Inner(4)})
    raw = b'{"deep":{{"number":3}:{"number":4}},"table":{{"number":1}:5,{"name":"b","number":2}:6}}'
    assert full.to_json() == raw
    assert Keyed.from_json(raw) == full
    assert Keyed.from_json(b'{"table":{"{\\"number\\":1}":"5"},"deep":{}}') == Keyed({Inner(1): 5})
    for wrong, says in (
        (b'{"table":{{"x":1}:5}}', "Keyed.table[dict].number is missing"),
        (b'{"table":{"x y":5}}', "Keyed.table['x y']"),
        (b'{"table":[]}', "Keyed.table is list; an object is needed"),
    ):
        with pytest.raises(BodyError) as caught:
            Keyed.from_json(wrong)
        assert str(caught.value).startswith(says)


def test_defaults_stand_for_what_is_missing_or_null() -> None:
    assert Outer.from_json(b"{}") == Outer()
    nulls = ",".join(f'"{name}":null' for name in Outer().to_plain())
    assert Outer.from_json(b"{%b}" % nulls.encode()) == Outer()
    assert Outer.from_json(b'{"names":{"a":null},"unknown":[{}]}').names == {}


def test_java_leniency() -> None:
    got = Outer.from_json(
        b'{one:{"number":"7","name":12},"ids":["1",2.0,2],byId:{1:{number:3}},"numbers":{"-4":"+5"},"flag":"TRUE",'
        b'"rate":"2.5",text:false}'
    )
    assert got == Outer(Inner(7, "12"), [], frozenset({1, 2}), {1: Inner(3)}, {}, {-4: 5}, True, 2.5, text="false")
    assert Outer.from_json(b'{"flag":1,"text":1.5,"rate":3}') == Outer(flag=True, text="1.5", rate=3.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "Outer is list; an object is needed"),
        ("{{}:1}", "Outer is Pairs(items=[({}, 1)]); an object is needed"),
        ('{"one":{}}', "Outer.one.number is missing"),
        ('{"one":{"number":null}}', "Outer.one.number is missing"),
        ('{"longList":[{"number":1},{"number":"x"}]}', "Outer.longList[1].number is 'x'; a whole number"),
        ('{"longList":{}}', "Outer.longList is dict; an array"),
        ('{"byId":{"x":{"number":1}}}', "Outer.byId['x'] is 'x'; a whole number"),
        ('{"byId":[]}', "Outer.byId is list; an object"),
        ('{"byId":{"1":5}}', "Outer.byId['1'] is 5; an object"),
        ('{"names":{"a":{}}}', "Outer.names['a'] is dict; a string"),
        ('{"ids":[9223372036854775808]}', "Outer.ids[0] is 9223372036854775808; it must be within"),
        ('{"ids":[true]}', "Outer.ids[0] is True; a whole number"),
        ('{"ids":[1.5]}', "Outer.ids[0] is 1.5; a whole number"),
        ('{"ids":[null]}', "Outer.ids[0] is None; a whole number"),
        ('{"ids":["1_0"]}', "Outer.ids[0] is '1_0'; a whole number"),
        ('{"one":{"number":2147483648}}', "Outer.one.number is 2147483648; it must be within -2147483648..2147483647"),
        ('{"flag":"maybe"}', "Outer.flag is 'maybe'; true or false"),
        ('{"rate":"fast"}', "Outer.rate is 'fast'; a number"),
        ('{"rate":true}', "Outer.rate is True; a number"),
    ],
)
def test_misfits_name_their_place(text: str, says: str) -> None:
    with pytest.raises(BodyError) as caught:
        Outer.from_json(text.encode())
    assert str(caught.value).startswith(says)
