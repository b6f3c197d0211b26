"""Writes those parts of the reference that the code knows: keys, commands and their options, scenarios and results.

    python docs/generate.py            rewrite them
    python docs/generate.py --check    exit code 1 if one is not as the code says

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; what is around it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, Final, cast

import attrs

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
SOURCES: Final = REFERENCE.parent.parent
sys.path[:0] = [str(REFERENCE.parents[1]), str(REFERENCE.parent)]

import code_tables  # noqa: E402
import command_tables  # noqa: E402
import key_tables  # noqa: E402
import role_tables  # noqa: E402

from benchmarks import broker_figures, failover_timeline, rto_figures  # noqa: E402
from broker.config import PROFILES, QUICK  # noqa: E402
from broker.container.config import WITHOUT_MEANING as CONTAINER_WITHOUT_MEANING  # noqa: E402
from broker.container.config import ContainerConfig  # noqa: E402
from broker.idle_keys import FEATURES, NOT_OFFERED  # noqa: E402
from broker.moments import ORDERS  # noqa: E402
from broker.parts import configuration  # noqa: E402
from broker.schedule.levels import DelayLevels  # noqa: E402
from broker.sending import chains  # noqa: E402
from broker.sending.config import SendingConfig  # noqa: E402
from broker.timer.admission import Timers  # noqa: E402
from broker.timer.keys import TimerKeys  # noqa: E402
from broker.transactions.conversion import Conversion  # noqa: E402
from controller.admin.absent import ABSENT  # noqa: E402
from controller.admin.cli import parser as mqadmin_parser  # noqa: E402
from controller.config import WITHOUT_MEANING, ControllerConfig  # noqa: E402
from harness.chaos import compare  # noqa: E402
from harness.nemesis.faults import FAULTS  # noqa: E402
from harness.scenarios.interop import __main__ as _registers  # noqa: E402, F401  the scenarios
from harness.scenarios.interop import ownnames  # noqa: E402
from harness.scenarios.interop.report import read as read_results  # noqa: E402
from harness.scenarios.interop.scenario import SCENARIOS  # noqa: E402
from remoting.daemon.keys import names, written  # noqa: E402
from tests.coverage import record as coverage  # noqa: E402
from tests.harness import rediscovery  # noqa: E402
from tests.harness.rediscovered import ROWS as REDISCOVERED  # noqa: E402

RESULTS: Final = REFERENCE / "interop.json"
"""Written by ``python -m harness.scenarios.interop --report docs/reference/interop.json``."""

BROKER_FIGURES: Final = REFERENCE.parents[1] / "benchmarks" / "results" / "broker.json"
"""Written by ``python -m benchmarks.broker --json benchmarks/results/broker.json``."""

FAILOVERS: Final = BROKER_FIGURES.with_name("failover_timeline.json")
"""Written by ``python -m benchmarks.failover_timeline --json benchmarks/results/failover_timeline.json``."""
FAILOVERS_TOGETHER: Final = FAILOVERS.with_stem("failover_timeline_together")
"""The same with ``--together --kills 200``."""

RTO: Final = FAILOVERS.with_name("rto.json")
"""Written by ``python -m benchmarks.rto``."""
COMPARED: Final = FAILOVERS.with_name("compared.json")
"""Written by ``chaos compare --keep benchmarks/results/compared.json``."""

_PART: Final = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def keys(config: type[attrs.AttrsInstance] = ControllerConfig) -> Iterator[str]:
    """A row per key."""
    yield "| key | default | range | live | what it is |"
    yield "|---|---|---|---|---|"
    for name, field in names(config).items():
        default, meta = written(field.default), field.metadata
        bounds = f"{meta['least']}..{meta['most']}" if meta["least"] is not None else ", ".join(meta["choices"])
        cells = (f"`{name}`", f"`{default}`" if default else "", bounds, "yes" if meta["live"] else "", meta["about"])
        yield f"| {' | '.join(cells)} |"


def idle_keys(idle: Iterable[str] = WITHOUT_MEANING) -> Iterator[str]:
    """Keys of Java that nothing depends on."""
    yield fill(", ".join(f"`{name}`" for name in sorted(idle)) + ".", 120, break_on_hyphens=False)


def refused_keys() -> Iterator[str]:
    """Keys of Java that may have their default only."""
    rows = ", ".join(f"`{name}` ({f'`{default}`' if default else 'empty'})"
                     for name, default in sorted(NOT_OFFERED.items()))
    yield fill(f"{rows}.", 120, break_on_hyphens=False)


def feature_keys() -> Iterator[str]:
    """Keys of Java that ask for what is not here, and the value that asks for nothing."""
    yield "| key | asks for nothing | else it asks for |"
    yield "|---|---|---|"
    for name, missing in sorted(FEATURES.items()):
        yield f"| `{name}` | {f'`{missing.without}`' if missing.without else 'empty'} | {missing.feature} |"


def commands() -> Iterator[str]:
    """A section per command of mqadmin, with its options."""
    (subparsers,) = (
        action for action in mqadmin_parser()._actions if isinstance(action, argparse._SubParsersAction))
    abouts = {choice.dest: choice.help or "" for choice in subparsers._choices_actions}
    for name, sub in sorted(subparsers.choices.items()):
        yield f"### {name}"
        yield ""
        yield f"{abouts[name][:1].upper()}{abouts[name][1:]}."
        if sub.epilog:
            yield ""
            yield fill(" ".join(sub.epilog.split()), 120)
        yield ""
        yield "| option | |"
        yield "|---|---|"
        for action in sub._actions:
            if action.dest not in ("help", "namesrvAddr", "json", "tls", "tls_ca", "tls_cert", "tls_key"):
                yield f"| {_option(action)} | {_meaning(action)} |"
        yield ""


def absent_commands() -> Iterator[str]:
    """A row per reason, with the commands of the original that are not here for it."""
    yield "| not here | why |"
    yield "|---|---|"
    for why in dict.fromkeys(ABSENT.values()):
        yield f"| {', '.join(f'`{name}`' for name, each in ABSENT.items() if each == why)} | {why} |"


def scenarios() -> Iterator[str]:
    """A row per scenario and release of RocketMQ, with what its latest recorded run came to."""
    results = read_results(RESULTS)
    yield "| RocketMQ | scenario | what it shows | run |"
    yield "|---|---|---|---|"
    for release in sorted({release for each in SCENARIOS for release in each.releases}, reverse=True):
        for each in SCENARIOS:
            if release in each.releases:
                found = results.get((each.name, release))
                ran = f"{found.outcome}, Java {found.java}, {found.day}" if found is not None else "not yet"
                yield f"| {release} | `{each.name}` | {each.about} | {ran} |"


def send_rules() -> Iterator[str]:
    """A row per rule that a message passes on its way into a broker, in their order."""
    nobody = Timers(TimerKeys(), "", int, lambda slot_ms: 0, float)
    waiting = Conversion().rule, nobody.rule, DelayLevels().rule
    unserved, nothing = chains.Unserved(SendingConfig()), cast(Any, None)
    columns = (
        chains.of_sends(chains.DeadLetters(nothing, nothing, nothing), chains.Own({}, str), unserved, *waiting),
        chains.of_batches(unserved, *waiting), chains.of_given_back(*waiting))
    yield "| rule | what it does | a message | a batch | given back (36) |"
    yield "|---|---|---|---|---|"
    for each in dict.fromkeys(rule for chain in columns for rule in chain.rules):
        places = [str(chain.rules.index(each) + 1) if each in chain.rules else "" for chain in columns]
        yield f"| `{each.name}` | {each.about} | {' | '.join(places)} |"


def broker_moments() -> Iterator[str]:
    """A row per place of each moment that several parts of a broker are told of."""
    yield "| moment | when | place | what is done there | why in this order |"
    yield "|---|---|---|---|---|"
    for name, order in ORDERS.items():
        first = f"| `{name}` | {order.when} |"
        for number, (place, done) in enumerate(order.places.items(), 1):
            yield f"{first} {number}. {place} | {done} | {order.why if number == 1 else ''} |"
            first = "| | |"


def broker_benchmarks() -> Iterator[str]:
    """The tables of the recorded run, and on what it ran."""
    if not BROKER_FIGURES.exists():
        yield "Not run yet."
        return
    results = json.loads(BROKER_FIGURES.read_text())
    machine, settings = results["machine"], results["settings"]
    yield (f"{machine['cpus']} cores, all processes and the load on them, Python {machine['python']}; "
           f"{settings['rounds']} rounds of {settings['seconds']:g} s, in {results.get('took_s', 0) // 60} minutes.")
    yield ""
    yield from broker_figures.page(results)


def profiles() -> Iterator[str]:
    """A row per key that a profile of the broker sets."""
    yield f"| key | {' | '.join(f'`{name}`' for name in PROFILES)} |"
    yield "|---" * (1 + len(PROFILES)) + "|"
    for name in QUICK:
        yield f"| `{name}` | {' | '.join(values[name] for values in PROFILES.values())} |"


def rto() -> Iterator[str]:
    """What clients were not acknowledged to, from the recorded run."""
    yield from rto_figures.page(json.loads(RTO.read_text()))


def compared() -> Iterator[str]:
    """What each side lost under the same schedules, and for how long."""
    yield from compare.table(json.loads(COMPARED.read_text()))


def rto_summary() -> Iterator[str]:
    """The rows that say most, of our client."""
    yield from rto_figures.summary(json.loads(RTO.read_text())["rounds"])


def failovers(recorded: Path) -> Iterator[str]:
    """The moments of a failover, from the recorded run."""
    if not recorded.exists():
        yield "Not run yet."
        return
    yield from failover_timeline.page(json.loads(recorded.read_text()))


def own_properties() -> Iterator[str]:
    """Of messages, answers and JSON: each name with our prefix, the module that defines it, and who gets it."""
    yield from ("| name | defined in | `java_passes_over_names_of_ours` sends it to |", "|---|---|---|")
    for name, path in sorted(ownnames.prefixed().items()):
        yield f"| `{name}` | [`{path}`](../../{path}) | {', '.join(ownnames.seats(name))} |"


def own_fields() -> Iterator[str]:
    """Of headers: each field of ours, and who gets it."""
    yield from ("| header | field | `java_passes_over_names_of_ours` sends it to |", "|---|---|---|")
    for header, attribute in ownnames.fields():
        name = header.__name__
        yield f"| `{name}` | `{ownnames.wire(header, attribute)}` | {', '.join(ownnames.seats(name))} |"


def own_codes() -> Iterator[str]:
    """Requests of ours: of whom they are asked, and what becomes of RocketMQ's answer."""
    yield from ("| code | asked of | where it answers 3 |", "|---|---|---|")
    for code, (asked, becomes) in sorted(ownnames.CODES.items()):
        yield f"| {int(code)} | {asked} | {becomes} |"


def _option(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    takes = f" {metavar}" if action.nargs != 0 else ""
    return ", ".join(f"`{flag}`" for flag in action.option_strings) + (f" `{takes.strip()}`" if takes else "")


def _meaning(action: argparse.Action) -> str:
    return f"{action.help or ''}{'; needed' if action.required else ''}"


def questions() -> Iterator[str]:
    """A section per question to logs, with its columns."""
    from analysis.questions import QUESTIONS  # pyspark only where it is needed

    for each in QUESTIONS.values():
        yield f"## {each.name}"
        yield ""
        yield f"{each.asks} From: {each.source}."
        yield ""
        yield "| column | what it is |"
        yield "|---|---|"
        for name, meaning in each.columns.items():
            yield f"| `{name}` | {meaning} |"
        yield ""


def audit_findings() -> Iterator[str]:
    """A row per finding of the audit."""
    from analysis.questions.audit import KINDS
    from analysis.report.findings import AUDIT_ACTIONS

    yield "| finding | severity | what it is | what to do |"
    yield "|---|---|---|---|"
    for name, (severity, about) in KINDS.items():
        yield f"| `{name}` | {severity} | {about} | {AUDIT_ACTIONS[name]} |"


def report_bounds() -> Iterator[str]:
    """A row per bound, with the rule that it belongs to."""
    from analysis.report.findings import RULES, Bounds

    names = cast(Any, Bounds)(**{field.name: f"`{field.name}`" for field in attrs.fields(Bounds)})  # for their places
    yield "| rule | question | it is one where |"
    yield "|---|---|---|"
    for rule in RULES.values():
        if rule.question != "audit":
            yield f"| {rule.name} | `{rule.question}` | {rule.where(names)} |"
    yield ""
    yield "| bound | default |"
    yield "|---|---|"
    for field in attrs.fields(Bounds):
        yield f"| `{field.name}` | {field.default} |"


def faults() -> Iterator[str]:
    """A row per fault of the registry."""
    yield "| fault | arguments | what it does | what it takes |"
    yield "|---|---|---|---|"
    for each in FAULTS.values():
        arguments = "<br>".join(f"`{name}` = `{json.dumps(one.default)}`: {one.about}"
                                for name, one in each.arguments.items())
        needs = ", ".join(sorted(need.name.lower() for need in each.needs))
        yield f"| `{each.name}` | {arguments} | {each.about} | {needs} |"


SCRIPT_LINES: Final = 18


def rediscovered() -> Iterator[str]:
    """A row per planted bug, with what found it when it was last asked."""
    found = rediscovery.recorded()
    yield "| bug | what was wrong | planted as | found by | broken | seed, events | seconds | decisions or faults |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in REDISCOVERED:
        it = found[row.bug]
        events = f"{it.seed}, {it.events:,}" if it.events else str(it.seed)
        yield (f"| {row.bug} | {row.words} | {row.planted.name}: `{row.planted.file}` | `{row.command}` | "
               f"{it.failure} | {events} | {it.seconds:.1f} | {it.before:,} → {it.after:,} |")


def rediscovered_scripts() -> Iterator[str]:
    """What each needs, as it was told; of a long one, what happens between two faults is told together."""
    found = rediscovery.recorded()
    for row in REDISCOVERED:
        lines = found[row.bug].script
        if len(lines) > SCRIPT_LINES:
            lines = tuple(rediscovery.readable(lines))
        yield f"**{row.bug}**, {row.words}\n"
        yield "```text\n" + "\n".join(line[:150] for line in lines) + "\n```\n"


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "controller-keys": keys, "controller-idle-keys": idle_keys,
    "container-keys": partial(keys, ContainerConfig),
    "container-idle-keys": partial(idle_keys, CONTAINER_WITHOUT_MEANING),
    "broker-keys": partial(keys, configuration()), "broker-refused-keys": refused_keys,
    "broker-feature-keys": feature_keys,
    "mqadmin-absent": absent_commands, "mqadmin-commands": commands, "interop": scenarios, "send-rules": send_rules,
    "broker-moments": broker_moments, "broker-profiles": profiles, "rto": rto, "rto-summary": rto_summary,
    "compared": compared, "compared-summary": compared,
    "broker-benchmarks": broker_benchmarks, "failover-timeline": partial(failovers, FAILOVERS),
    "failover-timeline-together": partial(failovers, FAILOVERS_TOGETHER),
    "own-properties": own_properties, "own-fields": own_fields, "own-codes": own_codes, "questions": questions,
    "audit-findings": audit_findings, "report-bounds": report_bounds, "faults": faults,
    "rediscovered": rediscovered, "rediscovered-scripts": rediscovered_scripts,
    "coverage": coverage.by_package, "asked": coverage.asked,
    **role_tables.PARTS, **key_tables.PARTS, **code_tables.PARTS, **command_tables.PARTS}


def renewed(page: str) -> str:
    """The page with its parts as the code says. Raises ``KeyError`` for a part that nobody makes."""
    return _PART.sub(lambda found: found[1] + "\n".join(PARTS[found[2]]()).strip("\n") + "\n" + found[3], page)


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    stale = 0
    for path in [*sorted(REFERENCE.glob("*.md")), REFERENCE.parents[1] / "README.md"]:
        before = path.read_text(encoding="utf-8")
        after = renewed(before)
        if after != before:
            stale = 1
            print(f"{path.name}: {'is not as the code says' if options.check else 'written'}")
            if not options.check:
                path.write_text(after, encoding="utf-8")
    return stale if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
