"""Java's properties: what is read, what is refused, and that what is written comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.properties import edited, encode, parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(" \t\f\n\r\\=:#!ab", max_size=12)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("\n \t\n# a=b\n  ! c=d\n", {}),
        ("a=b", {"a": "b"}),
        ("a = b c \r\n b:2\rc 3\n\td\t=\t4", {"a": "b c", "b": "2", "c": "3", "d": "4"}),
        ("a==b\nb=:c\nc= = d", {"a": "=b", "b": ":c", "c": "= d"}),
        ("key\nempty=\n=value", {"key": "", "empty": "", "": "value"}),
        ("a=1\na=2", {"a": "2"}),
        ("peers=n0-h:1;\\\n    n1-h:2;\\\n n2-h:3\nb=2", {"peers": "n0-h:1;n1-h:2;n2-h:3", "b": "2"}),
        ("a=x\\\n# no comment here\nb=\\", {"a": "x# no comment here", "b": ""}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        (r"a\=b\:\ c=d", {"a=b: c": "d"}),
        (r"path=C:\\data\ttab\n\u00e9\ud83d\ude00\q\"", {"path": "C:\\data\ttab\né😀q\""}),
        ("a=keeps\\ \\  ", {"a": "keeps  "}),
        ("a=  x  # no comment  ", {"a": "x  # no comment"}),
        ("é=中", {"é": "中"}),
    ],
)
def test_read(text: str, values: dict[str, str]) -> None:
    assert parse(text) == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a=1\n\nb=\\u12", r"line 3: \\u needs four hexadecimal digits, in '\\\\u12'"),
        ("a=\\\n\\uzzzz", r"line 1: \\u needs"),
        ("\\ud800=1", "line 1: half of a surrogate pair"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)


FILE = """\
# a broker of ours
brokerName = a

  slaveTimeout : 3000
! of two disks
storePathCommitLog=/one,\\
    /two
slaveTimeout=4000
"""


@pytest.mark.parametrize(("changes", "wanted"), [
    ({}, FILE),
    ({"brokerName": "b"}, FILE.replace("brokerName = a", "brokerName=b")),
    ({"slaveTimeout": "9"}, FILE.replace("slaveTimeout=4000", "slaveTimeout=9")),
    ({"storePathCommitLog": "/a\\b"}, FILE.replace("=/one,\\\n    /two", "=/a\\\\b")),
    ({"new": " x", "later": ""}, FILE + "later=\nnew=\\ x\n"),
])
def test_a_change_leaves_every_other_line_as_it_is(changes: dict[str, str], wanted: str) -> None:
    assert edited(FILE, changes) == wanted
    assert edited(FILE.replace("\n", "\r\n"), changes) == wanted.replace("\n", "\r\n")
    assert edited(FILE.rstrip(), changes) == wanted, "but for the end of the last one"


@given(st.lists(st.sampled_from([
    "# c", "", "a=1", "b : 2", "a 3\\", "  x\\\\", "c", "\\u0061=4", "!a=5", "d=\\\\", "e=\\ ", "a", "\r"])),
    st.dictionaries(st.sampled_from("abcz"), st.text(st.sampled_from("x \\\n=#"), max_size=3)))
def test_a_changed_file_says_what_was_asked_for_and_else_what_it_said(
    lines: list[str], changes: dict[str, str],
) -> None:
    text = "\n".join(lines)
    after = edited(text, changes)
    assert parse(after) == {**parse(text), **parse(encode(changes))}
    assert edited(after, changes) == after


def test_written_as_java_writes_it() -> None:
    values = {"b": "n0-127.0.0.1:9878;n1-h:1", "a": "x=y z", "#c d": " lead\\ and trail "}
    assert encode(values) == "\\#c\\ d=\\ lead\\\\ and trail\\ \na=x=y z\nb=n0-127.0.0.1:9878;n1-h:1\n"


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_written_values_come_back(values: dict[str, str]) -> None:
    assert parse(encode(values)) == values


@given(TEXT)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = parse(text)
    except ValueError:
        return
    assert parse(encode(values)) == values


@pytest.mark.parametrize(("text", "value"), [
    (r"D:\usr\store", r"D:\usr\store"), (r"\u12", r"\u12"), (r"\ud800", r"\ud800"), (r"\u0041\\b", "A\\b"),
    (r"a\:b", "a:b"), (r"\q", r"\q"), (r"a\tb", "a\tb"),
])
def test_an_answer_of_javas_has_backslashes_that_are_no_escapes(text: str, value: str) -> None:
    assert parse(f"k={text}", told=True) == {"k": value}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_an_answer_of_ours_is_read_as_it_was_written(values: dict[str, str]) -> None:
    text = encode(values)
    assert parse(text, told=True) == parse(text)
