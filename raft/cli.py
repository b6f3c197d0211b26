"""``raftctl`` looks at a running group and changes it, from a command line. A thin layer over ``raft.connect``.

Knows the command line, statuses as dicts, and words; decides nothing. Exit codes: 0 done, 1 refused, failed or a node
out of reach, 2 wrong usage, 3 the outcome is unknown, 130 interrupted with no effect.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import trio

from raft import __version__
from raft.client import RECONFIGURE_TIMEOUT_MS, Client, connect
from raft.command import INTERRUPTED
from raft.errors import LocalError, RaftError, Unknown, UsageError
from raft.groups import DEFAULT_GROUP
from raft.output import discard_output, piped
from raft.tls import TLSConfig

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNKNOWN: Final = 3
ADDRESSES_VARIABLE: Final = "RAFT_ADDRESSES"
LOOK_TIMEOUT_MS: Final = 3_000
"""Time that ``status`` and ``explain`` wait for one node."""

Command = Callable[[argparse.Namespace, Client], Awaitable[int]]


# --- status and explain --------------------------------------------------------------------------------------


async def _ask_each(
    addresses: Sequence[str], ask: Callable[[str], Awaitable[Any]]
) -> dict[str, Any | RaftError]:
    """Ask all nodes at the same time. Return the answer of each, or the error."""
    found: dict[str, Any | RaftError] = dict.fromkeys(addresses)

    async def ask_one(address: str) -> None:
        try:
            found[address] = await ask(address)
        except RaftError as error:
            found[address] = error

    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(ask_one, address)
    return found


def _say(text: str) -> None:
    """Print a line. A closed pipe is no failure: `raftctl status | head -1` succeeds, and a transfer that was done
    was done."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_output()


def _print_json(found: Mapping[str, Any]) -> None:
    _say(json.dumps({
        address: {"error": str(said)} if isinstance(said, RaftError) else said for address, said in found.items()
    }, indent=2, sort_keys=True))


async def _status(arguments: argparse.Namespace, client: Client) -> int:
    found = await _ask_each(
        arguments.at or client.addresses, lambda address: client.status(address, timeout_ms=arguments.timeout_ms))
    if arguments.json:
        _print_json(found)
    else:
        _say("\n".join(status_table(found)))
    return FAILED if any(isinstance(said, RaftError) for said in found.values()) else DONE


COLUMNS: Final = ("address", "node", "role", "term", "leader", "committed", "applied", "durable", "last", "trouble")


def status_table(found: Mapping[str, Any]) -> list[str]:
    """Return a line for each node; ``found`` maps addresses to statuses (as dicts) or errors."""
    rows: list[Sequence[str]] = [COLUMNS]
    for address, said in found.items():
        if isinstance(said, RaftError):
            rows.append((address, "?", f"no answer: {said}"))
            continue
        role = "learner" if _is_learner(said) else said["role"]
        trouble = said["faulted"] or ("disk " + said["storage"] if said["storage"] != "ok" else "")
        rows.append((
            address, said["node_id"], role, *(str(said[name]) for name in ("term", "leader", "commit_index",
            "applied_index", "durable_index", "last_index")), trouble or "-"))
    widths = [max((len(row[column]) for row in rows if len(row) == len(COLUMNS)), default=0)
              for column in range(len(COLUMNS))]
    widths[0] = max(len(row[0]) for row in rows)
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _is_learner(status: Mapping[str, Any]) -> bool:
    return status["node_id"] in status["membership"]["learners"]


async def _explain(arguments: argparse.Namespace, client: Client) -> int:
    found = await _ask_each(
        arguments.at or client.addresses, lambda address: client.diagnose(address, timeout_ms=arguments.timeout_ms))
    if arguments.json:
        _print_json(found)
    else:
        for address, said in found.items():
            _say(f"{address}:")
            for sentence in [f"No answer: {said}"] if isinstance(said, RaftError) else [pair[1] for pair in said]:
                _say(f"  {sentence}")
    return FAILED if any(isinstance(said, RaftError) for said in found.values()) else DONE


# --- what changes something ----------------------------------------------------------------------------------


async def _transfer(arguments: argparse.Namespace, client: Client) -> int:
    await client.transfer_leadership(arguments.node, timeout_ms=arguments.timeout_ms)
    status = await client.status(timeout_ms=arguments.timeout_ms)
    _tell(arguments, {"leader": arguments.node or status["leader"]}, f"{arguments.node or status['leader']} leads.")
    return DONE


async def _snapshot(arguments: argparse.Namespace, client: Client) -> int:
    index = await client.take_snapshot(arguments.address, timeout_ms=arguments.timeout_ms)
    _tell(arguments, {"index": index}, f"A snapshot covers everything up to entry {index}.")
    return DONE


async def _accept_loss(arguments: argparse.Namespace, client: Client) -> int:
    lapsed = await client.accept_loss(arguments.address, timeout_ms=arguments.timeout_ms)
    _tell(arguments, {"accepted": lapsed}, f"{arguments.address} votes and counts again; what it lost is given up."
          if lapsed else f"{arguments.address} had lost nothing.")
    return DONE


async def _reconfigure(arguments: argparse.Namespace, client: Client) -> int:
    status = await _leaders_status(client, arguments.timeout_ms)
    voters, learners, priorities = plan_membership(
        status["membership"], voters=arguments.voters, learners=arguments.learners, add=arguments.add,
        add_learner=arguments.add_learner, remove=arguments.remove, priority=arguments.priority)
    plan = {"voters": voters, "learners": learners, "priorities": priorities}
    if arguments.dry_run:
        _tell(arguments, plan, f"Would ask for {_words(voters, learners)}.")
        return DONE
    timeout_ms = RECONFIGURE_TIMEOUT_MS if arguments.timeout_ms is None else arguments.timeout_ms
    await client.reconfigure(voters, learners, priorities=priorities, timeout_ms=timeout_ms)
    _tell(arguments, plan, f"The group has {_words(voters, learners)}.")
    return DONE


async def _leaders_status(client: Client, timeout_ms: int | None) -> dict[str, Any]:
    """Return the leader's status, since another node's membership may be old; any node's if no leader is known."""
    status = await client.status(timeout_ms=timeout_ms)
    if status["role"] != "leader" and status["leader_address"]:
        status = await client.status(status["leader_address"], timeout_ms=timeout_ms)
    return status


def plan_membership(
    membership: Mapping[str, Any], *, voters: str | None = None, learners: str | None = None, add: Sequence[str] = (),
    add_learner: Sequence[str] = (), remove: Sequence[str] = (), priority: Sequence[str] = (),
) -> tuple[dict[str, str], dict[str, str], dict[str, int] | None]:
    """Return voters, learners and priorities to ask for, from a membership (as a dict) and the command line.

    Items are ``id=host:port``, or an id alone for members whose address is known. Raises ``UsageError``.
    """
    book = {name: member["address"] for name, member in membership["members"].items()}
    wanted = dict.fromkeys(membership["voters"])
    following = dict.fromkeys(membership["learners"])
    if voters is not None:
        wanted = dict.fromkeys(_take(item, book) for item in voters.split(",") if item)
        following = {name: None for name in following if name not in wanted}
    if learners is not None:
        following = dict.fromkeys(_take(item, book) for item in learners.split(",") if item)
    for item in add:
        wanted[name := _take(item, book)] = None
        following.pop(name, None)
    for item in add_learner:
        following[name := _take(item, book)] = None
        wanted.pop(name, None)
    for name in remove:
        if name not in wanted and name not in following:
            raise UsageError(f"--remove {name}: it is no member; these are: {', '.join([*wanted, *following])}")
        wanted.pop(name, None)
        following.pop(name, None)
    if both := sorted(set(wanted) & set(following)):
        raise UsageError(f"{', '.join(both)}: either voter or learner")
    priorities = {name: member["priority"] for name, member in membership["members"].items()}
    for item in priority:
        name, _, number = item.partition("=")
        if name not in {*wanted, *following} or not number.lstrip("-").isdigit():
            raise UsageError(f"--priority {item!r}: must be id=number, of a member")
        priorities[name] = int(number)
    kept = {name: value for name, value in priorities.items() if name in wanted or name in following}
    return ({name: book[name] for name in wanted}, {name: book[name] for name in following},
            kept if priority else None)


def _take(item: str, book: dict[str, str]) -> str:
    """Return the id of ``id=host:port`` or ``id``, and note the address in ``book``."""
    name, equals, address = item.partition("=")
    if equals and address:
        book[name] = address
    if not name or not book.get(name):
        raise UsageError(f"{item!r}: say id=host:port; only present members may be named without an address")
    return name


def _words(voters: Mapping[str, str], learners: Mapping[str, str]) -> str:
    return f"voters {', '.join(voters)}" + (f" and learners {', '.join(learners)}" if learners else "")


def _tell(arguments: argparse.Namespace, value: Mapping[str, Any], sentence: str) -> None:
    _say(json.dumps(value, sort_keys=True) if arguments.json else sentence)


# --- the command line ----------------------------------------------------------------------------------------


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands and options, with their help."""
    parser = argparse.ArgumentParser(
        prog="raftctl", description="Look at a running Raft group, and change it.",
        epilog="Exit codes: 0 done; 1 refused, failed, or a node did not answer; 2 wrong usage; 3 outcome unknown; "
               "130 interrupted while looking. "
               f"{ADDRESSES_VARIABLE} stands in for --addresses.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--addresses", default=os.environ.get(ADDRESSES_VARIABLE), metavar="HOST:PORT,...",
                        help="some of the group's nodes")
    parser.add_argument("--cluster", default="default", help="the cluster's name (default: %(default)s)")
    parser.add_argument("--group", default=DEFAULT_GROUP, help="the group's name (default: %(default)s)")
    parser.add_argument("--timeout-ms", type=int, help="give up after this long")
    parser.add_argument("--json", action="store_true", help="print JSON")
    tls = parser.add_argument_group("TLS (PEM files)")
    tls.add_argument("--tls-ca", metavar="FILE", help="who signs the nodes' certificates; turns TLS on")
    tls.add_argument("--tls-cert", metavar="FILE", help="this client's certificate")
    tls.add_argument("--tls-key", metavar="FILE", help="its key")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    for name, run, text in (("status", _status, "Roles, terms and log positions, a line per node."),
                            ("explain", _explain, "What is the matter with each node, in sentences.")):
        command = add(name, run, text)
        command.add_argument("at", nargs="*", metavar="HOST:PORT", help="ask these nodes only")
    command = add("transfer", _transfer, "Hand leadership over.")
    command.add_argument("node", nargs="?", help="id of the voter that shall lead (default: the best placed)")
    command = add("snapshot", _snapshot, "Take a snapshot now, so that the log behind it may go.")
    command.add_argument("address", nargs="?", metavar="HOST:PORT", help="on this node (default: the leader)")
    command = add("accept-loss", _accept_loss, "Let a node that lost what it had acknowledged vote and count again, "
                  "although nobody gave it back: what only it and nodes that never return held is lost then.")
    command.add_argument("address", metavar="HOST:PORT", help="that node")
    _add_reconfigure(add("reconfigure", _reconfigure,
                         "Change who belongs to the group: say what it shall be, or what shall change."))
    return parser


def _add_reconfigure(command: argparse.ArgumentParser) -> None:
    command.add_argument("--voters", metavar="ID[=HOST:PORT],...", help="exactly these voters")
    command.add_argument("--learners", metavar="ID[=HOST:PORT],...", help="exactly these learners; '' for none")
    command.add_argument("--add", action="append", default=[], metavar="ID=HOST:PORT", help="one more voter")
    command.add_argument("--add-learner", action="append", default=[], metavar="ID=HOST:PORT", help="one more learner")
    command.add_argument("--remove", action="append", default=[], metavar="ID", help="one member less")
    command.add_argument("--priority", action="append", default=[], metavar="ID=NUMBER",
                         help="the higher, the sooner it stands for election")
    command.add_argument("--dry-run", action="store_true", help="only print what would be asked for")


def _tls(arguments: argparse.Namespace) -> TLSConfig | ssl.SSLContext | None:
    if bool(arguments.tls_cert) != bool(arguments.tls_key) or (arguments.tls_cert and not arguments.tls_ca):
        raise UsageError("--tls-cert and --tls-key belong together, and need --tls-ca")
    if not arguments.tls_ca:
        return None
    if arguments.tls_cert:
        return TLSConfig(cert=arguments.tls_cert, key=arguments.tls_key, ca=arguments.tls_ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # nodes have ids, not host names: the CA alone proves who they are
    try:
        context.load_verify_locations(arguments.tls_ca)
    except OSError as error:
        raise UsageError(f"--tls-ca {arguments.tls_ca}: {error}") from error
    return context


async def _run(arguments: argparse.Namespace) -> int:
    addresses = [address for address in (arguments.addresses or "").split(",") if address]
    if arguments.timeout_ms is None and arguments.run in (_status, _explain):
        arguments.timeout_ms = LOOK_TIMEOUT_MS
    try:
        if not addresses:
            raise UsageError(f"say where the group is: --addresses host:port,... or {ADDRESSES_VARIABLE}")
        async with connect(
            addresses, cluster=arguments.cluster, group=arguments.group, tls=_tls(arguments),
        ) as client:
            code: int = await arguments.run(arguments, client)
            return code
    except RaftError as error:
        print(f"raftctl: {error}", file=sys.stderr)
        return USAGE if isinstance(error, LocalError) else UNKNOWN if isinstance(error, Unknown) else FAILED


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``raftctl`` and return its exit code."""
    given = make_parser().parse_args(arguments)
    code = DONE
    try:
        code = trio.run(_run, given)
    except* KeyboardInterrupt:
        looks = given.run in (_status, _explain) or (given.run is _reconfigure and given.dry_run)
        code = INTERRUPTED if looks else UNKNOWN
        print(f"raftctl: interrupted{'' if looks else '; it may have happened, or may still'}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
