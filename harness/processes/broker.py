"""A broker as a process, of either side: both listen at the same distances and keep the same files.

It knows ports and file names, and neither what a broker is started with nor what it is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import define

from harness.processes.handle import Handle

FAST_PORT: Final = -2
"""A broker listens there as well: the VIP channel, two below its own port."""
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
        """The id that a controller gave it, as its own file says; ``None`` before that."""
        path = self.store / "brokerIdentity"
        return int(path.read_text().rpartition("#")[2]) if path.exists() else None
