"""What fastjson emits is read, what makes no sense is refused in linear time, and what is written is strict JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import BodyError
from remoting.fastjson import DEPTH_MAX, REPEATED_VALUES_MAX, TOLERATED_BYTES_MAX, Pairs, dumps, loads

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT
KEYS = TEXT.filter(lambda key: key != "$ref")
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"brokerAddrs":{1:"1.1.1.1:10911",2:"b"}}', {"brokerAddrs": {"1": "1.1.1.1:10911", "2": "b"}}),
        ('{"a,1:":{ -1 : {0:"{2:"} , 3:[4]}}', {"a,1:": {"-1": {"0": "{2:"}, "3": [4]}}),
        (r'{"a\"{1:":{1:"\\"}}', {'a"{1:': {"1": "\\"}}),
        ("{a:1,b_2:true,$c:null}", {"a": 1, "b_2": True, "$c": None}),
        ("{'a':'it\\'s \"x\"',\"b\":\"it's {1:\",1:2}", {"a": 'it\'s "x"', "b": "it's {1:", "1": 2}),
        ('{"a":[1,2,],}', {"a": [1, 2]}),
        ("\ufeff [ 1.5 , -2e3 , '\\u00e9\\x41\\v\\0\\/' ] \n", [1.5, -2000.0, "éA\v\0/"]),
        ("'\\ud83d\\ude00'", "😀"),
        ("['raw\ttab']", ["raw\ttab"]),
        ('{"x":9223372036854775807,1:1}', {"x": 2**63 - 1, "1": 1}),
        (
            '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5,{"q":1}:{}}}',
            {"offsetTable": Pairs([({"brokerName": "b", "queueId": 0, "topic": "t"}, 5), ({"q": 1}, {})])},
        ),
        ("{[1]:2,x:3}", Pairs([([1], 2), ("x", 3)])),
    ],
)
def test_what_java_emits(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


def test_escaped_keys_and_unicode_in_strict_json() -> None:
    assert loads(b'{"\\u0024x":"\\ud83d\\ude00"}') == {"$x": "😀"}


# --- references ----------------------------------------------------------------------------------------------


def test_references_are_what_they_name() -> None:
    value = loads(b'{"a":[{"m":{1:"x"}},{"$ref":"$.a[0]"}],"b":{"$ref":"$.a[0].m"},"c.d":{"$ref":"$[\'a\'][0]"}}')
    one = {"m": {"1": "x"}}
    assert value == {"a": [one, one], "b": {"1": "x"}, "c.d": one}
    assert value["a"][0] is value["a"][1]


def test_references_escape_dots() -> None:
    assert loads(rb'{"t":{"%RETRY%a.b":[1]},"u":{"$ref":"$.t.%RETRY%a\\.b"}}')["u"] == [1]


def test_references_inside_pairs() -> None:
    assert loads(b'{"a":{"x":1},"b":{{q:1}:{"$ref":"$.a"}}}')["b"] == Pairs([({"q": 1}, {"x": 1})])


def test_ref_that_is_no_reference() -> None:
    assert loads(b'{"$ref":1}') == {"$ref": 1}
    assert loads(b'{"a":{"$ref":"$.x","b":1}}') == {"a": {"$ref": "$.x", "b": 1}}
    assert loads(b'"$ref"') == "$ref"


@pytest.mark.parametrize(
    "path", ["$", "..", "@", "", "$.b", "$.a.c", "$.a[0]", "$x", "$.a.", "$.s[0]", "$.r", "$.l[9]", "$.l.x", "$.a.'"]
)
def test_references_to_nothing(path: str) -> None:
    with pytest.raises(BodyError, match="which it does not hold"):
        loads(json.dumps({"a": {"b": 1}, "s": "x", "l": [1], "r": {"$ref": path}}).encode())


def test_references_cannot_repeat_without_end() -> None:
    with pytest.raises(BodyError, match="nothing but a reference"):
        loads(b'{"$ref":"$"}')
    for text in (
        '{"a":{"b":{"$ref":"$.a"}}}',
        '{"a":{"x":[{"$ref":"$.b"}]},"b":{"x":[{"$ref":"$.a"}]}}',
        json.dumps({"l0": [1] * 10} | {f"l{n}": [{"$ref": f"$.l{n - 1}"}] * 10 for n in range(1, 5)}),
    ):
        with pytest.raises(BodyError, match=f"more than {16 * len(text)} values"):
            loads(text.encode())
    doubling = json.dumps({"l0": [1] * 10} | {f"l{n}": [{"$ref": f"$.l{n - 1}"}] * 100 for n in range(1, 5)})
    with pytest.raises(BodyError, match=f"more than {REPEATED_VALUES_MAX} values"):
        loads(doubling.encode())
    wide = json.dumps({"l": [1] * 600, "m": [{"$ref": "$.l"}] * 50})
    assert len(loads(wide.encode())["m"][49]) == 600


# --- nonsense ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "[", "}", "{]", "[1 2]", "{1}", "{,}", "[,]", "{a:,}", "{a:b}", "-", "[01x]", "NaN", "nul", "1 1",
     "'a", '"a', '"a\\', "'\\q'", "'\\u12'", "'\\ud800'", '"\\ud800"', "{a:1,,b:2}", "[1,,2]", "{a 1}", "{a:1:2}",
     "{{}}", "[" + "9" * 5_000 + ",]", "\0", '{1:"a"\0}', '{"a":1}x', "/* c */1", "[1e999,]"],
)
def test_nonsense(text: str) -> None:
    with pytest.raises(BodyError, match="body makes no sense at character"):
        loads(text.encode())


def test_limits() -> None:
    with pytest.raises(BodyError, match="body of 6 bytes; 5 are allowed"):
        loads(b"[1,2,]", 5)
    assert loads(b"{1:" + b" " * 2_000_000 + b"2}") == {"1": 2}, "long, but in no need of the parser"
    with pytest.raises(BodyError, match="body of 1048577 bytes is no JSON"):
        loads(b" " * (TOLERATED_BYTES_MAX - 2) + b"'x'")
    assert loads(b" " * (TOLERATED_BYTES_MAX - 3) + b"'x'") == "x"
    with pytest.raises(BodyError, match="nests more than 1024"):
        loads(b"[" * (DEPTH_MAX + 1) + b"'")
    deep = loads(b"{1:" * DEPTH_MAX + b"'x'" + b"}" * DEPTH_MAX)
    for _ in range(DEPTH_MAX):
        deep = deep["1"]
    assert deep == "x"
    with pytest.raises(BodyError, match="not UTF-8 at byte 1"):
        loads(b"[\xff]")


@given(st.binary(max_size=40) | st.text("{}[]:,'\"\\ 12a-.$ref", max_size=40).map(str.encode))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        value = loads(data)
    except BodyError:
        return
    text = dumps(value)
    assert dumps(loads(text)) == text


# --- writing -------------------------------------------------------------------------------------------------


@given(VALUES)
def test_written_values_come_back(value: Any) -> None:
    raw = dumps(value)
    assert loads(raw) == json.loads(raw) == loads(dumps(value, ascii_only=True)) == without_nulls(value)
    assert dumps(value, ascii_only=True).isascii()


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@given(VALUES)
def test_the_tolerant_parser_reads_strict_json_too(value: Any) -> None:
    text = json.dumps({"v": value})[:-1] + ",}"
    assert loads(text.encode()) == {"v": value}


def test_written_form() -> None:
    assert dumps({"b": None, "a": [{"y": 1, "x": None}], "é": "😀null"}) == '{"a":[{"y":1}],"é":"😀null"}'.encode()
    assert dumps({"a": math.inf, "b": {"c": math.nan}, "d": [None]}) == b'{"b":{},"d":[null]}'
    assert dumps({"é": "😀"}, ascii_only=True) == rb'{"\u00e9":"\ud83d\ude00"}'
    assert dumps({"t": Pairs([({"q": 1, "b": "n"}, 5), ("x", Pairs([]))])}) == b'{"t":{{"b":"n","q":1}:5,"x":{}}}'


def test_what_has_no_json_form() -> None:
    for value in ({1}, 2**64, {1: 2}, "\ud800"):
        with pytest.raises(BodyError, match="no JSON form"):
            dumps(value)
