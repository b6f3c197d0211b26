"""Election rules: pure decisions, chosen once per group in its config. All members of a group run the same set."""

from __future__ import annotations

from raft.config import Config, Rules
from raft.rules.dledger import DLedgerRules
from raft.rules.interface import ElectionRules
from raft.rules.strict import StrictRules


def make_rules(config: Config) -> ElectionRules:
    """The rule set that ``config.rules`` names."""
    if config.rules is Rules.DLEDGER:
        return DLedgerRules(config)
    return StrictRules(config)
