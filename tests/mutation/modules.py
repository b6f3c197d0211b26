"""Which modules are mutated, and the quick tests that judge each: paths from the root, the nearest tests first.

A module of another package is judged by the tests that bear its name, or else by those of its directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

BUGS: Final = ("tests/raft/bugs/test_reads.py", "tests/raft/bugs/test_lives.py", "tests/raft/bugs/test_guards.py")
RULES: Final = ("tests/raft/rules", "tests/raft/bugs/test_elections.py", "tests/raft/bugs/test_dledger_regressions.py")
METADATA: Final = ("tests/controller/metadata",)
FILTERS: Final = ("tests/broker/filters/test_expressions.py", "tests/broker/filters/test_grammar.py",
                  "tests/broker/filters/test_nodes.py")

CORES: Final[dict[str, tuple[str, ...]]] = {
    "raft/quorum.py": ("tests/raft/test_quorum.py",),
    "raft/reads.py": ("tests/raft/test_reads.py", *BUGS),
    "raft/identities.py": ("tests/raft/test_identities.py", "tests/raft/bugs/test_memberships.py"),
    "raft/log.py": ("tests/raft/test_log.py", "tests/raft/bugs/test_guards.py"),
    "raft/membership.py": ("tests/raft/test_membership.py", "tests/raft/bugs/test_memberships.py"),
    "raft/progress.py": ("tests/raft/test_progress.py", "tests/raft/bugs/test_replies.py"),
    "raft/transfer.py": ("tests/raft/test_transfer.py", "tests/raft/bugs/test_liveness.py"),
    "raft/changes.py": ("tests/raft/test_changes.py", "tests/raft/bugs/test_memberships.py"),
    "raft/candidacy.py": ("tests/raft/test_candidacy.py", "tests/raft/bugs/test_elections.py"),
    "raft/following.py": (
        "tests/raft/test_following.py", "tests/raft/bugs/test_replication.py", "tests/raft/bugs/test_snapshots.py",
        "tests/raft/bugs/test_guards.py"),
    "raft/leadership.py": ("tests/raft/test_leadership.py", "tests/raft/test_leadership_answers.py",
                           "tests/raft/test_tracker.py"),
    "raft/replica.py": ("tests/raft/test_replica.py", "tests/raft/test_replica_inputs.py",
                        "tests/raft/test_snapshots.py", "tests/raft/test_identities.py"),
    "raft/snapshots.py": ("tests/raft/test_snapshots.py", "tests/raft/test_following.py",
                          "tests/raft/test_replica_inputs.py", "tests/raft/bugs/test_snapshots.py",
                          "tests/raft/bugs/test_guards.py"),
    "raft/tracker.py": ("tests/raft/test_tracker.py", "tests/raft/test_leadership.py",
                        "tests/raft/test_leadership_answers.py"),
    "raft/writes.py": ("tests/raft/test_writes.py",),
    "raft/rules/strict.py": RULES,
    "raft/rules/dledger.py": RULES,
    "raft/rules/rows.py": RULES,
    "raft/wire.py": ("tests/raft/test_wire.py", "tests/raft/bugs/test_resources.py"),
    "raft/frame.py": ("tests/raft/test_frame.py", "tests/raft/bugs/test_resources.py"),
    "controller/metadata/alter.py": ("tests/controller/metadata/test_alter.py", *METADATA),
    "controller/metadata/clean.py": ("tests/controller/metadata/test_clean.py", *METADATA),
    "controller/metadata/codec.py": ("tests/controller/metadata/test_codec.py", *METADATA),
    "controller/metadata/elect.py": ("tests/controller/metadata/test_elect.py", *METADATA),
    "controller/metadata/eligible.py": ("tests/controller/metadata/test_eligible.py", *METADATA),
    "controller/metadata/identity.py": ("tests/controller/metadata/test_identity.py", *METADATA),
    "controller/metadata/imports.py": ("tests/controller/metadata/test_imports.py", *METADATA),
    "controller/metadata/machine.py": ("tests/controller/metadata/test_machine.py", *METADATA),
    "controller/metadata/policy.py": ("tests/controller/metadata/test_policy.py", *METADATA),
    "controller/metadata/resolve.py": ("tests/controller/metadata/test_resolve.py", *METADATA),
    "controller/metadata/snapshot.py": ("tests/controller/metadata/test_snapshot.py", *METADATA),
    "broker/filters/bloom.py": ("tests/broker/filters/test_bloom.py",),
    "broker/filters/expressions.py": FILTERS,
    "broker/filters/grammar.py": FILTERS,
    "broker/filters/nodes.py": FILTERS,
    "broker/filters/numbers.py": ("tests/broker/filters/test_numbers.py", *FILTERS),
    "broker/filters/table.py": ("tests/broker/filters/test_table.py",),
    "broker/filters/tokens.py": ("tests/broker/filters/test_tokens.py", *FILTERS),
}
"""The cores of ``raft``, ``controller.metadata`` and ``broker.filters``."""


def modules(package: str, root: Path) -> list[str]:
    """What ``PACKAGE=`` means: a dotted package or a module's path; the cores of it, or else all of it."""
    path = package if package.endswith(".py") else package.replace(".", "/")
    if path in CORES:
        return [path]
    cores = [name for name in CORES if name.startswith(f"{path}/")]
    if cores:
        return cores
    whole = root / path
    found = [whole] if whole.is_file() else sorted(whole.rglob("*.py"))
    return [each.relative_to(root).as_posix() for each in found if each.name not in ("__init__.py", "__main__.py")]


def judges_of(module: str, root: Path) -> tuple[str, ...]:
    """The tests that judge this module."""
    if module in CORES:
        return CORES[module]
    directory, _, name = module.rpartition("/")
    named = f"tests/{directory}/test_{name}"
    while not (root / "tests" / directory).is_dir():
        directory = directory.rpartition("/")[0]
    return (named,) if (root / named).exists() else (f"tests/{directory}",)
