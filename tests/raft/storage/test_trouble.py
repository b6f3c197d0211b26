"""What the system says of a data directory comes as a ``StorageError``: what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

import raft
from harness.simulation.worlds.nodes import Counter
from raft import host
from raft.errors import DiskFull, StorageError, WrongDirectory
from raft.storage.directory import DirectoryFiles
from raft.storage.trouble import in_words, lacks_descriptor, trouble

ALONE = {"n0": "127.0.0.1:0"}


def refusing(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


async def opened(path: Path) -> None:
    async with raft.open_node("n0", ALONE, path, Counter(), bootstrap=True) as node:
        await node.wait_leader()


@pytest.mark.parametrize(("code", "kind", "does"), [
    (errno.EACCES, StorageError, "give its user the directory"), (errno.EPERM, StorageError, "give its user"),
    (errno.EROFS, StorageError, "mount it to be written"), (errno.ENOENT, StorageError, "leave a data directory alone"),
    (errno.ENOTDIR, WrongDirectory, "name another"), (errno.EEXIST, WrongDirectory, "name another"),
    (errno.ENOSPC, DiskFull, "make room"), (errno.EDQUOT, DiskFull, "make room"),
    (errno.EIO, StorageError, "replace it"),
    (errno.EMFILE, StorageError, "ulimit"), (errno.EXDEV, StorageError, "look into the system's log"),
])
def test_each_trouble_says_what_is_wrong_where_and_what_to_do(code: int, kind: type[StorageError], does: str) -> None:
    found = trouble(refusing(code, "/data/n0/identity"), "/data/n0")
    assert type(found) is kind
    assert str(found).startswith(f"/data/n0/identity: {os.strerror(code)}") and does in str(found)


def test_a_file_above_the_directory_is_named_beside_it() -> None:
    assert str(trouble(refusing(errno.EEXIST, "/data"), "/data/n0")).startswith("/data/n0 (/data): ")
    assert str(trouble(OSError("odd"))) == "the data directory: odd: look into the system's log"


def test_what_works_is_passed_on() -> None:
    assert in_words(max)(1, 3) == 3


@pytest.mark.parametrize(("code", "passes"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.EIO, False)])
def test_what_the_system_refuses_comes_in_words_and_says_if_it_passes(code: int, passes: bool) -> None:
    def fails(path: str) -> None:
        raise refusing(code, path)

    with pytest.raises(StorageError, match=f"/data/n0/log: {os.strerror(code)}") as error:
        in_words(fails, "/data/n0")("/data/n0/log")
    assert lacks_descriptor(error.value) is passes
    assert not lacks_descriptor(StorageError("no system said it"))


@pytest.mark.parametrize("where", ["file", "file/n0"])
async def test_a_file_where_a_directory_must_be(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WrongDirectory, match=r"file.*: File exists: .*name another"):
        await opened(tmp_path / where)
    assert (tmp_path / "file").read_text() == "mine"


async def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with pytest.raises(StorageError, match="name the directory itself"):
        await opened(tmp_path / "link")


@pytest.mark.parametrize("name", ["lock", "identity", "lives"])
async def test_a_directory_where_a_file_must_be(name: str, tmp_path: Path) -> None:
    await opened(tmp_path / "n0")
    (tmp_path / "n0" / name).unlink()
    (tmp_path / "n0" / name).mkdir()
    with pytest.raises(WrongDirectory, match=rf"n0/{name}: Is a directory"):
        await opened(tmp_path / "n0")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
async def test_a_directory_that_may_not_be_written(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, who may write everywhere, sees it too."""
    def refuse(files: DirectoryFiles, path: str, *, create: bool = False) -> Any:
        raise refusing(code, str(files.root / path))

    monkeypatch.setattr(DirectoryFiles, "open", refuse)
    with pytest.raises(StorageError, match=rf"n0/identity\.tmp: {os.strerror(code)}: "):
        await opened(tmp_path / "n0")


async def test_a_directory_that_vanishes_is_told_to_whoever_begins_a_group(tmp_path: Path) -> None:
    async with raft.open_host(tmp_path / "n0", node_id="n0", listen="127.0.0.1:0", create=True) as opened:
        node = await opened.open_group("one", state_machine=Counter(), peers=ALONE, bootstrap=True)
        await node.wait_leader()
        shutil.rmtree(tmp_path / "n0")
        with pytest.raises(StorageError, match="it is gone; leave a data directory alone"):
            await opened.open_group("two", state_machine=Counter(), peers=ALONE, bootstrap=True)


async def test_a_group_whose_removal_failed_does_not_begin_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have neither its log nor its vote."""
    def full(*args: object) -> None:
        raise refusing(errno.EROFS, "group-1.tmp")

    with trio.fail_after(30):
        async with raft.open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True) as opened:
            node = await opened.open_group(state_machine=Counter(), peers=ALONE, bootstrap=True)
            await node.wait_leader()
            await node.propose(b"5")
            with monkeypatch.context() as patch:
                patch.setattr(host, "write_origin", full)
                with pytest.raises(StorageError, match="mounted read-only"):
                    await opened.remove_group()
            node = await opened.open_group(state_machine=(again := Counter()), peers=ALONE)
            await node.wait_leader()
            await node.read_barrier()
            assert again.n == 5
        machine = Counter()
        async with raft.open_node("n0", ALONE, tmp_path, machine) as node:
            await node.wait_leader()
            await node.read_barrier()
            assert machine.n == 5
