"""Starts every command of ours, after a check that the packages which it imports are ours.

``pip install raft`` fetches somebody else's package of that name, and pip writes it over ours without a warning. The
commands are entry points of the group ``quorate.commands``. A command that belongs to an extra says what to install
if its libraries are missing. Nothing is checked in an editable install, which lists no packages, or in a checkout that
is not installed, which has no commands. Other distributions with commands call ``run`` for theirs.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

GROUP: Final = "quorate.commands"
DISTRIBUTION: Final = "quorate-raft"
IN_THE_WAY: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""Exit code of an interrupted command, as in shells."""
_START: Final = "/__init__.py"


def main() -> int:
    """Run the command of this distribution that has the program's name. Return its exit code."""
    return run((DISTRIBUTION,))


def run(distributions: Sequence[str]) -> int:
    """Run the command of the first of these distributions that has the program's name. It may import packages of all
    of them."""
    try:
        return _run(Path(sys.argv[0]).stem, distributions)
    except KeyboardInterrupt:  # perhaps while the command was being loaded
        return INTERRUPTED


def _run(name: str, distributions: Sequence[str]) -> int:
    for fault in in_the_way(distributions):
        sys.stderr.write(f"{name}: {fault}\n")
        return IN_THE_WAY
    ours = metadata.distribution(distributions[0])
    (entry,) = ours.entry_points.select(group=GROUP, name=name)
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        extra = entry.module.partition(".")[0]
        if extra not in (ours.metadata.get_all("Provides-Extra") or ()):
            raise
        sys.stderr.write(f"{name}: {error.name} is not installed here: pip install '{distributions[0]}[{extra}]', in a "
                         f"checkout pip install ./raft '.[{extra}]'\n")
        return USAGE
    code: int = command()
    return code


def in_the_way(distributions: Sequence[str]) -> Iterator[str]:
    """Say of each package that would be imported in place of one of these distributions' where it is and whose."""
    for distribution in distributions:
        for name, ours, digest in _installed(distribution):
            package = name.removesuffix(_START)
            if f"{package}{_START}" == name and "/" not in package:
                found = _in_our_place(ours, digest, package, distributions)
                if found:
                    yield (f"{found}{_owners(package, distributions)}, so {package} is not that of {distribution}: "
                           f"uninstall what is in the way and install {distribution} again, or give each an "
                           "environment of its own")


def _installed(distribution: str) -> Iterator[tuple[str, Path, str]]:
    """Yield name, path and digest of each file as it was installed. ``metadata.files`` leaves out files that are gone,
    from Python 3.12 on."""
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        name, digest, *_ = [*row, "", ""]  # of a line that has no more, or nothing
        yield name, Path(str(found.locate_file(name))), digest


def _in_our_place(ours: Path, digest: str, package: str, distributions: Sequence[str]) -> str:
    """Return words for what is in the place of our package; "" if our package itself is there."""
    spec = find_spec(package)
    found = Path(spec.origin) if spec is not None and spec.origin else None
    if found is None:
        return f"{ours} is gone"
    if found.resolve() != ours.resolve():
        return "" if _is_checkout(found.parents[1], distributions) else f"{found} stands before {ours}"
    kind, _, recorded = digest.partition("=")
    if recorded:
        now = hashlib.new(kind, found.read_bytes()).digest()
        if urlsafe_b64encode(now).rstrip(b"=").decode() != recorded:
            return f"{found} was written over"
    return ""


def _is_checkout(folder: Path, distributions: Sequence[str]) -> bool:
    """Return whether the folder is a checkout of these distributions, which somebody put on the path on purpose."""
    for project in (folder / "pyproject.toml", folder / "raft" / "pyproject.toml"):
        if project.is_file() and any(
                f'name = "{name}"' in project.read_text(encoding="utf-8") for name in distributions):
            return True
    return False


def _owners(package: str, distributions: Sequence[str]) -> str:
    """Return words that name other distributions with a package of that name; "" if there are none."""
    others = sorted({f"{each.name} {each.version}" for each in metadata.distributions()
                     if each.name not in distributions and any(
                         str(file) in (f"{package}{_START}", f"{package}.py") for file in each.files or ())})
    return f" by {' and '.join(others)}" if others else ""
