"""Which logs lie under some paths: a raft node's directory has a file ``identity`` and a folder ``log``, a Java DLedger
one is called ``dledger-<selfId>`` and has a folder ``data``. Symbolic links are followed; what else is there is passed
over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

import attrs

from analysis.errors import NothingToRead
from analysis.source.filesystem import Tree
from raft.errors import WrongDirectory
from raft.storage.identity import read_identity
from raft.storage.interface import Files

DEPTH_MAX: Final = 32
JAVA_PREFIX: Final = "dledger-"
NO_CLUSTER: Final = ""
"""Cluster of what lies in a Java DLedger directory: no file there names one."""


@attrs.frozen
class Found:
    """A directory with a log. ``java``: in the layout of Java's DLedger."""

    tree: Tree
    java: bool


@attrs.frozen
class Home:
    """Whose directory it is. ``root``: without a scheme where it is on this machine."""

    cluster: str
    node: str
    root: str


def homes(logs: Sequence[Found]) -> list[Home]:
    """Of every log whose identity can be read."""
    known = []
    for each in logs:
        tree = each.tree
        if each.java:
            known.append(Home(NO_CLUSTER, tree.name().removeprefix(JAVA_PREFIX), tree.full_path()))
            continue
        try:
            identity = read_identity(cast(Files, tree))
        except (WrongDirectory, OSError):
            continue  # its damage is a row of the log's
        if identity is not None:
            known.append(Home(identity.cluster, identity.node_id, tree.full_path()))
    return known


def find_logs(paths: Sequence[str]) -> list[Found]:
    """Every log under these paths, each once. Raises ``NothingToRead`` for a path that has none."""
    found: dict[str, Found] = {}
    for path in paths:
        tree = Tree.of(path)
        try:
            here = {each.tree.root.rstrip("/"): each for each in _search(tree, 0)}
        except OSError as error:
            raise NothingToRead(f"{path} cannot be read: {error}") from error
        if not here:
            raise NothingToRead(_why_nothing(tree, path))
        found.update(here)
    return [found[root] for root in sorted(found)]


def _search(tree: Tree, depth: int) -> Iterator[Found]:
    entries = tree.entries()
    if entries is None:
        return
    files = {entry.name for entry in entries if not entry.is_dir}
    folders = {entry.name for entry in entries if entry.is_dir}
    if "identity" in files and "log" in folders:
        yield Found(tree, java=False)
    elif tree.name().startswith(JAVA_PREFIX) and "data" in folders:
        yield Found(tree, java=True)
    elif depth < DEPTH_MAX:
        for name in sorted(folders):
            yield from _search(tree.below(name), depth + 1)


def _why_nothing(tree: Tree, path: str) -> str:
    entries = tree.entries()
    if entries is None:
        if tree.is_file():
            return (f"{path} is a file; give the directory of a node (with its files 'identity' and 'log/'), or one "
                    "above it")
        return f"{path}: there is no such directory"
    if not entries:
        return f"{path} is empty: no Raft log and no DLedger directory is there"
    shown = ", ".join(entry.name for entry in entries[:3])
    if any(entry.name.endswith(".seg") for entry in entries):
        return f"{path} holds segments but not whose they are; give the node's directory, which has the file 'identity'"
    return (f"under {path} is no Raft log (a directory with 'identity' and 'log/') and no Java DLedger directory "
            f"('dledger-<id>' with 'data/'); it holds {shown}")
