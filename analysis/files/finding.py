"""Finds the logs under some paths.

A raft node's directory has a file ``identity`` and a folder ``log``; Java's DLedger has ``dledger-<selfId>`` with a
folder ``data``. Symbolic links are followed, to each directory once. Everything else is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

import attrs

from analysis.errors import NothingToRead
from analysis.files.filesystem import Entry, Tree
from raft.errors import WrongDirectory
from raft.storage.identity import read_identity
from raft.storage.interface import Files

DEPTH_MAX: Final = 32
JAVA_PREFIX: Final = "dledger-"
LOST_AND_FOUND: Final = "lost+found"
"""Folder of a mounted file system: only root may read it, and no log lies in it."""
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
    """Return the home of every log whose identity can be read."""
    known = []
    for each in logs:
        tree = each.tree
        if each.java:
            known.append(Home(NO_CLUSTER, tree.name().removeprefix(JAVA_PREFIX), tree.full_path()))
            continue
        try:
            identity = read_identity(cast(Files, tree))
        except (WrongDirectory, OSError):
            continue  # reading that log gives a row for the damage
        if identity is not None:
            known.append(Home(identity.cluster, identity.node_id, tree.full_path()))
    return known


def find_logs(paths: Sequence[str]) -> list[Found]:
    """Every log under these paths, each once. Raises ``NothingToRead`` for a path that has none."""
    found: dict[str, Found] = {}
    for path in paths:
        tree = Tree.of(path)
        try:
            here = {each.tree.place(): each for each in _search(tree)}
        except OSError as error:
            raise NothingToRead(f"{path} cannot be read: {error}") from error
        if not here:
            raise NothingToRead(_why_nothing(tree, path))
        found = here | found
    return sorted(found.values(), key=lambda each: each.tree.root)


def _search(top: Tree) -> Iterator[Found]:
    for tree, entries in directories(top, into=lambda tree, entries: _java(tree, entries) is None):
        java = _java(tree, entries)
        if java is not None:
            yield Found(tree, java)


def _java(tree: Tree, entries: Sequence[Entry]) -> bool | None:
    """Return whether a directory is Java's; None: it holds no log."""
    folders = {entry.name for entry in entries if entry.is_dir}
    if "log" in folders and any(entry.name == "identity" and not entry.is_dir for entry in entries):
        return False
    return True if tree.name().startswith(JAVA_PREFIX) and "data" in folders else None


def directories(
    top: Tree, into: Callable[[Tree, Sequence[Entry]], bool] = lambda _tree, _entries: True,
) -> Iterator[tuple[Tree, list[Entry]]]:
    """``top`` and the directories below it, each once, with what is in them; ``into``: whether to go further down.

    Links are gone after last, so that what has a name of its own below goes by that. Raises ``OSError``.
    """
    waiting = [(top, 0)]
    links: list[tuple[Tree, int]] = []
    seen: set[str] = set()
    while waiting or links:
        tree, depth = (waiting or links).pop()
        entries = tree.entries()
        if entries is None or tree.place() in seen:
            continue
        seen.add(tree.place())
        yield tree, entries
        if depth < DEPTH_MAX and into(tree, entries):
            for entry in entries:
                if entry.is_dir and entry.name != LOST_AND_FOUND:
                    (links if entry.is_link else waiting).append((tree.below(entry.name), depth + 1))


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
