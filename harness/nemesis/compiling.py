"""Small libraries in C, built where they are first needed and kept in the user's cache.

It knows compilers and files, and nothing of what a library does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from harness.nemesis.errors import NotHere

COMPILERS: Final = ("cc", "gcc", "clang")
_OPTIONS: Final = ("-O2", "-shared", "-fPIC")
_LIBRARIES: Final = ("-ldl", "-lpthread")


def cache() -> Path:
    """Return the folder of compiled programs: ``quorate`` below ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quorate"


def library(source: Path) -> Path:
    """Builds a library of one C file, unless the cache has it. Raises ``NotHere``."""
    text = source.read_bytes()
    name = f"{source.stem}-{hashlib.sha256(text + platform.machine().encode()).hexdigest()[:16]}.so"
    for folder in (cache(), Path(tempfile.gettempdir()) / f"quorate-{os.getuid()}"):
        if (folder / name).exists():
            return folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return _built(source, folder, name)
        except OSError:
            continue
    raise NotHere(f"{source.name} cannot be built: neither the cache nor the folder for temporary files can be written")


def _built(source: Path, folder: Path, name: str) -> Path:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NotHere(f"{source.name} cannot be built: there is no C compiler ({', '.join(COMPILERS)})")
    with tempfile.TemporaryDirectory(dir=folder) as made:
        target = Path(made) / name
        ran = subprocess.run([compiler, *_OPTIONS, "-o", str(target), str(source), *_LIBRARIES], capture_output=True,
                             text=True, check=False)
        if ran.returncode:
            raise NotHere(f"{source.name} cannot be built: {ran.stderr.strip().partition(chr(10))[0]}")
        return target.replace(folder / name)
