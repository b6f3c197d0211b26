"""Which modules are mutated, and the quick tests that judge each: paths from the root, the nearest tests first.

A module of another package is judged by the tests that bear its name, or else by those of its directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

BUGS: Final = ("tests/raft/bugs/test_reads.py", "tests/raft/bugs/test_lives.py", "tests/raft/bugs/test_guards.py")
RULES: Final = ("tests/raft/rules", "tests/raft/bugs/test_elections.py", "tests/raft/bugs/test_dledger_regressions.py")
METADATA: Final = ("tests/controller/metadata",)
VALUES: Final = tuple(f"tests/controller/metadata/test_{name}.py" for name in (
    "codec", "machine", "elect", "identity", "lives", "snapshot"))
FORGOTTEN: Final = ("tests/raft/test_forgotten.py", "tests/raft/bugs/test_standing.py",
                    "tests/raft/bugs/test_guards.py")
STORES: Final = ("tests/raft/storage/test_recovery.py", "tests/raft/storage/test_format.py",
                 "tests/raft/storage/test_segment.py")
FILTERS: Final = ("tests/broker/filters/test_nodes.py", "tests/broker/filters/test_grammar.py",
                  "tests/broker/filters/test_expressions.py")

CORES: Final[dict[str, tuple[str, ...]]] = {
    "raft/arguments.py": ("tests/raft/test_arguments.py",),
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
    "raft/voting.py": ("tests/raft/test_voting.py", "tests/raft/test_candidacy.py", "tests/raft/bugs/test_elections.py",
                       "tests/raft/test_replica.py",
                       "tests/raft/bugs/test_dledger_regressions.py", *RULES, *FORGOTTEN),
    "raft/regaining.py": ("tests/raft/test_outlived.py", *FORGOTTEN),
    "raft/standstill.py": ("tests/raft/test_standstill.py", *FORGOTTEN),
    "raft/held.py": ("tests/raft/test_held.py", "tests/raft/test_following.py", *FORGOTTEN),
    "raft/lives.py": ("tests/raft/test_outlived.py", "tests/raft/bugs/test_lives.py"),
    "raft/memberrules.py": ("tests/raft/test_memberrules.py", "tests/raft/test_invariants.py"),
    "raft/survey.py": ("tests/raft/test_survey.py", "tests/raft/test_explain.py"),
    "raft/probes.py": ("tests/raft/test_probes.py",),
    "raft/hello.py": ("tests/raft/test_hello.py", "tests/raft/test_outlived.py"),
    "raft/clientwire.py": ("tests/raft/test_clientwire.py", "tests/raft/test_clientserver.py"),
    "raft/access.py": ("tests/raft/test_access.py",),
    "raft/groups.py": ("tests/raft/test_groups.py", "tests/raft/test_quiet_groups.py"),
    "raft/snapshotmeta.py": ("tests/raft/test_snapshotmeta.py", "tests/raft/bugs/test_snapshots.py"),
    "raft/storage/blocks.py": STORES,
    "raft/storage/catalog.py": ("tests/raft/storage/test_catalog.py", *STORES),
    "raft/storage/identity.py": ("tests/raft/storage/test_identity.py",),
    "raft/storage/inlining.py": ("tests/raft/storage/test_inlining.py", "tests/raft/storage/test_writer.py"),
    "raft/storage/place.py": ("tests/raft/storage/test_place.py",),
    "raft/storage/recovery.py": STORES,
    "raft/storage/smallfile.py": ("tests/raft/storage/test_smallfile.py", "tests/raft/storage/test_place.py"),
    "raft/storage/trouble.py": ("tests/raft/storage/test_trouble.py",),
    "controller/metadata/alter.py": ("tests/controller/metadata/test_alter.py", *METADATA),
    "controller/metadata/clean.py": ("tests/controller/metadata/test_clean.py", *METADATA),
    "controller/metadata/codec.py": ("tests/controller/metadata/test_codec.py", *METADATA),
    "controller/metadata/elect.py": ("tests/controller/metadata/test_elect.py", *METADATA),
    "controller/metadata/commands.py": VALUES,
    "controller/metadata/fields.py": VALUES,
    "controller/metadata/groups.py": VALUES,
    "controller/metadata/outcomes.py": VALUES,
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
_TYPES: Final = "types and constants: what they are used for is changed where it is done"
_JUDGE: Final = "it judges the others, and its own tests break each of its properties on purpose"
_WORDS: Final = "it makes words for people: what decides is changed where it is decided"
EXCUSED: Final[dict[str, str]] = {
    **dict.fromkeys((
        "raft/config.py", "raft/errors.py", "raft/messages.py", "raft/status.py", "raft/statemachine.py",
        "raft/surroundings.py", "raft/violation.py", "raft/storage/interface.py", "raft/rules/interface.py"), _TYPES),
    **dict.fromkeys((
        "raft/bounds.py", "raft/forgotten.py", "raft/invariants.py", "raft/shadow.py",
        "controller/metadata/invariants.py"), _JUDGE),
    **dict.fromkeys(("raft/explain.py", "raft/trace.py", "controller/metadata/events.py"), _WORDS),
    **dict.fromkeys((
        "raft/storage/memory.py", "raft/storage/model.py"),
        "a storage for simulations and tests, which ask the same of it as of the segment log"),
    **dict.fromkeys((
        "raft/examples/commands.py", "raft/examples/dictionary.py", "raft/examples/locks.py",
        "raft/examples/queue.py"), "an example: a group's safety does not hang on what its machine does"),
}
"""Cores that the machine leaves alone, and why."""


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
