"""The epoch file of a store: read at the start, replaced before the first byte of an epoch is written.

Beside it stands in which boot of the machine this broker last began an epoch as master. While the machine runs, the
system has all that any process wrote; once it went down, the end of the log may be gone, though slaves hold it.
It knows ``Files`` and where the files are; what the lines mean is ``broker.ha.epochs``'s business.
Source: ``EpochFileCache`` of RocketMQ 5.5.0; the second file is ours, and Java leaves it alone.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.ha.epochs import EpochFileError, EpochList, load, to_text
from broker.ha.slave import NoEpochs
from broker.store.files import Files, read_whole, write_whole

PATH: Final = "epochFileCheckpoint"
"""Below ``storePathRootDir``."""
BOOT: Final = ".boot"
NOT_IN_DOUBT: Final = -1


@attrs.frozen
class FoundEpochs:
    """Epochs as found at a start. ``damaged`` is for the operator; ``no_epochs`` says what an empty list means."""

    epochs: EpochList
    no_epochs: NoEpochs
    damaged: str = ""
    doubtful_epoch: int = NOT_IN_DOUBT
    """The last epoch of the list, if its end may have been lost since this broker wrote in it as master."""


class EpochFile:
    """One broker's epoch file. ``boot`` names this boot of the machine; "" is unknown: then all is in doubt."""

    def __init__(self, files: Files, path: str = PATH, *, boot: str = "") -> None:
        self._files, self._path, self._boot = files, path, boot
        self._on_disk: EpochList | None = None
        """The list that is on disk; None before it was read, and after a write that failed."""

    def read(self) -> FoundEpochs:
        """Read both files. Without any the log is a plain group's; with one that cannot be read all is copied anew."""
        main, backup = (self._text(self._path), self._text(f"{self._path}.bak"))
        self._on_disk = None
        try:
            loaded = load(main, backup)
        except EpochFileError as damage:
            return FoundEpochs(EpochList(), NoEpochs.LOST, str(damage))
        if not loaded.damaged and (main is not None or backup is None):
            self._on_disk = loaded.epochs
        last = loaded.epochs.last
        assert last is None or main is not None or backup is not None, "no file tells of no epoch"
        doubtful = last is not None and (not self._boot or self._text(self._path + BOOT) != self._boot)
        return FoundEpochs(loaded.epochs, NoEpochs.PLAIN if main is backup is None else NoEpochs.LOST, loaded.damaged,
                     last.epoch if last is not None and doubtful else NOT_IN_DOUBT)

    def lead(self, epochs: EpochList) -> None:
        """Write the epochs of a master that begins the last of them, with the boot. Raises ``OSError``.

        In this order: a crash in between leaves an epoch in doubt that has not a byte yet.
        """
        assert epochs, "a master has begun an epoch"
        self.write(epochs)
        if self._boot and self._text(self._path + BOOT) != self._boot:
            write_whole(self._files, self._path + BOOT, self._boot.encode())

    def doubt(self) -> None:
        """The disk failed: what the system was given may be gone though the machine runs on. Raises ``OSError``."""
        if self._files.exists(self._path + BOOT):
            self._files.remove(self._path + BOOT)
            self._files.sync_dir(self._path.rpartition("/")[0])

    def write(self, epochs: EpochList) -> None:
        """Write the list, unless it is on disk already. Synced when this returns. Raises ``OSError``."""
        if epochs == self._on_disk:
            return
        self._on_disk = None
        write_whole(self._files, self._path, to_text(epochs).encode())
        if not epochs and self._files.exists(f"{self._path}.bak"):
            self._files.remove(f"{self._path}.bak")
        assert epochs or not self._files.exists(f"{self._path}.bak"), "Java would read that instead of an empty list"
        self._on_disk = epochs

    def _text(self, path: str) -> str | None:
        data = read_whole(self._files, path)
        return None if data is None else data.decode(errors="replace")
