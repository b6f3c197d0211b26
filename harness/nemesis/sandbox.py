"""Runs a program in namespaces of its own, so that the kernel ends all that it started, however it ends itself.

Processes, mounts and networks that it makes are seen by nobody else, and two runs share nothing. It needs root, or
user namespaces that the kernel allows; without either the program runs as it is, and says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

INSIDE: Final = "QUORATE_SANDBOX"
"""Set for the program inside, to what kind of sandbox it is in."""
GRACE_S: Final = 5.0
"""For the program inside to end in good order after an interrupt."""
_NEEDED: Final = ("unshare", "setpriv", "ip", "mount")
HOSTS: Final = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Networks, mounts and processes of its own."""
DISKS: Final = ("--mount",)
"""Mounts of its own, which end with the program; its processes and ports are seen as ever."""
_PROBE: Final = ("ip link add name quorate0 type bridge && mount -t tmpfs tmpfs /run && mkdir /run/netns "
                 "&& ip netns add probe")


def inside() -> str:
    """``root``, ``user``, or empty where this program is in no sandbox."""
    return os.environ.get(INSIDE, "")


def impossible() -> str:
    """Return why there can be no sandbox here; empty if there can."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing"
    probed = subprocess.run([*_prefix(), "sh", "-c", _PROBE], capture_output=True, text=True, check=False)
    return f"this kernel gives no namespaces: {probed.stderr.strip()}" if probed.returncode else ""


def mounts() -> bool:
    """Return whether this program may mount disks of its own: as root, ``enter`` with ``DISKS`` is possible."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    return subprocess.run(["unshare", *DISKS, "true"], capture_output=True, check=False).returncode == 0


def enter(module: str, arguments: Sequence[str], namespaces: Sequence[str] = HOSTS) -> NoReturn:
    """Run ``python -m module`` in a sandbox in place of this program, where that is possible."""
    command, environment = program(module, arguments, namespaces)
    os.execvpe(command[0], command, environment)


def call(module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run ``python -m module`` in a sandbox beside this program; its exit code.

    It ends, with all that it started, when this program does: unshare itself ignores SIGINT and SIGTERM, and the first
    process of a namespace every signal that it does not handle. Raises ``KeyboardInterrupt`` and ``SystemExit``.
    """
    command, environment = program(module, arguments)
    before = signal.signal(signal.SIGTERM, _ended)
    process = subprocess.Popen([*tied(), *command], env=environment | dict(variables))
    try:
        return process.wait()
    except KeyboardInterrupt:
        with suppress(subprocess.TimeoutExpired):  # after Ctrl-C the terminal told the child, too: let it end in order
            if process.wait(GRACE_S) >= 0:
                return process.returncode
        raise
    finally:
        process.kill()
        process.wait()
        signal.signal(signal.SIGTERM, before)


def tied() -> list[str]:
    """Words before a command that the kernel kills when this program ends, however; none without ``setpriv``."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def _ended(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def program(module: str, arguments: Sequence[str],
            namespaces: Sequence[str] = HOSTS) -> tuple[list[str], dict[str, str]]:
    """A command that runs ``python -m module`` in a sandbox, and its environment."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return ([*_prefix(namespaces), sys.executable, "-P", "-m", module, *arguments],
            {**os.environ, INSIDE: "root" if os.geteuid() == 0 else "user", "PYTHONPATH": path})


def _prefix(namespaces: Sequence[str] = HOSTS) -> list[str]:
    return ["unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), *namespaces]
