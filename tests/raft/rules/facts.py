"""Builders that the tests of both rule sets share: facts with sensible defaults, and the rows of the reference page."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from raft.config import Config
from raft.membership import Member, Membership
from raft.messages import Role, Vote, VoteReply, VoteResult
from raft.rules.interface import HeartbeatTally, Tally, VoteDecision, Voter

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "election-tables.md"
LEASE = Config().election_timeout_ms * 1_000_000
LONG_AGO = 1 << 60
THREE = Membership(("n0", "n1", "n2"))
FIVE = Membership(("n0", "n1", "n2", "n3", "n4"))


def combinations(*facts: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Every combination of one value of each."""
    return itertools.product(*facts)


def group(*voters: str, **roles: Any) -> Membership:
    return Membership(voters, **roles)


def with_priorities(**priorities: int) -> Membership:
    return Membership(tuple(priorities), members={name: Member(priority=p) for name, p in priorities.items()})


def voter(**facts: Any) -> Voter:
    """n0 of three: a follower in term 5 that has voted for nobody, knows no leader and heard none for long."""
    defaults: dict[str, Any] = {
        "node_id": "n0", "role": Role.FOLLOWER, "term": 5, "voted_for": None, "leader": None, "last_term": 4,
        "last_index": 10, "membership": THREE, "heard_leader_ns": LONG_AGO,
    }
    return Voter(**(defaults | facts))


def vote(**fields: Any) -> Vote:
    """A request in term 5 with the same log as ``voter()``'s."""
    return Vote(**({"group": 1, "term": 5, "round": 1, "last_index": 10, "last_term": 4} | fields))


def tally(results: dict[str, VoteResult], *, membership: Membership = THREE, term: int = 5, probe: bool = False,
          terms: dict[str, int] | None = None) -> Tally:
    """Answers of a round in ``term``; a voter's own term is one below for a probe and equal for a vote."""
    own = term - 1 if probe else term
    replies = {name: VoteReply(1, (terms or {}).get(name, own), 1, result, probe) for name, result in results.items()}
    return Tally(membership, term, probe, replies)


def beats(replies: dict[str, tuple[int, int]], *, membership: Membership = THREE, silence: int = 0) -> HeartbeatTally:
    """Answers to n0's heartbeats in term 5."""
    return HeartbeatTally(membership, "n0", 5, replies, silence)


def effect(decision: VoteDecision) -> str:
    """What a vote decision does to the voter, in the words of the reference page."""
    parts = [
        "takes the term" if decision.adopt_term else "",
        "records the vote" if decision.grant else "",
        "becomes a candidate" if decision.become_candidate else "",
        "remembers the term" if decision.known_term else "",
    ]
    return ", ".join(filter(None, parts)) or "none"


class _Bound(Random):
    """Draws always the least, or always the largest, of what is asked for."""

    def __init__(self, largest: bool) -> None:
        super().__init__(0)
        self._largest = largest

    def uniform(self, a: float, b: float) -> float:
        return b if self._largest else a

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is not None and step == 1
        return stop - 1 if self._largest else start


def span(draw: Callable[[Random], int]) -> tuple[int, int]:
    """The least and the largest that a drawn delay may be."""
    return draw(_Bound(largest=False)), draw(_Bound(largest=True))


def page_rows(prefix: str) -> dict[str, list[str]]:
    """Table rows of the reference page whose first cell starts with ``prefix``: id -> the other cells."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if re.fullmatch(prefix + r"\w+", cells[0]):
            assert cells[0] not in rows, f"{cells[0]} stands twice"
            rows[cells[0]] = cells[1:]
    return rows


def page_range(cell: str) -> tuple[float, float]:
    """``300..1000 ms`` -> (300, 1000). Any unit; the text before the numbers does not matter."""
    match = re.search(r"([\d.]+?)\.\.([\d.]+)", cell)
    assert match, cell
    return float(match[1]), float(match[2])
