"""A broker process, ours or Java's: both listen at the same port distances and keep the same files.

It knows ports and file names; no commands and no requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import define

from harness.processes.handle import Handle

FAST_PORT: Final = -2
"""Distance of the VIP channel's port: a broker listens there, too."""
HA_PORT: Final = 1


@define
class Broker(Handle):
    """A broker. ``announced`` is the address that it registers with name servers and controllers."""

    group: str = ""
    announced: str = ""

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def broker_id(self) -> int | None:
        """The id that a controller gave it, from its identity file; ``None`` before that."""
        path = self.store / "brokerIdentity"
        return int(path.read_text().rpartition("#")[2]) if path.exists() else None
