"""``raftlog`` looks into a node's directory. ``verify`` checks every byte, ``cat`` shows records, ``stat`` sums up.

Other packages may add commands, as entry points of the group ``raftlog.commands``: functions that take the arguments
and return an exit code. An added command is imported only when it is called by its name.

It never writes and takes no lock, so it works beside a running node and after a crash. Knows the command line; what it
shows comes from ``raft.storage.audit``. Exit codes: 0 sound, 1 damage, not a raft directory or not readable, 2 wrong
usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

import attrs

from raft import __version__
from raft.command import INTERRUPTED
from raft.errors import StorageError
from raft.output import discard_output, piped
from raft.storage.audit import Record, Report, audit, identity_of, kind_name, records, recover_live
from raft.storage.directory import ReadOnlyFiles
from raft.storage.place import read_kind
from raft.storage.snapshots import DIRECTORY, read_stored

SOUND: Final = 0
DAMAGED: Final = 1
USAGE: Final = 2
ADDED: Final = "raftlog.commands"
"""Group of entry points for commands of other packages."""
_SHOWN_BYTES: Final = 40


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``raftlog`` and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for added in entry_points(group=ADDED, name=given[0]) if given else ():
        return _run_added(added, given[1:])
    options = _parser().parse_args(given)
    directory = Path(options.directory)
    if not directory.is_dir():
        print(f"raftlog: {directory} is not a directory", file=sys.stderr)
        return DAMAGED
    code = SOUND
    try:
        if (noted := read_kind(ReadOnlyFiles(directory))) is not None:
            print(f"raftlog: the log is kept by a storage of kind {noted[0]!r}; this reads segments", file=sys.stderr)
            return DAMAGED
        code = options.run(ReadOnlyFiles(directory), options)
        sys.stdout.flush()
    except BrokenPipeError:  # `raftlog cat DIR | head`
        discard_output()
    except (StorageError, OSError) as error:  # bytes that the disk cannot read are not sound either
        _complain(error, options.json)
        return DAMAGED
    except KeyboardInterrupt:
        print("raftlog: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _run_added(added: EntryPoint, arguments: Sequence[str]) -> int:
    try:
        run = added.load()
    except ModuleNotFoundError as error:
        extra, where = added.module.partition(".")[0], added.dist.name if added.dist is not None else added.module
        print(f"raftlog: {added.name} needs {error.name}, which is not installed here: pip install '{where}[{extra}]'",
              file=sys.stderr)
        return USAGE
    code: int = run(arguments)
    return code


def _parser() -> argparse.ArgumentParser:
    more = ", ".join(sorted(each.name for each in entry_points(group=ADDED)))
    parser = argparse.ArgumentParser(prog="raftlog", description="Look into a raft node's directory. Never writes.",
                                     epilog=f"Commands of other packages: {more}." if more else None)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, words in (
        ("verify", _verify, "check every block, frame, chain, footer and snapshot"),
        ("cat", _cat, "show every record in the order of writing"),
        ("stat", _stat, "sum up the directory, its groups and its files"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument("directory", metavar="DIR", help="a node's data directory")
        command.add_argument("--json", action="store_true", help="for programs: JSON; one object a line from cat")
        command.set_defaults(run=run)
        if name == "cat":
            command.add_argument("--group", type=int, help="only this group's records")
            command.add_argument("--from", type=int, dest="first", default=0, help="only entries from this index")
            command.add_argument("--to", type=int, dest="last", default=1 << 63, help="only entries to this index")
            command.add_argument("--payload", action="store_true", help="the entries' bytes too")
    return parser


def _complain(error: Exception, as_json: bool) -> None:
    if as_json:
        place = {name: getattr(error, name) for name in ("path", "offset", "reason") if hasattr(error, name)}
        print(json.dumps({"error": str(error), **place}))
    else:
        print(f"raftlog: {error}", file=sys.stderr)


# --- verify --------------------------------------------------------------------------------------------------


def _verify(files: ReadOnlyFiles, options: argparse.Namespace) -> int:
    report = audit(files)
    try:
        _print_report(report, options.json)
    except BrokenPipeError:
        discard_output()
    return DAMAGED if report.problems else SOUND


def _print_report(report: Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_report_values(report), indent=2))
    else:
        for segment in report.segments:
            print(f"{segment.path}  {segment.blocks} blocks, {segment.frames} frames, {segment.entries} entries, "
                  f"{_footer_words(segment.footer)}")
        for snapshot in report.snapshots:
            print(f"{snapshot['path']}  {snapshot['bytes']} bytes of state")
        for problem in report.problems:
            print(f"DAMAGED {problem.path} at byte {problem.offset}: {problem.reason}")
        print("damaged" if report.problems else "sound")
    sys.stdout.flush()


def _footer_words(footer: str) -> str:
    return {"good": "footer good", "none": "no usable footer", "open": "open"}[footer]


def _report_values(report: Report) -> dict[str, Any]:
    return {
        "identity": _identity_values(report.identity.cluster, report.identity.node_id, report.identity.incarnation),
        "segments": [attrs.asdict(segment) for segment in report.segments],
        "snapshots": report.snapshots,
        "problems": [attrs.asdict(problem) for problem in report.problems],
        "sound": not report.problems,
    }


def _identity_values(cluster: str, node_id: str, incarnation: bytes) -> dict[str, str]:
    return {"cluster": cluster, "node": node_id, "incarnation": incarnation.hex()}


# --- cat -----------------------------------------------------------------------------------------------------


def _cat(files: ReadOnlyFiles, options: argparse.Namespace) -> int:
    for record in records(files):
        if options.group is not None and record.group != options.group:
            continue
        frame = record.frame
        if frame is None:
            if options.first or options.last < 1 << 63:
                continue
        elif frame.last < options.first or frame.first > options.last:
            continue
        if options.json:
            print(json.dumps(_record_values(record, payloads=options.payload)))
        else:
            print(_record_line(record))
            if options.payload and frame is not None:
                for index, payload in enumerate(frame.payloads(), frame.first):
                    more = "…" if len(payload) > _SHOWN_BYTES else ""
                    print(f"    {index}  {payload[:_SHOWN_BYTES]!r}{more}")
    return SOUND


def _record_line(record: Record) -> str:
    where = f"{record.path.rpartition('/')[2]}:{record.offset}  write {record.write}  group {record.group}"
    frame = record.frame
    if frame is None:
        return f"{where}  {record.words}"
    return (f"{where}  {kind_name(frame.kind)} {frame.first}..{frame.last} term {frame.term}, {frame.size} bytes, "
            f"mark {frame.mark:08x} after {frame.chain:08x}{', carried forward' if record.upkeep else ''}")


def _record_values(record: Record, *, payloads: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "path": record.path, "offset": record.offset, "write": record.write, "group": record.group}
    if record.upkeep:
        values["upkeep"] = True
    frame = record.frame
    if frame is None:
        return {**values, "local": record.words}
    values.update(kind=kind_name(frame.kind), first=frame.first, last=frame.last, term=frame.term, bytes=frame.size,
                  wall_ms=frame.wall_ms, mark=frame.mark, chain=frame.chain)
    if payloads:
        values["payloads"] = [payload.hex() for payload in frame.payloads()]
    return values


# --- stat ----------------------------------------------------------------------------------------------------


def _stat(files: ReadOnlyFiles, options: argparse.Namespace) -> int:
    values = _stat_values(files)
    if options.json:
        print(json.dumps(values, indent=2))
    else:
        _print_stat(values)
    return SOUND


def _stat_values(files: ReadOnlyFiles) -> dict[str, Any]:
    identity = identity_of(files)
    recovery = recover_live(files, identity.owner)
    groups: dict[str, Any] = {}
    segments: list[dict[str, Any]] = []
    if recovery is not None:
        for number, group in sorted(recovery.catalog.groups.items()):
            groups[str(number)] = {
                "term": group.hard_state.term, "voted_for": group.hard_state.voted_for,
                "first": group.purged.index + 1, "last": group.last.index, "last_term": group.last.term,
                "last_mark": group.last.mark, "terms": len(recovery.catalog.term_runs(number)),
            }
        segments = [{"path": segment.path, "bytes": segment.size, "used": segment.end}
                    for segment in recovery.catalog.segments]
    return {
        "identity": _identity_values(identity.cluster, identity.node_id, identity.incarnation),
        "groups": groups,
        "segments": segments,
        "spares": sum(name.startswith("spare-") for name in files.list("log")),
        "snapshots": _snapshot_values(files),
    }


def _snapshot_values(files: ReadOnlyFiles) -> list[dict[str, Any]]:
    out = []
    for name in files.list(DIRECTORY):
        if name.endswith(".snap"):
            path = f"{DIRECTORY}/{name}"
            try:
                file = files.open(path)
            except FileNotFoundError:
                continue  # a newer snapshot replaced it
            try:
                stored = read_stored(file, path)
            finally:
                file.close()
            out.append({"path": path, "group": stored.group, "index": stored.meta.index, "term": stored.meta.term,
                        "bytes": stored.meta.size, "voters": list(stored.meta.membership.voters)})
    return out


def _print_stat(values: Mapping[str, Any]) -> None:
    identity = values["identity"]
    print(f"node {identity['node']} of cluster {identity['cluster']}, incarnation {identity['incarnation']}")
    used = sum(segment["used"] for segment in values["segments"])
    size = sum(segment["bytes"] for segment in values["segments"])
    print(f"{len(values['segments'])} segments, {used} of {size} bytes used, {values['spares']} spare")
    for number, group in values["groups"].items():
        vote = group["voted_for"] if group["voted_for"] is not None else "nobody"
        held = f"entries {group['first']}..{group['last']}" if group["last"] >= group["first"] else "no entries"
        print(f"group {number}: term {group['term']}, voted for {vote}, {held}, last term {group['last_term']}, "
              f"{group['terms']} terms in the log")
    for snapshot in values["snapshots"]:
        print(f"snapshot of group {snapshot['group']} at {snapshot['index']} (term {snapshot['term']}), "
              f"{snapshot['bytes']} bytes, voters {', '.join(snapshot['voters'])}")


if __name__ == "__main__":
    sys.exit(main())
