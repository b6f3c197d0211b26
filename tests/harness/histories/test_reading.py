"""Files of histories: each format is told by its look, packed ones too, and what is none is refused in words."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.histories import reading
from harness.histories.events import HistoryError
from harness.histories.reading import EDN, JSON, OPENCHAOS, TABLE, TEXT, open_history, write_history

FILES = {
    JSON: '{"type": "invoke", "process": 0, "f": "read"}\n',
    EDN: "{:type :invoke, :process 0, :f :read}\n",
    TEXT: "INFO jepsen.util - 0 :invoke :read nil\n",
    OPENCHAOS: "0\tenqueue\tREQUEST\ta\tnull\t1000\tnull\n",
    TABLE: "client,op,start,end\n0,read,1,\n",
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_format_is_told_by_its_look(tmp_path: Path, kind: str, packed: bool) -> None:
    path = tmp_path / ("h.gz" if packed else "h")
    path.write_bytes(gzip.compress(FILES[kind].encode()) if packed else FILES[kind].encode())
    source = open_history(path)
    assert source.format == kind
    assert [each.type for each in source.events] == ["invoke"]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_mark_of_its_letters_before_a_file_is_passed_over(tmp_path: Path, kind: str, packed: bool) -> None:
    """Spreadsheets write one, and so nobody could have a table judged that came from there."""
    path, content = tmp_path / ("h.gz" if packed else "h"), b"\xef\xbb\xbf" + FILES[kind].encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    source = open_history(path)
    assert source.format == kind
    assert [(each.type, each.f) for each in source.events] == [("invoke", "enqueue" if kind == OPENCHAOS else "read")]


def test_a_value_may_be_as_deep_as_a_checker_can_look(tmp_path: Path) -> None:
    """Many values beside each other are not deep."""
    deep = "[" * 196 + ", ".join(["[]"] * 300) + "]" * 196
    (tmp_path / "h").write_text('{"type": "invoke", "process": 0, "f": "write", "value": ' + deep + "}\n")
    assert len([*open_history(tmp_path / "h").events]) == 1


def test_one_vector_of_maps_is_edn(tmp_path: Path) -> None:
    (tmp_path / "h").write_text(f"[{FILES[EDN]}]")
    assert len([*open_history(tmp_path / "h").events]) == 1


def test_a_directory_is_that_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(FILES[JSON])
    assert open_history(tmp_path).format == JSON


@pytest.mark.parametrize(("content", "words"), [
    (b"", "is empty"), (b"\n# nothing\n", "is empty"), (b"hello\n", "in no format that is known here"),
    (b"\x93\xbc\xd9", "is no text"), (b"{\0", "is no text"),
])
def test_what_is_none_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "h").write_bytes(content)
    with pytest.raises(HistoryError, match=words):
        open_history(tmp_path / "h")


def test_a_format_that_is_said_and_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("hello\n")
    with pytest.raises(HistoryError, match="first line of a table"):
        list(open_history(tmp_path / "h", TABLE).events)


@pytest.mark.parametrize(("content", "words"), [
    ("client,op,start,end\n0,read,1,NaN\n", "line 2: end is a time, a number, not NaN"),
    ("0\tenqueue\tREQUEST\ta\tnull\t\u00b2\tnull\n", "line 1: a time is a whole number of milliseconds"),
    ("0\tenqueue\tREQUEST\ta\tnull\t" + "9" * 5_000 + "\tnull\n", "line 1: a time is a whole number"),
    ("\n{:type :invoke, :process 0, :f :read, :value " + "9" * 5_000 + "}\n", "line 2: no number"),
    ('{"type": "invoke", "process": 0, "f": "write", "value": NaN}\n', "line 1: no JSON"),
    ('\n{"type": "invoke", "process": 0, "f": "write", "value": ' + "[" * 900 + "]" * 900 + "}\n",
     "line 2: no JSON: values within values, 200 deep"),
    ('{"type": "invoke", "process": 0, "f": "write", "value": ' + '{"a": ' * 200 + "1" + "}" * 200 + "}\n",
     "line 1: no JSON: values within values, 200 deep")])
def test_what_is_wrong_is_told_with_its_file_and_line(tmp_path: Path, content: str, words: str) -> None:
    """A NaN among times, and what only looks like a number, ended the command without a verdict."""
    (tmp_path / "h").write_text(content)
    with pytest.raises(HistoryError, match=f"{tmp_path / 'h'}, {words}") as caught:
        list(open_history(tmp_path / "h").events)
    assert caught.value.line


def test_a_huge_file_ends_with_words(tmp_path: Path) -> None:
    (tmp_path / "h").write_text(FILES[JSON] + FILES[JSON].replace("0", "1"))
    with pytest.raises(HistoryError, match="line 2: more than 1 events"):
        list(open_history(tmp_path / "h", events_max=1).events)


def test_broken_letters_are_told_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(FILES[EDN].encode() + b"{:type \xff}\n")
    with pytest.raises(HistoryError, match="line 2: no UTF-8"):
        list(open_history(tmp_path / "h", EDN).events)


@pytest.mark.parametrize("change", [lambda data: data[:-9], lambda data: data[:10] + b"\xff" * 8 + data[18:]])
def test_a_packed_file_that_is_damaged_or_cut_is_told(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "h.gz"
    path.write_bytes(change(gzip.compress(FILES[JSON].encode())))
    with pytest.raises(HistoryError, match="is damaged or cut off"):
        list(open_history(path, JSON).events)


def test_a_file_is_written_whole_or_not(tmp_path: Path) -> None:
    (tmp_path / "h").write_text(FILES[JSON])
    for kind in (JSON, EDN, OPENCHAOS):
        assert write_history(tmp_path / kind, open_history(tmp_path / "h").events, kind) == 1
        assert [each.f for each in open_history(tmp_path / kind).events] == ["read"]
    (tmp_path / "h").write_text("broken\n")
    with pytest.raises(HistoryError):
        write_history(tmp_path / EDN, open_history(tmp_path / "h", JSON).events, EDN)
    assert [each.f for each in open_history(tmp_path / EDN).events] == ["read"]
    assert not list(tmp_path.glob("*.part"))
    assert reading.FORMATS.keys() == FILES.keys()
