"""Metrics of a reader, for people: a small JSON file for each task, in a directory that all tasks can write to."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from pyarrow import fs as arrow_fs

from analysis.files.filesystem import Tree


def leave(directory: str, **values: Any) -> None:
    """Write one file into ``directory``, which is made if need be."""
    system, path = arrow_fs.FileSystem.from_uri(directory if "://" in directory else os.path.abspath(directory))
    system.create_dir(path)
    with system.open_output_stream(f"{path}/{uuid.uuid4().hex}.json") as out:
        out.write(json.dumps(values).encode())


def collect(directory: str) -> dict[str, int]:
    """The sums over all files of ``directory``: bytes_read and segments of the tasks, planned_bytes of the plans."""
    tree = Tree.of(directory)
    sums: dict[str, int] = {}
    for name in tree.list(""):
        for key, value in json.loads(tree.read(name)).items():
            sums[key] = sums.get(key, 0) + value
    return sums
