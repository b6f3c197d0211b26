"""A store whose log, in one folder or several, and whose epoch file stand elsewhere than the rest of it.

To the store it is one tree. Which folder a new file of the log goes to is Java's rule, so a store goes there and back.
It knows ``Files`` alone. Source: ``MultiPathMappedFileQueue`` of RocketMQ 5.5.0, where a folder that is missing, or a
log that was left behind in the store's directory, is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs

from broker.store.errors import WrongStore
from broker.store.files import File, Files, Space

LOG: Final = "commitlog"
QUEUES: Final = "consumequeue"
EPOCHS: Final = "epochFileCheckpoint"


@attrs.frozen
class LogFolder:
    """``path`` as configured. New files go to those that are ``writable``; from the others old ones are deleted."""

    path: str
    files: Files
    writable: bool = True


@attrs.frozen
class EpochPlace:
    """``path`` as configured; the folder that it is in, and its name there."""

    path: str
    files: Files
    name: str


@attrs.frozen(eq=False)
class ScatteredFiles:
    """Implements ``Files``. Without ``log`` that is in ``root``, as the epoch file without ``epochs``."""

    root: Files
    log: Sequence[LogFolder] = ()
    epochs: EpochPlace | None = None
    file_bytes: int = 1 << 30
    """Size of one file of the log, in bytes."""
    full_ratio: float = 1.0
    """A folder whose disk is used beyond it gets no new file while another one can."""
    within: bool = False
    """One of ``log`` is the folder that would be the log's without it."""

    # --- files -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        files, name = self._place(path)
        return files.open(name, create=create)

    def exists(self, path: str) -> bool:
        files, name = self._place(path)
        return files.exists(name)

    def list(self, path: str) -> list[str]:
        if path != LOG or not self.log:
            return self.root.list(path)
        return sorted(name for folder in self.log for name in folder.files.list(""))

    def rename(self, old: str, new: str) -> None:
        files, name = self._place(old)
        others, wanted = self._place(new)
        assert files is others, "renamed in one folder"
        files.rename(name, wanted)

    def remove(self, path: str) -> None:
        files, name = self._place(path)
        files.remove(name)

    def remove_folder(self, path: str) -> None:
        self.root.remove_folder(path)

    def sync_dir(self, path: str) -> None:
        if path == LOG and self.log:
            for folder in self.log:
                folder.files.sync_dir("")
            return
        self.root.sync_dir(path)
        if self.epochs is not None and not path:
            self.epochs.files.sync_dir("")

    # --- disks -----------------------------------------------------------------------------------------------

    def space(self) -> Space:
        """Return the space of the fuller of two disks: the store's, and the roomiest one of the log's folders, as in
        Java."""
        roomy = min((folder.files.space() for folder in self.log), key=_used, default=self.root.space())
        return max(self.root.space(), roomy, key=_used)

    def disks(self) -> Sequence[Files]:
        """Return the store's disk, and the disk that the log is being written to."""
        if not self.log:
            return (self.root,)
        names = _files_of_a_log(self.list(LOG))
        return (self.root, self._place(f"{LOG}/{names[-1] if names else '0' * 20}")[0])

    def lock(self) -> None:
        held: list[Files] = []
        try:
            for files in self._all():
                files.lock()
                held.append(files)
            self._check()
        except BaseException:
            for files in held:
                files.unlock()
            raise

    def unlock(self) -> None:
        for files in self._all():
            files.unlock()

    # --- where -----------------------------------------------------------------------------------------------

    def _all(self) -> Sequence[Files]:
        epochs = () if self.epochs is None else (self.epochs.files,)
        return (self.root, *(folder.files for folder in self.log), *epochs)

    def _place(self, path: str) -> tuple[Files, str]:
        """The folder, and the path in it."""
        folder, _, name = path.rpartition("/")
        if self.log and folder == LOG:
            found = next((each.files for each in self.log if each.files.exists(name)), None)
            return found or self._next(int(name)).files, name
        if self.epochs is not None and not folder and name.startswith(EPOCHS):
            return self.epochs.files, self.epochs.name + name.removeprefix(EPOCHS)
        return self.root, path

    def _next(self, base: int) -> LogFolder:
        """Choose the folder for a new file that begins at ``base``."""
        writable = sorted((folder for folder in self.log if folder.writable), key=lambda folder: folder.path)
        roomy = [folder for folder in writable if _used(folder.files.space()) <= self.full_ratio]
        among = roomy or writable
        assert among and not base % self.file_bytes, "a new file begins behind the one before, somewhere"
        return among[base // self.file_bytes % len(among)]

    def _check(self) -> None:
        """Raises ``WrongStore``: to go on would open another log than the one that was written."""
        counts = Counter(self.list(LOG) if self.log else ())
        twice = sorted(name for name, count in counts.items() if count > 1)
        places = ", ".join(folder.path for folder in self.log)
        if twice:
            raise WrongStore(
                f"{twice[0]} is in more than one of {places}: keep the one that is this log's, move the others away")
        if self.epochs is not None and self.root.exists(EPOCHS):
            raise WrongStore(
                f"{EPOCHS} in the store's directory holds epochs, and storePathEpochFile names {self.epochs.path}: "
                "move it there, if it is this store's, or else away")
        if self.log and not self.within and _files_of_a_log(self.root.list(LOG)):
            raise WrongStore(
                f"{LOG} in the store's directory holds a log, and storePathCommitLog names {places}: move its files "
                "there, if they are this store's, or else away")
        if self.log and not _files_of_a_log(self.list(LOG)) and self.root.list(QUEUES):
            raise WrongStore(f"no file of a log is in {places}, and {QUEUES} has queues of one: is its disk there?")


def _used(space: Space) -> float:
    return space.used_ratio


def _files_of_a_log(names: Sequence[str]) -> list[str]:
    return [name for name in names if len(name) == 20 and name.isdecimal()]
