"""What every command of the distribution does first: it makes sure that the packages it is about to import are ours.

``pip install broker`` fetches somebody else's package of that name, which pip writes over ours without a word. The
commands themselves are entry points of the group ``quorate.commands``; one in a package that is an extra, too, says
what to install where its libraries are missing. An editable install lists no packages, and a checkout that is not
installed has no commands: nothing is asked there.
"""

from __future__ import annotations

import hashlib
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from remoting.daemon.version import DISTRIBUTION

GROUP: Final = "quorate.commands"
DISTRIBUTIONS: Final = (DISTRIBUTION, "quorate-raft")
IN_THE_WAY: Final = 1
USAGE: Final = 2
_START: Final = "/__init__.py"


def main() -> int:
    """The command by whose name this was started."""
    name = Path(sys.argv[0]).stem
    for fault in in_the_way():
        sys.stderr.write(f"{name}: {fault}\n")
        return IN_THE_WAY
    ours = metadata.distribution(DISTRIBUTION)
    (entry,) = ours.entry_points.select(group=GROUP, name=name)
    try:
        run = entry.load()
    except ModuleNotFoundError as error:
        extra = entry.module.partition(".")[0]
        if extra not in (ours.metadata.get_all("Provides-Extra") or ()):
            raise
        sys.stderr.write(f"{name}: {error.name} is not installed here: pip install '{DISTRIBUTION}[{extra}]', in a "
                         f"checkout pip install ./raft '.[{extra}]'\n")
        return USAGE
    code: int = run()
    return code


def in_the_way() -> Iterator[str]:
    """In words, each package that would be imported in the place of ours, and whose it is."""
    for distribution in DISTRIBUTIONS:
        try:
            files = metadata.files(distribution) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            package = str(file).removesuffix(_START)
            if f"{package}{_START}" == str(file) and "/" not in package:
                fault = _fault(file, package)
                if fault:
                    yield (f"{fault}{_owners(package)}, so {package} is not that of {distribution}: uninstall what is "
                           f"in the way and install {distribution} again, or give each an environment of its own")


def _fault(file: metadata.PackagePath, package: str) -> str:
    """What is in the place of a package; "" if it is there itself."""
    ours = Path(str(file.locate()))
    spec = find_spec(package)
    found = Path(spec.origin) if spec is not None and spec.origin else None
    if found is None:
        return f"{ours} is gone"
    if found.resolve() != ours.resolve():
        return "" if _is_checkout(found.parents[1]) else f"{found} stands before {ours}"
    if file.hash is not None:
        digest = hashlib.new(file.hash.mode, found.read_bytes()).digest()
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            return f"{found} was written over"
    return ""


def _is_checkout(folder: Path) -> bool:
    """Of our own tree: whoever puts that on the path means it."""
    project = folder / "pyproject.toml"
    return project.is_file() and f'name = "{DISTRIBUTION}"' in project.read_text(encoding="utf-8")


def _owners(package: str) -> str:
    """Others that have a package of that name."""
    others = sorted({f"{each.name} {each.version}" for each in metadata.distributions()
                     if each.name not in DISTRIBUTIONS and any(
                         str(file) in (f"{package}{_START}", f"{package}.py") for file in each.files or ())})
    return f" by {' and '.join(others)}" if others else ""
