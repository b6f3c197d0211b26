"""Findings: answers that an operator should look at, each with the query that shows it and what to do about it.

A rule is a question and a condition on its answer, in SQL. Rules are the only place where something is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from analysis.questions import QUESTIONS
from analysis.questions.audit import CRITICAL, KINDS, NOTE, WARNING
from analysis.report.injected import Run, quoted

if TYPE_CHECKING:
    from analysis.logs import Logs

SEVERITIES: Final = (CRITICAL, WARNING, NOTE)
"""The worst first."""
SHOWN_OF_A_RULE: Final = 20


@attrs.frozen
class Bounds:
    """From where on something is a finding."""

    outage_ms: int = 5_000
    """A broker group without a master."""
    election_ms: int = 5_000
    terms_lost: int = 3
    """Consecutive terms that no candidate won."""
    leaderships: int = 5
    """So many in one group, when ``tenure_ms`` is their mean or less, are too many."""
    tenure_ms: int = 60_000
    commit_p99_ms: float = 1_000
    behind_entries: int = 10_000
    log_bytes: int = 8 << 30
    """A node's log of one group that no snapshot shortens."""
    flaps: int = 3


@attrs.frozen
class Finding:
    """One thing to look at. ``query`` is Python for a notebook with ``logs``; ``action`` says what to do."""

    severity: str
    title: str
    detail: str
    file: str | None
    offset: int | None
    query: str
    action: str
    rule: str
    count: int = 1
    """More than 1: there are so many like this one, which stand for all of them."""


@attrs.frozen
class _Rule:
    name: str
    question: str
    where: Callable[[Bounds], str]
    severity: str
    tell: Callable[[Mapping[str, Any]], tuple[str, str]]
    """Title and detail of a row."""
    narrow: tuple[str, ...]
    """Columns that tell this row from others."""
    action: str
    excused: Callable[[Run, Bounds, Logs], str] | None = None
    """SQL condition of rows that an injected fault explains; None: no fault explains any."""


_DAMAGE_ACTION: Final = (
    "Stop the node, keep a copy of its directory and run `raftlog verify DIR` on it. Then let the node join again with "
    "an empty directory (`join=True`, `raftctl reconfigure`): its peers have the entries. Check the disk.")
_SAFETY_ACTION: Final = (
    "This must never happen: keep the directories of all replicas as they are, stop the group's writers, and find out "
    "which software wrote the two histories before any node is started again.")
AUDIT_ACTIONS: Final[dict[str, str]] = {
    "crc": _DAMAGE_ACTION, "chain": _DAMAGE_ACTION, "empty": _DAMAGE_ACTION, "unreadable": _DAMAGE_ACTION,
    "cut": "At the end of the newest segment this is what a crash leaves, and the node cuts it off when it starts. "
           "Anywhere else, or in a copy, the file is incomplete: copy it again, or go on as for a failed checksum.",
    "missing": "Bring the segment back from the archive or a backup. If it is gone, wipe the node and let it rejoin.",
    "foreign": "Move the file out of the log's directory.",
    "version": "Read these logs with the version of this package that belongs to the nodes that wrote them.",
    "gap": _DAMAGE_ACTION, "term_regression": _SAFETY_ACTION, "log_mismatch": _SAFETY_ACTION,
    "committed_divergence": _SAFETY_ACTION, "two_leaders": _SAFETY_ACTION, "truncated_committed": _SAFETY_ACTION,
    "two_votes": "A node forgot its vote: its directory was restored from an older copy. Wipe that node and let it "
                 "rejoin under a new incarnation.",
    "stale_suffix": "Nothing, if the node is down or was stopped: the next leader cuts these entries off. If it is up, "
                    "`raftctl explain` says why the leader cannot reach it.",
}


def _group(row: Mapping[str, Any]) -> str:
    return f"{row['broker_cluster']}/{row['broker_name']}"


def _audit_rule(kind: str) -> _Rule:
    severity, about = KINDS[kind]
    return _Rule(
        f"audit: {kind}", "audit", lambda _: f"finding = '{kind}'", severity,
        lambda row: (about[:1].upper() + about[1:], row["detail"]), ("group", "node", "file", "offset"),
        AUDIT_ACTIONS[kind], _down if kind in ("cut", "stale_suffix") else None)


def _down(run: Run, _: Bounds, logs: Logs) -> str:
    return run.down("node", logs.span_ms[1])


def _slow(run: Run, bounds: Bounds, logs: Logs) -> str:
    """Groups with faults that are slow in no other time."""
    late = f"bucket_ms + {logs.bucket_ms}"
    others = logs.ask("commit_latency_over_time").where(
        f"p99_ms > {bounds.commit_p99_ms} and not ({run.within('`group`', late, 'bucket_ms')})")
    slow = {row["group"] for row in others.select("group").distinct().collect()}
    touched = {group for fault in run.faults for group in fault.groups} - slow
    return f"`group` in ({', '.join(map(quoted, sorted(touched)))})" if touched else "false"


_RULES: Final = (
    *map(_audit_rule, KINDS),
    _Rule("broker id", "broker_ids", lambda _: "true", CRITICAL,
          lambda row: (f"Broker id {row['broker_id']} of {_group(row)} is not one broker's alone", row["detail"]),
          ("broker_name", "broker_id"),
          "Two brokers answer to one id, usually by a copied store directory. Stop the newer one, remove its identity "
          "file (`brokerIdentity`), and start it again: it applies for an id of its own."),
    _Rule("unclean election", "master_changes", lambda _: "clean = false", CRITICAL,
          lambda row: (f"Unclean election in {_group(row)}",
                       f"broker {row['master']} became master in epoch {row['master_epoch']}, not having been in sync"),
          ("broker_name", "master_epoch"),
          "Messages that only the former master had are lost. Set enableElectUncleanMaster=false if that must not be, "
          "and look for why nobody in sync was alive."),
    _Rule("outage", "outages",
          lambda b: f"lasted_ms > {b.outage_ms}", WARNING,
          lambda row: (f"{_group(row)} had no master for {row['lasted_ms']} ms",
                       f"from {_when(row['lost_ms'])}; " + ("it has none to the end of the log"
                       if row["recovered_ms"] is None else f"then broker {row['new_master']} was elected")),
          ("broker_name", "index"),
          "See which brokers of the group were alive then: ask \"sync_state_sets\", and the brokers' own logs. A group "
          "with one broker in sync cannot fail over; give it more replicas or look for why they lag.",
          lambda run, *_: run.within("broker_name", "lost_ms", "lost_ms + lasted_ms")),
    _Rule("flapping", "sync_state_sets", lambda b: f"flaps >= {b.flaps}", WARNING,
          lambda row: (f"The SyncStateSet of {_group(row)} flaps",
                       f"{row['flaps']} times a broker left and was back within a minute, in {row['changes']} changes"),
          ("broker_name",),
          "A slave is at the edge of haMaxTimeSlaveNotCatchup: look at its disk and network, or raise that value.",
          lambda run, b, _: run.fewer("broker_name", "flaps", b.flaps)),
    _Rule("long election", "elections",
          lambda b: f"election_ms > {b.election_ms} or terms_lost > {b.terms_lost}", WARNING,
          lambda row: (f"A long election in group {row['group']}",
                       f"term {row['term']}, won by {row['leader']}: {row['rounds']} rounds, {row['election_ms']} ms, "
                       f"{'unknown' if row['terms_lost'] is None else row['terms_lost']} terms lost before"),
          ("group", "term"),
          "See whether a quorum could reach each other then. If votes are split again and again, spread the nodes' "
          "priorities or the election timeouts.",
          lambda run, *_: run.within("`group`", "wall_ms", "wall_ms")),
    _Rule("many leaders", "churn",
          lambda b: f"leaderships >= {b.leaderships} and mean_tenure_ms <= {b.tenure_ms}", WARNING,
          lambda row: (f"Group {row['group']} changes its leader often",
                       f"{row['leaderships']} leaderships, {row['mean_tenure_ms']:.0f} ms each in the mean"),
          ("group",),
          "Ask \"election_causes\": silence of a leader that lives points to stalls of its disk or process, or a lossy "
          "network; raise the election timeout only when that is ruled out.",
          lambda run, b, _: run.fewer("`group`", "leaderships", b.leaderships)),
    _Rule("slow commits", "commit_latency", lambda b: f"p99_ms > {b.commit_p99_ms}", WARNING,
          lambda row: (f"Commits of group {row['group']} are slow", f"99 in 100 within {row['p99_ms']:.0f} ms"),
          ("group",),
          "Ask \"commit_latency_over_time\" for when, and \"lag\" for whom the leader waits: a slow disk under a "
          "quorum of nodes shows in all groups at once.", _slow),
    _Rule("lagging replica", "lag", lambda b: f"behind_entries > {b.behind_entries}", WARNING,
          lambda row: (f"{row['node']} is behind in group {row['group']}",
                       f"its log ends {row['behind_entries']} entries before the group's longest"),
          ("group", "node"),
          "If the node runs, `raftctl explain` says what holds it back. While it is behind, the group has one failure "
          "less to spare.", _down),
    _Rule("hot group", "skew", lambda _: "hot", NOTE,
          lambda row: (f"Group {row['group']} is hot",
                       f"{row['share']:.0%} of all entries, {row['entries']} of them"),
          ("group",),
          "If the nodes that lead it are busy, move leaderships of other groups away from them, or split the group."),
    _Rule("no snapshots", "compaction", lambda b: f"log_bytes > {b.log_bytes}", NOTE,
          lambda row: (f"The log of {row['node']} for group {row['group']} is large",
                       f"{row['log_bytes']} bytes, the newest snapshot ends at {row['snapshot_index']}"),
          ("group", "node"),
          "Lower snapshot_log_bytes, or see in the node's log why snapshots fail. An archive is meant to be large."),
)
RULES: Final[dict[str, _Rule]] = {rule.name: rule for rule in _RULES}


def findings(logs: Logs, bounds: Bounds | None = None) -> list[Finding]:
    """Everything to look at, the worst first. Of a rule that many rows break, the first 20 and how many there are."""
    return judged(logs, bounds or Bounds(), Run())[0]


def judged(logs: Logs, limits: Bounds, run: Run) -> tuple[list[Finding], int]:
    """``findings``, and how many more there would be had nobody done what ``run`` says."""
    found, excused = list[Finding](), 0
    for question in dict.fromkeys(rule.question for rule in _RULES):
        rules = [rule for rule in _RULES if rule.question == question]
        whole = logs.short(question)
        if whole is not None and not whole.num_rows:
            continue
        for rule, count in zip(rules, _broken(logs.ask(question), [rule.where(limits) for rule in rules]), strict=True):
            condition = rule.where(limits)
            if count and run.faults and rule.excused is not None:
                condition = f"({condition}) and not coalesce({rule.excused(run, limits, logs)}, false)"
                (left,) = _broken(logs.ask(question), [condition])
                excused, count = excused + count - left, left
            if count:
                found += _of_rule(logs, rule, condition, count)
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity)), excused


def _broken(answer: DataFrame, conditions: Sequence[str]) -> list[int]:
    """Count the rows that meet each condition, in one pass."""
    row = answer.agg(*[F.count_if(F.expr(condition)) for condition in conditions]).collect()[0]
    return list(row)


def _of_rule(logs: Logs, rule: _Rule, condition: str, count: int) -> Iterator[Finding]:
    broken = logs.ask(rule.question).where(condition)
    rows = broken.orderBy(*QUESTIONS[rule.question].order()).limit(SHOWN_OF_A_RULE).collect()
    several = len({home.cluster for home in logs.known}) > 1
    for place, row in enumerate(rows):
        title, detail = rule.tell(row.asDict())
        if several:
            detail = f"cluster {row['cluster']}: {detail}"
        last = place == SHOWN_OF_A_RULE - 1 and count > SHOWN_OF_A_RULE
        yield Finding(
            rule.severity, title, detail, _field(row, "file"), _field(row, "offset"),
            _query(rule.question, condition, () if last else ("cluster", *rule.narrow), row), rule.action, rule.name,
            count - SHOWN_OF_A_RULE + 1 if last else 1)


def _query(question: str, condition: str, narrow: tuple[str, ...], row: Row) -> str:
    parts = [] if condition == "true" else [f"({condition})" if " or " in condition else condition]
    parts += [f"`{name}` = {_literal(row[name])}" for name in narrow if row[name] is not None]
    return f"logs.ask({question!r}).where({' and '.join(parts)!r})"


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else quoted(str(value))


def _field(row: Row, name: str) -> Any:
    return row.asDict().get(name)


def _when(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
