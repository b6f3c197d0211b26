"""A disk that stalls keeps its jobs, in their order, until it works again or is settled."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from harness.simulation.worlds.disks import StallingDisk


def used() -> tuple[StallingDisk, list[str]]:
    """A disk, and what is done on it and told."""
    return StallingDisk(), []


def job(disk: StallingDisk, done: list[str], name: str) -> None:
    disk.submit(lambda: done.append(name), lambda error: done.append(f"{name}: {error}"))


def steps(disk: StallingDisk, done: list[str], name: str) -> None:
    def work() -> Iterator[None]:
        for number in (1, 2):
            done.append(f"{name}{number}")
            yield

    disk.submit_steps(work(), lambda error: done.append(f"{name}: {error}"))


def test_it_works_at_once() -> None:
    disk, done = used()
    job(disk, done, "a")
    steps(disk, done, "s")
    assert done == ["a", "a: None", "s1", "s2", "s: None"]


def test_what_fails_is_told() -> None:
    disk, done = used()

    def fails() -> None:
        raise OSError(errno.EIO, "broken")

    disk.submit(fails, lambda error: done.append(str(error)))
    assert done == ["[Errno 5] broken"]


def test_while_it_stalls_nothing_is_done_or_told() -> None:
    disk, done = used()
    disk.stall()
    job(disk, done, "a")
    steps(disk, done, "s")
    job(disk, done, "b")
    assert done == []
    disk.resume()
    assert done == ["a", "a: None", "b", "b: None", "s1", "s2", "s: None"], "jobs go before steps"
    job(disk, done, "c")
    assert done[-1] == "c: None"


def test_who_settles_waits_for_no_stall_and_ends_none() -> None:
    disk, done = used()
    disk.stall()
    job(disk, done, "a")
    disk.settle()
    assert done == ["a", "a: None"]
    job(disk, done, "b")
    assert len(done) == 2
    disk.close()
    assert done[2:] == ["b", "b: None"]
