"""Watches names of folders on their way to the disk: which were made, and which parents were synced since."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest


@attrs.define
class Names:
    """``lost`` may be gone after a power cut now."""

    lost: list[Path] = attrs.field(factory=list)
    synced: list[Path] = attrs.field(factory=list)
    before: Callable[[], None] = attrs.field(default=lambda: None)
    """Called before each change."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> Names:
        make, sync = os.mkdir, os.fsync

        def mkdir(path: str | Path, mode: int = 0o777) -> None:
            self.before()
            make(path, mode)
            self.lost.append(Path(path).resolve())

        def fsync(fd: int) -> None:
            self.before()
            sync(fd)
            folder = Path(f"/proc/self/fd/{fd}").resolve()
            self.synced.append(folder)
            self.lost = [made for made in self.lost if made.parent != folder]

        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(os, "fsync", fsync)
        return self

    def lost_after_a_kill_at_every_step(self, fresh: Callable[[], Callable[[], None]]) -> list[Path]:
        """``fresh`` makes a place and gives what makes the folders in it: killed before its first change, its second
        and so on, and then done again by the next process."""
        steps, lost = 0, []
        while True:
            make, left = fresh(), [steps]

            def step(left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt

            self.before, done = step, False
            try:
                make()
                done = True
            except KeyboardInterrupt:
                steps += 1
            self.before = _nothing
            make()
            lost += self.lost
            self.lost = []
            if done:
                assert steps > 3, "it was killed now and then"
                return lost


def _nothing() -> None:
    pass
