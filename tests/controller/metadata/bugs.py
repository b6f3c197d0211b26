"""Which defects of RocketMQ's controller the metadata must be shown to be free of: a row each, and where it is known.

``test_bugs.py`` has the tests, ``test_BUG_<row>_...``; their docstrings say what holds here. Rows that concern
liveness, the server or brokers have their tests there. Reads test files as syntax; runs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs


@attrs.frozen
class Defect:
    source: str
    """An issue; or how it was found in the Java classes of 5.3 and 5.5: by running them, or by reading them."""
    what: str
    """What the original does."""


ROWS: dict[str, Defect] = {
    "K1": Defect(
        "apache/rocketmq#7163",
        "an election reads the table of heartbeats beside the log, so a replay may decide otherwise"),
    "K2": Defect(
        "executed, ReplicasInfoManager",
        "each failed election by the controller writes an epoch without a master: from 1 to 4 in one outage"),
    "K3": Defect(
        "apache/rocketmq#5009, #6382, #6383",
        "a group whose master is null is never elected for again by a controller"),
    "K4": Defect(
        "executed, ReplicasInfoManager",
        "an election by the controller before the first master raises the epoch and leaves an empty "
        "SyncStateSet: nobody can ever be elected"),
    "K5": Defect(
        "executed, ReplicasInfoManager",
        "the first election makes any id master, unregistered or dead"),
    "K6": Defect(
        "executed, ReplicasInfoManager",
        "a partial clean drops one of two tables' rows; the next id applied overwrites the group and forgets "
        "its members"),
    "K7": Defect(
        "executed, ReplicasInfoManager",
        "cleaning living brokers ignores the ids and removes the whole group"),
    "K8": Defect(
        "executed, ReplicasInfoManager",
        "without ids and without a master, cleaning removes living brokers"),
    "K9": Defect(
        "read, ReplicasInfoManager",
        "cleaning changes the SyncStateSet without an epoch and keeps a removed master as master"),
    "K10": Defect(
        "read, BrokerReplicaInfo",
        "an id applied out of order makes the counter point at an id in use, and registration stands still"),
    "K11": Defect(
        "read, ReplicasInfoManager",
        "an unchanged SyncStateSet is refused before the fences are asked, so a deposed master does not learn "
        "of it"),
    "K12": Defect(
        "apache/rocketmq#10578, #10579",
        "offsets are compared by a 32-bit difference"),
    "K13": Defect(
        "apache/rocketmq#4330",
        "right after an election only the new master is electable, although others hold all that was "
        "acknowledged"),
    "K14": Defect(
        "apache/rocketmq#10013, #10014",
        "an asynchronous learner becomes master, first or uncleanly"),
    "K15": Defect(
        "apache/rocketmq#6342",
        "broker and controller hold different SyncStateSets with one epoch"),
    "K16": Defect(
        "apache/rocketmq#5631",
        "a registering broker is told of a master that is dead"),
    "K17": Defect(
        "apache/rocketmq#5588, #5569",
        "no way to prefer a master"),
    "K18": Defect(
        "read, ReplicasInfoManager",
        "groups are keyed by broker name: two clusters share one group"),
    "K19": Defect(
        "read, DLedgerController",
        "events queued before a leader steps down run when it leads again"),
    "K20": Defect(
        "apache/rocketmq#7300, #7301, #5585, #5808",
        "no snapshot, or (5.5.0) an empty one: state is lost with the log"),
    "K21": Defect(
        "read, JRaftControllerStateMachine",
        "one entry that cannot be applied stops the state machine on every node"),
    "K22": Defect(
        "read, JRaftController",
        "liveness is judged by the caller's clock, which travels in the request"),
    "K23": Defect(
        "read, ReplicasInfoManager",
        "a missing check code is an exception without a meaning"),
    "K24": Defect(
        "read, DefaultElectPolicy",
        "priorities are compared by subtraction, which overflows for negative ones"),
    "K25": Defect(
        "read, ReplicasInfoManager",
        "cleaning without a cluster name takes every broker for dead"),
    "K26": Defect(
        "read, ReplicasManager",
        "an answer to ApplyBrokerId that is lost costs an id"),
    "K27": Defect(
        "read, ReplicasInfoManager",
        "a cleaned group that comes back starts at id 1 and epoch 1, below what its brokers know"),
}
"""Row -> defect."""

HAZARDS: dict[str, tuple[str, ...]] = {
    "H1": ("K9",), "H2": ("K6", "K27"), "H3": ("K10",), "H4": ("K12",), "H11": ("K2",),
}
"""Names of hazards that other lists use -> their rows here."""

TESTS = Path(__file__).with_name("test_bugs.py")
_NAME = re.compile(r"test_BUG_(K\d+)_\w+")


def rows_tested() -> Iterator[tuple[str, str, str]]:
    """(row, test, what holds here) of each test."""
    for node in ast.parse(TESTS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and (found := _NAME.fullmatch(node.name)):
            yield found[1], node.name, (ast.get_docstring(node) or "").partition("\n")[0]
