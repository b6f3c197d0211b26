"""``chaos check HISTORY``: the verdict on a history of clients, in any known format.

Knows files and the command line; ``harness.checkers`` judges.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
import orjson

from harness.chaos.subcommand import CODES, Refused
from harness.checkers import chosen, controllers, linearizability, queues, recovery, verdict
from harness.checkers.models import UnknownOperation
from harness.checkers.verdict import Valid, Verdict
from harness.histories.events import APART, INVOKE, Event, HistoryError, short
from harness.histories.reading import EVENTS_MAX, FORMATS, OPENCHAOS, Source, open_history
from harness.torture.directory import GROUPS

NAME: Final = "check"
ABOUT: Final = "judge a history: ours, Jepsen's, OpenChaos', or a table"
LINEARIZABLE: Final = "linearizable"
RECOVERY: Final = "recovery"
HISTORY: Final = "history"
EVENT_BYTES: Final = 500
"""Memory of an event that is kept, if its value is short."""
_WORDS: Final = {Valid.TRUE: "holds", Valid.FALSE: "BROKEN", Valid.UNKNOWN: "UNKNOWN"}
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("history", type=Path, metavar="HISTORY",
                        help="JSON lines, Jepsen's EDN or text, OpenChaos' file, a CSV, each also with .gz; or a run's "
                             "directory")
    parser.add_argument("--format", choices=FORMATS, help="default: as the file looks")
    parser.add_argument("--checker", action="append", metavar="NAME",
                        help=f"{LINEARIZABLE}, {chosen.QUEUE}, {chosen.CONTROLLERS}, {RECOVERY}, or FILE.py:FUNCTION; "
                             "may be given again; default: what fits")
    parser.add_argument("--model", metavar="NAME",
                        help="register, set, log, kv, fifo, mutex, or FILE.py:CLASS; default: what fits")
    parser.add_argument("--keyed", action=argparse.BooleanOptionalAction,
                        help="Jepsen's values are [key value]; default: as they look")
    parser.add_argument("--ordered", action="store_true", help="queues keep order, by key")
    parser.add_argument("--no-duplicates", action="store_true", help="nothing may come twice")
    parser.add_argument("--drained", action="store_true",
                        help="consumers had received all there was when the history ended, though no drain says so")
    parser.add_argument("--not-promised", action="append", default=[], choices=queues.PROMISES, metavar="PROMISE",
                        help="of a queue: counted and told, and breaks nothing; may be given again")
    parser.add_argument("--delayed", action="store_true",
                        help="messages are due later: where the history does not say when, nothing was asked")
    parser.add_argument("--early-ms", type=int, default=0, metavar="MS",
                        help="a delayed message may come so much before it is due; default: %(default)s")
    parser.add_argument("--late-ms", type=int, metavar="MS", help="a delayed message that comes later is a fault")
    parser.add_argument("--accepted-within-ms", type=int, metavar="MS",
                        help="a key that accepts again only later after a fault breaks the promise `within`")
    parser.add_argument("--memory", type=_bytes, default=linearizability.MEMORY_BYTES, metavar="SIZE",
                        help="of a checker, as 512M; beyond it the verdict is unknown; default: 2G")
    parser.add_argument("--steps-max", type=int, default=linearizability.STEPS_MAX, metavar="N",
                        help="of the search for an order; beyond it the verdict is unknown; default: %(default)s")
    parser.add_argument("--events-max", type=int, default=EVENTS_MAX, metavar="N", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="the verdict as JSON")


def _bytes(text: str) -> int:
    size = _UNITS.get(text[-1:].lower(), 0)
    number = int(text[:-1] if size else text) * (size or 1)
    if number <= 0:
        raise argparse.ArgumentTypeError("a size is a positive number, with K, M or G or none")
    return number


@attrs.define
class _Seen:
    """Counts the events of a history as they are read."""

    events: int = 0
    types: Counter[str] = attrs.field(factory=Counter)
    functions: Counter[str] = attrs.field(factory=Counter)
    processes: set[Any] = attrs.field(factory=set)
    end_ns: int = 0

    def through(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            self.events += 1
            self.end_ns = event.time_ns
            if event.process not in APART:
                self.types[event.type] += 1
                self.processes.add(event.process)
                if event.type == INVOKE:
                    self.functions[event.f] += 1
            yield event

    def words(self) -> str:
        unknown = self.types[INVOKE] - self.types["ok"] - self.types["fail"]
        return (f"{self.types[INVOKE]:,} operations ({self.types['ok']:,} ok, {self.types['fail']:,} failed, "
                f"{unknown:,} unknown) of {len(self.processes):,} processes: "
                f"{', '.join(sorted(self.functions)) or 'none'}")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    source, seen, verdicts = _asked(options)
    if options.json:
        print(orjson.dumps(verdict.as_json(verdicts), default=str, option=orjson.OPT_INDENT_2).decode())
    else:
        print(f"{source.path}: {FORMATS[source.format]}, {seen.words()}")
        for each in verdicts:
            print("\n".join(told(each)))
    return CODES[verdict.merged(verdicts)]


def _asked(options: argparse.Namespace) -> tuple[Source, _Seen, list[Verdict]]:
    if (options.history / GROUPS).is_dir():
        raise Refused(f"{options.history} is a run of groups: name one of {options.history / GROUPS}")
    source = open_history(options.history, options.format, keyed=options.keyed, events_max=options.events_max)
    seen = _Seen()
    try:
        return source, seen, judged(source, seen.through(source.events), options)
    except (chosen.NotChosen, UnknownOperation) as error:
        raise Refused(str(error)) from None


def of_history(path: Path) -> dict[str, Any]:
    """The content of ``verdict.json`` for a history; empty if no checker fits. Raises ``HistoryError``."""
    try:
        return verdict.as_json(verdicts_of([str(path)]))
    except Refused:
        return {}


def verdicts_of(line: Sequence[str]) -> list[Verdict]:
    """The verdicts for a command line of ``chaos check``. Raises ``Refused`` and ``HistoryError``."""
    return _asked(parsed(line))[2]


def require(line: Sequence[str]) -> None:
    """Check a command line before there is a history: its checkers and its model must exist. Raises ``Refused`` and
    ``NotChosen``."""
    options = parsed(line)
    for name in options.checker or ():
        if name not in (LINEARIZABLE, RECOVERY, chosen.QUEUE, chosen.CONTROLLERS):
            chosen.checker(name)
    if options.model:
        chosen.model(options.model)


def parsed(line: Sequence[str]) -> argparse.Namespace:
    """The options of a command line of ``chaos check``. Raises ``Refused``."""
    parser = _Quiet()
    arguments(parser)
    return parser.parse_args(line)


class _Quiet(argparse.ArgumentParser):
    """Prints no usage: the command line is of a scenario."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def judged(source: Source, events: Iterator[Event], options: argparse.Namespace) -> list[Verdict]:
    """The verdict of each checker. A queue check alone is one pass; else the history is held, within ``--memory``."""
    rules = queues.Rules(
        ordered=options.ordered, once=options.no_duplicates, drained=options.drained or source.format == OPENCHAOS,
        delayed=options.delayed, early_ms=options.early_ms, late_ms=options.late_ms, memory_bytes=options.memory,
        not_promised=frozenset(options.not_promised))
    names = options.checker or []
    if names == [chosen.QUEUE]:
        return [queues.check(events, rules)]
    held = list(itertools.islice(events, options.memory // EVENT_BYTES + 1))
    if len(held) * EVENT_BYTES > options.memory:
        return [Verdict(HISTORY, Valid.UNKNOWN, f"more than {len(held) - 1:,} events need more memory than "
                        f"{options.memory:,} bytes (--memory); --checker {chosen.QUEUE} alone keeps none of them",
                        {"events": len(held)})]
    if not names:
        fits = LINEARIZABLE if options.model else chosen.fitting(chosen.functions(held))
        names = [fits if fits in {chosen.QUEUE, chosen.CONTROLLERS} else LINEARIZABLE]
    made = []
    for name in names:
        if name == chosen.QUEUE:
            made.append(queues.check(held, rules))
        elif name == chosen.CONTROLLERS:
            made.append(controllers.check(held))
        elif name == RECOVERY:
            made.append(_recovery(held, _faults(options.history, held), options.accepted_within_ms))
        elif name == LINEARIZABLE:
            made.append(_linearizable(held, options))
        else:
            made.append(_of_users(name, held))
    if not options.checker:  # the default shows recovery times where there are any
        figures = _recovery(held, _faults(options.history, held), options.accepted_within_ms)
        made += [figures] if figures.valid is not Valid.UNKNOWN else []
    return made


def _of_users(name: str, held: list[Event]) -> Verdict:
    """Ask a user's own checker. Raises ``Refused`` if it fails or returns no verdict."""
    try:
        found = chosen.checker(name)(held)
    except chosen.NotChosen:
        raise
    except Exception as error:
        raise Refused(f"the checker {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, Verdict):
        raise Refused(f"the checker {name} returned {short(found)}; a harness.checkers.verdict.Verdict is wanted")
    return found


def _linearizable(held: Sequence[Event], options: argparse.Namespace) -> Verdict:
    model = options.model or chosen.fitting(chosen.functions(held))
    if model == chosen.QUEUE:
        model = "fifo"
    limits = linearizability.Limits(options.steps_max, options.memory)
    progress = partial(_progress, model) if sys.stderr.isatty() else None
    return linearizability.check(held, chosen.model(model), limits=limits, name=f"{LINEARIZABLE} {model}",
                                 progress=progress)


def _progress(model: str, decided: int, keys: int) -> None:
    sys.stderr.write(f"\r{model}: {decided:,} of {keys:,} keys decided" + ("\n" if decided == keys else ""))


def _faults(path: Path, held: Iterable[Event]) -> list[recovery.Fault]:
    """Faults from a run's ``nemesis.jsonl``, else from the history. Raises ``HistoryError``."""
    file = path / "nemesis.jsonl"
    if not path.is_dir() or not file.exists():
        return recovery.faults_of(held)
    rows = []
    for line, text in enumerate(file.read_bytes().splitlines(), 1):
        try:
            row = orjson.loads(text)
            recovery.faults_from_json([row])
            rows.append(row)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise HistoryError(line, f"{file.name}: no fault ({error}): it has fault, phase and time_ns") from None
    return recovery.faults_from_json(rows)


def _recovery(held: Sequence[Event], faults: Sequence[recovery.Fault], within_ms: int | None) -> Verdict:
    """Return the verdict on recovery: true if each key accepts again after its last fault, within ``within_ms``."""
    found = recovery.recoveries(held, faults)
    asked = {"faults": len(faults), "recoveries": len(found)}
    if not faults or not found:
        return Verdict(RECOVERY, Valid.UNKNOWN, "no fault with sends after it: nothing was asked", asked)
    words: list[str] = []
    numbers: dict[str, int] = {}
    for name in recovery.DEFINITIONS:
        figures = recovery.figures(found, name)
        if figures is not None:
            numbers |= {f"{name} p50_ms": round(figures.p50), f"{name} most_ms": round(figures.most)}
            words.append(f"{name} p50 {figures.p50:,.0f}, p99 {figures.p99:,.0f}, most {figures.most:,.0f} ms "
                         f"({figures.seen} of {figures.seen + figures.missing})")
    never = recovery.unserved(found)
    broken = [verdict.Breach("recovered", f"{each.key} accepted nothing more after {each.fault.name} at "
                                          f"{each.fault.start_ns / 1e9:.1f} s")
              for each in never[:verdict.SHOWN]]
    if within_ms is not None:
        late = [each for each in recovery.outages(held, faults) if each.ms > within_ms]
        broken += [verdict.Breach("within", _late(each, within_ms)) for each in late[:verdict.SHOWN]]
    if not broken and not any(each.tried or each.accepted is not None for each in found):
        return Verdict(RECOVERY, Valid.UNKNOWN, "nobody sent anything when a fault was over: nothing was asked", asked)
    return Verdict(RECOVERY, Valid.FALSE if broken else Valid.TRUE, "; ".join(words) or "it accepted nothing", asked,
                   broken=broken, figures=numbers)


def _late(each: recovery.Outage, within_ms: int) -> str:
    what = "accepted something" if each.over else "had accepted nothing"
    more = f", with {each.later} more faults meanwhile" if each.later else ""
    return (f"{each.key} {what} {each.ms:,.0f} ms after {each.fault.name} at {each.fault.start_ns / 1e9:.1f} s{more}, "
            f"and {within_ms:,} ms are allowed")


def told(each: Verdict) -> Iterator[str]:
    """A verdict in lines for people."""
    yield f"{each.checker}: {_WORDS[each.valid]}"
    yield f"  {each.why}"
    for broken in each.broken:
        yield f"  {broken.promise}: " + "\n    ".join(broken.words.splitlines())
    if each.prefix:
        yield f"  the shortest beginning that fails: {each.prefix:,} events"
    if each.states:
        yield f"  just before, it could be: {', '.join(each.states)}"
    if each.counts:
        yield f"  also: {', '.join(f'{what} {count:,}' for what, count in each.counts.items())}"
    yield f"  asked: {', '.join(f'{what} {count:,}' for what, count in each.asked.items())}"
