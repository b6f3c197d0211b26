"""The record that a broker's process writes of itself, so that the next supervisor finds it after a kill.

A process id alone is not enough, since the system reuses it. The start time of the process and the boot id of the
machine tell whether it is still the same process. Values: no file and no process.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import attrs


@attrs.frozen
class Record:
    """One process of one broker."""

    path: str
    """Path of the broker's configuration file."""
    broker: str
    pid: int
    born: str
    """Start time of the process, as ``remoting.daemon.identity.born`` gives it."""
    boot: str
    """The boot of the machine, as ``broker.boot.boot_id`` says."""

    def means(self, born: str, boot: str) -> bool:
        """Return whether a process with this pid, start time and boot is the recorded one."""
        return bool(self.born and self.boot) and (self.born, self.boot) == (born, boot)

    def to_json(self) -> bytes:
        return json.dumps(attrs.asdict(self), indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Record:
        """Decode a record. Raises ``ValueError``."""
        data: Any = json.loads(content)
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        kinds = {field.name: int if field.name == "pid" else str for field in attrs.fields(cls)}
        for name, kind in kinds.items():
            if not isinstance(data.get(name), kind) or isinstance(data.get(name), bool):
                raise ValueError(f"{name} is missing, or of another kind")
        if not 1 < data["pid"] < 1 << 31:
            raise ValueError(f"pid = {data['pid']}: is no broker's")
        return cls(**{name: data[name] for name in kinds})


def file_name(broker: str) -> str:
    """Return the file name of a broker's record; it exists for every name."""
    return f"{quote(broker, safe=' ')}.json"
