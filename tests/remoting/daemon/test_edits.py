"""What is left of a configuration file when a request has changed keys of it."""

from __future__ import annotations

import pytest

from remoting.daemon.edits import Edit
from remoting.properties import parse

BEFORE = {"name": "a", "size": "1", "both": "x", "isOn": "true"}


def changed(file: str, given: dict[str, str], **after: str) -> str:
    edit = Edit(given, BEFORE, {**BEFORE, **after}, {"isOn": "on"})
    return edit.of(file.encode()).decode()


def test_lines_that_nobody_asked_for_stay_as_they_are() -> None:
    file = "# of ours\n\n name : a\nunknown=?\nsize=1\n"
    assert changed(file, {"size": "2"}, size="2") == "# of ours\n\n name : a\nunknown=?\nsize=2\n"
    assert changed(file, {"both": "y"}, both="y") == f"{file}both=y\n"


def test_what_the_file_says_already_is_not_written_again() -> None:
    file = "size : 2\n"
    assert changed(file, {"size": "2"}, size="2") == file


def test_a_key_that_follows_is_written_where_it_stands_and_not_where_it_does_not() -> None:
    assert changed("both=x\nsize=1\n", {"size": "2"}, size="2", both="y") == "both=y\nsize=2\n"
    assert changed("size=1\n", {"size": "2"}, size="2", both="y") == "size=2\n"


@pytest.mark.parametrize("asked", ["isOn", "on"])
@pytest.mark.parametrize("file", ["on=true\n", "on=true\nisOn=true\n", "isOn=true\non=true\n"])
def test_two_names_of_a_key_never_disagree_in_the_file(asked: str, file: str) -> None:
    values = parse(changed(file, {asked: "false"}, isOn="false"))
    assert values.keys() <= {"isOn", "on"} and set(values.values()) == {"false"}


def test_a_key_without_a_meaning_is_kept_as_it_was_given() -> None:
    assert changed("", {"idle": " 7 "}) == "idle=7\n"


def test_without_a_file_all_keys_are_written() -> None:
    assert parse(Edit({"size": "2"}, BEFORE, {**BEFORE, "size": "2"}).of(None).decode()) == {**BEFORE, "size": "2"}


@pytest.mark.parametrize("damaged", [b"\xff\xfe", b"a=\\u12", b"a=\\ud800"])
def test_a_file_that_is_damaged_is_no_place_to_write_into(damaged: bytes) -> None:
    with pytest.raises(OSError, match="no configuration any more"):
        Edit({"size": "2"}, BEFORE, BEFORE).of(damaged)
