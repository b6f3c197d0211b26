"""The epoch file of a store: read at the start, replaced before the first byte of an epoch is written.

It knows ``Files`` and where the file is; what its lines mean is ``broker.ha.epochs``'s business.
Source: ``EpochFileCache`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.ha.epochs import EpochFileError, EpochList, load, to_text
from broker.ha.slave import NoEpochs
from broker.store.files import Files, read_whole, write_whole

PATH: Final = "epochFileCheckpoint"
"""Below ``storePathRootDir``."""


@attrs.frozen
class Found:
    """``damaged`` is for the operator; ``no_epochs`` says what a list without entries means."""

    epochs: EpochList
    no_epochs: NoEpochs
    damaged: str = ""


class EpochFile:
    """One broker's."""

    def __init__(self, files: Files, path: str = PATH) -> None:
        self._files, self._path = files, path

    def read(self) -> Found:
        """Without any file the log is a plain group's; where there is one that cannot be read, all is copied anew."""
        main, backup = (self._text(self._path), self._text(f"{self._path}.bak"))
        try:
            loaded = load(main, backup)
        except EpochFileError as damage:
            return Found(EpochList(), NoEpochs.LOST, str(damage))
        return Found(loaded.epochs, NoEpochs.PLAIN if main is backup is None else NoEpochs.LOST, loaded.damaged)

    def write(self, epochs: EpochList) -> None:
        """On disk when this returns. Raises ``OSError``."""
        write_whole(self._files, self._path, to_text(epochs).encode())
        if not epochs and self._files.exists(f"{self._path}.bak"):
            self._files.remove(f"{self._path}.bak")  # Java would read that instead of an empty list

    def _text(self, path: str) -> str | None:
        data = read_whole(self._files, path)
        return None if data is None else data.decode(errors="replace")
