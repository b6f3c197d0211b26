"""``mqshutdown``: stop the servers of one kind that this user runs on this machine, as RocketMQ's script does.

It knows processes and their command lines, as Linux shows them below ``/proc``; what a server does about SIGTERM is its
own business.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from remoting.daemon.process import FAILED, STOPPED, piped
from remoting.daemon.version import add_version

MODULES: Final = {
    "broker": "broker.cli", "brokerContainer": "broker.container.cli", "namesrv": "controller.namesrv.cli",
    "controller": "controller.cli"}
ELSEWHERE: Final = {"proxy": "there is no proxy here: stop Java's with its own mqshutdown"}
PROC: Final = Path("/proc")
NO_PROC: Final = "this system shows no processes below /proc: send SIGTERM to the process yourself"
EXAMPLES: Final = """\
examples:
  mqshutdown broker                          all brokers of this user on this machine
  mqshutdown broker -c conf/broker-a.conf    those that were started with that file
  mqshutdown namesrv
"""


@attrs.frozen
class Running:
    """A process of ours: ``config`` is the file that it was started with, absolute, or ""."""

    pid: int
    parent: int
    config: str


def parser() -> argparse.ArgumentParser:
    """The command line of ``mqshutdown`` and its options."""
    made = argparse.ArgumentParser(
        prog="mqshutdown", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES,
        description="Stop servers in order: a SIGTERM to each of a kind that this user runs here.")
    made.add_argument("kind", choices=[*MODULES, *ELSEWHERE], help="what is to be stopped")
    made.add_argument("-c", "--configFile", metavar="FILE", help="only what was started with this file")
    add_version(made)
    return made


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(arguments)
    if options.kind in ELSEWHERE:
        print(f"mqshutdown: {ELSEWHERE[options.kind]}", file=sys.stderr)
        return FAILED
    if not (PROC / "self/cmdline").exists():
        print(f"mqshutdown: {NO_PROC}", file=sys.stderr)
        return FAILED
    name, code = f"mq{options.kind.lower()}", FAILED
    wanted = "" if options.configFile is None else str(Path(options.configFile).resolve())
    for each in first_of_each(running(options.kind)):
        if wanted and each.config != wanted:
            continue
        print(f"The {name}({each.pid}) is running...")
        if stop(each, options.kind):
            print(f"Send shutdown request to {name}({each.pid}) OK")
            code = STOPPED
        else:
            print(f"mqshutdown: {name}({each.pid}) has ended meanwhile", file=sys.stderr)
    if code == FAILED:
        print(f"No {name} running.")
    return code


def running(kind: str) -> list[Running]:
    """Return this user's processes that serve as ``kind``."""
    found = (_looked_at(int(path.name), kind) for path in PROC.iterdir() if path.name.isdecimal())
    return sorted(filter(None, found), key=lambda each: each.pid)


def first_of_each(found: Sequence[Running]) -> Iterator[Running]:
    """Without children of others: a guardian stops its broker, and is not to start it again."""
    pids = {each.pid for each in found}
    return (each for each in found if each.parent not in pids)


def stop(process: Running, kind: str) -> bool:
    """Stop a process, and return whether it was still there. Another process that took its number is not told."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if _looked_at(process.pid, kind) != process:
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _looked_at(pid: int, kind: str) -> Running | None:
    folder = PROC / str(pid)
    try:
        if folder.stat().st_uid != os.getuid():
            return None
        line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        given = arguments_of(line, kind)
        if given is None:
            return None
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        return Running(pid, parent, _config(given, Path(os.readlink(folder / "cwd"))))
    except OSError:  # the process ended, or is another user's
        return None


def arguments_of(line: Sequence[str], kind: str) -> list[str] | None:
    """Return the arguments in a command line of ``kind``; None: it is none.

    It may be ``mqbroker …``, ``python …/mqbroker …``, ``python -m broker.cli …`` or a child's command line.
    """
    module, words = MODULES[kind], list(line)
    if words and Path(words[0]).name.startswith("python"):
        words.pop(0)
        while words and words[0].startswith("-"):
            word = words.pop(0)
            if word in ("-m", "-c"):
                run = words.pop(0) if words else ""
                return words if run == module or f"from {module} import main" in run else None
    return words[1:] if words and Path(words[0]).name == f"mq{kind.lower()}" else None


def _config(given: Sequence[str], folder: Path) -> str:
    reader = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    reader.add_argument("-c", "--configFile", default="")
    file = str(reader.parse_known_args(given)[0].configFile)
    return file and str((folder / file).resolve())


if __name__ == "__main__":
    sys.exit(main())
