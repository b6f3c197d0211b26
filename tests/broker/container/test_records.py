"""A number alone says nothing of who has it."""

from __future__ import annotations

import os

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.boot import boot_id
from broker.container.nest import found
from broker.container.records import Record, file_name
from remoting.daemon.identity import born

RECORD = Record("/etc/a.conf", "DefaultCluster_a_0", 4_711, "1354920", "b00t")


def test_only_the_process_that_began_then_in_this_boot_is_meant() -> None:
    assert RECORD.means("1354920", "b00t")
    assert not RECORD.means("1354921", "b00t"), "another process has its number"
    assert not RECORD.means("1354920", "b00u"), "the machine went down"
    assert not RECORD.means("", "b00t")
    unknown = attrs.evolve(RECORD, born="", boot="")
    assert not unknown.means("", ""), "what is not known is not taken for equal"


def test_a_running_process_is_found_and_one_that_was_replaced_is_not() -> None:
    me = Record("/etc/a.conf", "a", os.getpid(), born(os.getpid()), boot_id())
    process = found(me)
    assert process is not None and process.pid == os.getpid()
    process.close()
    assert found(attrs.evolve(me, born=str(int(me.born) - 1))) is None
    assert found(attrs.evolve(me, boot="another")) is None
    assert found(attrs.evolve(me, pid=2**22 + 1)) is None, "above all numbers that Linux gives"


@given(st.builds(Record, st.text(), st.text(), st.integers(2, 2**31 - 1), st.text(), st.text()))
def test_it_is_read_as_it_was_written(record: Record) -> None:
    assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize("content", [
    b"", b"7", b"{}", b'{"path": "", "broker": "", "pid": 1, "born": "", "boot": ""}',
    b'{"path": "", "broker": "", "pid": 2147483648, "born": "", "boot": ""}',
    b'{"path": "", "broker": "", "pid": "5", "born": "", "boot": ""}',
    b'{"path": "", "broker": "", "pid": true, "born": "", "boot": ""}'])
def test_a_damaged_one_is_said(content: bytes) -> None:
    with pytest.raises(ValueError):
        Record.from_json(content)


@given(st.text(), st.text())
def test_each_name_has_a_file_of_its_own(one: str, other: str) -> None:
    assert "/" not in file_name(one) and file_name(one).isprintable()
    assert (file_name(one) == file_name(other)) == (one == other)
