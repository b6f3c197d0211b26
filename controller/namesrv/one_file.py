"""One configuration file of two servers: the name server and the controller in it.

Where there is none yet, whoever writes it writes the keys of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

import controller.config as controllers
from controller.namesrv.config import WITHOUT_MEANING, NamesrvConfig
from remoting import properties
from remoting.daemon.files import Files
from remoting.daemon.keys import names

BOTH: Final = frozenset(names(controllers.ControllerConfig).keys() & names(NamesrvConfig).keys())
"""Keys that both servers read. In the file they are the name server's."""
CONTROLLERS: Final = frozenset(
    {*names(controllers.ControllerConfig), *controllers.WITHOUT_MEANING, "processReadEvent"}
    - {*names(NamesrvConfig), *WITHOUT_MEANING})
"""Keys that the controller alone reads."""


@attrs.frozen
class SharedFile:
    """``Files`` for a server, where keys that are ``theirs`` are the other's. ``start``: what stands in no file yet."""

    files: Files
    path: str
    start: Mapping[str, str]
    theirs: Callable[[str], bool]

    def read(self, path: str) -> bytes | None:
        return self.files.read(path)

    def replace(self, path: str, content: bytes) -> None:
        """Into a file that is there each has written what it changes, and no more."""
        if path == self.path and self.files.read(path) is None:
            content = self._together(properties.parse(content.decode()))
        self.files.replace(path, content)

    def remove(self, path: str) -> None:
        self.files.remove(path)

    def _together(self, ours: Mapping[str, str]) -> bytes:
        return properties.encode({
            **{key: value for key, value in self.start.items() if self.theirs(key)},
            **{key: value for key, value in ours.items() if not self.theirs(key)}}).encode()
