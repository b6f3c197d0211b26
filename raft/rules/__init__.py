"""Election rules: pure decisions. A group's config chooses a set, and all its members run the same."""

from __future__ import annotations

from raft.config import Config, Rules
from raft.rules.dledger import DLedgerRules
from raft.rules.interface import ElectionRules
from raft.rules.strict import StrictRules


def make_rules(config: Config) -> ElectionRules:
    """Make the rule set that ``config.rules`` names."""
    if config.rules is Rules.DLEDGER:
        return DLedgerRules(config)
    return StrictRules(config)
