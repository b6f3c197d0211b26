"""Packs this project for workers on other machines: its packages as one zip, as ``--py-files`` takes it.

Workers load the data source and the replay of commands by name. What those import of others (pyarrow, numpy, attrs,
cbor2, google-crc32c, orjson) has parts in C and must be installed where the workers run.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

PACKAGES: Final = ("analysis", "controller", "raft", "remoting")


def package(path: Path) -> Path:
    """Write the zip to ``path``; the same sources give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in PACKAGES:
            spec = importlib.util.find_spec(name)
            assert spec is not None and spec.origin is not None, name
            root = Path(spec.origin).parent
            for file in sorted(root.rglob("*")):
                if file.suffix in (".py", ".css") and "__pycache__" not in file.parts:
                    entry = zipfile.ZipInfo(f"{name}/{file.relative_to(root).as_posix()}")
                    out.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def ship(spark: SparkSession) -> None:
    """Hand the packages to the session's workers; nothing to do where they run on this machine alone."""
    if not (spark.sparkContext.master or "local").startswith("local"):
        directory = tempfile.mkdtemp(prefix="quorate-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)  # late executors fetch it from here too
        spark.sparkContext.addPyFile(str(package(Path(directory) / "quorate.zip")))
