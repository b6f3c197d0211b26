"""Reads a target's file: kinds of nodes, their commands, ports and files, and the program that is its client.

A file is TOML. Texts hold placeholders in braces, which ``Places`` fills for one node or for a client; a brace is
written twice. Knows no process and no disk.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from harness.targets.fields import Fields, FormatError, nearest

PORT_MAX: Final = 65_535
NODES_MAX: Final = 100
_HOLE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
_READY: Final = ("tcp", "line", "http", "command")


@attrs.frozen
class Ready:
    """The sign that a node is up, if there is one.

    Its port is open, it printed a text, a page answers 200, or a command ends with 0.
    """

    how: str
    what: str | tuple[str, ...]
    timeout_s: float

    @property
    def words(self) -> str:
        """The condition in words for people."""
        return f"{self.how} {self.what if isinstance(self.what, str) else ' '.join(self.what)}"


@attrs.frozen
class Version:
    """The command and files that a node is started with."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    """Content of files by their names in the node's directory."""


@attrs.frozen
class NodeKind:
    """A kind of nodes, which are started alike."""

    name: str
    count: int
    ports: tuple[str, ...]
    """Names of ports. ``first_port``, if given, is the first one's number, and others follow."""
    first_port: int
    before: Version
    upgraded: Version | None
    """Version that ``rolling-upgrade`` puts in its place; None: it cannot be upgraded."""
    ready: Ready
    after: tuple[str, ...]
    """Kinds that are ready before these start."""
    stop: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{number}" for number in range(1, self.count + 1))


@attrs.frozen
class ClientProgram:
    """A command that speaks lines of JSON, or a Python class as ``module:Class``; one of the two is empty."""

    command: tuple[str, ...]
    made_by: str


@attrs.frozen
class Target:
    """The content of one target's file, checked."""

    name: str
    about: str
    options: Mapping[str, str]
    build: tuple[str, ...]
    kinds: Mapping[str, NodeKind]
    """Kinds of nodes in the order in which they start."""
    client: ClientProgram
    roles: tuple[str, ...]
    """A command that prints a line of JSON, role -> names of nodes, whenever that changes; or empty."""
    well: tuple[str, ...]
    """A command that ends with 0 once everything is well again; empty: when all nodes are ready."""
    well_s: float

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for kind in self.kinds.values() for node in kind.nodes)

    def kind_of(self, node: str) -> NodeKind:
        """The kind of a node of this target."""
        return self.kinds[node.rpartition("-")[0]]


def parse(text: str, name: str, options: Mapping[str, str] | None = None) -> Target:
    """Reads a target's file. ``options`` replace its own of the same names. Raises ``FormatError``."""
    fields = Fields("", table(text))
    given = _options(fields.table("options"), options or {})
    kinds = _kinds(fields.table("nodes"))
    build = fields.table("build")
    roles, well = fields.table("roles"), fields.table("well")
    made = Target(
        name, fields.text("about"), given, _command(build), _ordered(kinds), _client(fields.table("client")),
        _command(roles), _command(well, "timeout_s"), well.number("timeout_s", 60.0) if well is not None else 60.0)
    fields.done()
    return made


def table(text: str) -> dict[str, Any]:
    """Reads TOML. Raises ``FormatError`` with the line that is wrong."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"no TOML: {error}") from None


def _options(fields: Fields | None, given: Mapping[str, str]) -> dict[str, str]:
    known = {} if fields is None else {name: _plain(fields, name) for name in fields.values}
    for name in given:
        if name not in known:
            raise FormatError(f"this target has no option {name}" + (nearest(name, known) if known else ""))
    return {**known, **given}


def _plain(fields: Fields, name: str) -> str:
    found = fields.any(name)
    if isinstance(found, bool):
        return str(found).lower()
    if not isinstance(found, str | int | float):
        raise FormatError(f"{fields.at(name)} is {found!r}; an option is a text, a number, true or false")
    return str(found)


def _kinds(fields: Fields | None) -> dict[str, NodeKind]:
    names = [] if fields is None else list(fields.values)
    if fields is None or not names:
        raise FormatError("[nodes.NAME] is missing: at least one kind of node is wanted")
    made = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise FormatError(f"[nodes.{name}]: a kind's name is small letters, digits and -")
        inner = fields.table(name)
        assert inner is not None
        made[name] = _kind(name, inner)
    if sum(kind.count for kind in made.values()) > NODES_MAX:
        raise FormatError(f"more than {NODES_MAX} nodes")
    return made


def _kind(name: str, fields: Fields) -> NodeKind:
    ports = fields.texts("ports", ())
    ready = _ready(fields.table("ready"), ports)
    before = Version(fields.texts("command"), _texts(fields.table("environment")), _texts(fields.table("files")))
    made = NodeKind(
        name, fields.whole("count", 1, least=1), ports, fields.whole("first_port", 0), before,
        _upgraded(fields.table("upgraded"), before), ready, fields.texts("after", ()), fields.text("stop", "SIGTERM"))
    if not before.command:
        raise FormatError(f"{fields.at('command')} is empty")
    if made.first_port + made.count * len(ports) - 1 > PORT_MAX:
        raise FormatError(f"{fields.at('first_port')} is {made.first_port}; the last port would be beyond {PORT_MAX}")
    if not re.fullmatch(r"SIG[A-Z]+", made.stop):
        raise FormatError(f"{fields.at('stop')} is {made.stop!r}; a signal's name is wanted, as SIGTERM")
    fields.done()
    return made


def _upgraded(fields: Fields | None, before: Version) -> Version | None:
    """Read the version after an upgrade. A key that is missing keeps its value; files and variables are added."""
    if fields is None:
        return None
    made = Version(fields.texts("command", before.command),
                   {**before.environment, **_texts(fields.table("environment"))},
                   {**before.files, **_texts(fields.table("files"))})
    if not made.command or made == before:
        raise FormatError(f"[{fields.place}] has a command, environment or files that differ")
    fields.done()
    return made


def _ready(fields: Fields | None, ports: Sequence[str]) -> Ready:
    if fields is None:
        return Ready("tcp", ports[0], 60.0) if ports else Ready("line", "", 60.0)
    timeout_s = fields.number("timeout_s", 60.0)
    chosen = [how for how in _READY if how in fields.values]
    if len(chosen) != 1:
        raise FormatError(f"[{fields.place}] has one of {', '.join(_READY)}")
    [how] = chosen
    what = fields.texts(how) if how == "command" else fields.text(how)
    if how == "tcp" and what not in ports:
        raise FormatError(f"{fields.at('tcp')} is {what!r}; the ports of this kind are {', '.join(ports) or 'none'}")
    fields.done()
    return Ready(how, what, timeout_s)


def _texts(fields: Fields | None) -> dict[str, str]:
    return {} if fields is None else {name: _plain(fields, name) for name in fields.values}


def _command(fields: Fields | None, *others: str) -> tuple[str, ...]:
    if fields is None:
        return ()
    found = fields.texts("command")
    for name in others:
        fields.any(name)
    fields.done()
    return found


def _client(fields: Fields | None) -> ClientProgram:
    if fields is None:
        raise FormatError("[client] is missing: a command that speaks lines of JSON, or class = \"module:Class\"")
    made = ClientProgram(fields.texts("command", ()), fields.text("class", ""))
    if bool(made.command) == bool(made.made_by):
        raise FormatError("[client] has either command or class")
    fields.done()
    return made


def _ordered(kinds: Mapping[str, NodeKind]) -> dict[str, NodeKind]:
    """The kinds in an order in which each comes after those that it names."""
    made: dict[str, NodeKind] = {}
    left = dict(kinds)
    for kind in kinds.values():
        for name in kind.after:
            if name not in kinds:
                raise FormatError(f"[nodes.{kind.name}] after: there is no kind {name}{nearest(name, kinds)}")
    while left:
        ready = [name for name, kind in left.items() if all(each in made for each in kind.after)]
        if not ready:
            raise FormatError(f"[nodes] {', '.join(left)} wait for each other: mend their `after`")
        for name in ready:
            made[name] = left.pop(name)
    assert made.keys() == kinds.keys()
    return made


@attrs.frozen
class Places:
    """Values of placeholders, in a run or for one of its nodes."""

    values: Mapping[str, str]

    def fill(self, text: str) -> str:
        """Fills in a text. Raises ``FormatError`` for an unknown placeholder."""
        def put(found: re.Match[str]) -> str:
            whole, name = found.group(0), found.group(1)
            if whole in ("{{", "}}"):
                return whole[0]
            if name is None:
                raise FormatError(f"{text!r} has a lonely {whole}; write it twice where it is meant")
            if name not in self.values:
                raise FormatError(f"{text!r} has an unknown placeholder {{{name}}}{nearest(name, self.values)}")
            return self.values[name]

        return _HOLE.sub(put, text)

    def filled(self, texts: Sequence[str]) -> list[str]:
        """A command. What a lone placeholder left empty is no argument: an option may be a flag or nothing."""
        both = [(each, self.fill(each)) for each in texts]
        return [made for each, made in both if made or not _HOLE.fullmatch(each)]

    def and_also(self, **more: str) -> Places:
        return Places({**self.values, **more})


def places(
    target: Target, address_of: Mapping[str, Mapping[str, str]], *, python: str, here: str, run: str,
) -> Places:
    """Return the values for a run as a whole. ``address_of``: node -> name of a port -> ``host:port``."""
    values = {"python": python, "here": here, "run": run}
    values |= {f"option.{name}": value for name, value in target.options.items()}
    for kind in target.kinds.values():
        for port in kind.ports:
            found = [address_of[node][port] for node in kind.nodes]
            assert len(set(found)) == kind.count, "two nodes have one address"
            values |= {f"{kind.name}.{port}": ",".join(found), f"{kind.name}.{port};": ";".join(found)}
            for node, address in zip(kind.nodes, found, strict=True):
                values[f"{node}.{port}"] = address
        values[f"{kind.name}.nodes"] = ",".join(kind.nodes)
    return Places(values)


def places_of(
    whole: Places, target: Target, node: str, addresses: Mapping[str, str], listens: Mapping[str, str], *,
    directory: str, data: str,
) -> Places:
    """Return the values for one node.

    ``addresses`` and ``listens``: name of a port -> where others find it, and where the node listens.
    """
    number = node.rpartition("-")[2]
    values = {"node": node, "number": number, "directory": directory, "data": data, "kind": target.kind_of(node).name}
    for name, address in addresses.items():
        host, _, port = address.rpartition(":")
        assert listens[name].endswith(f":{port}")
        values |= {f"address.{name}": address, f"port.{name}": port, "host": host, f"listen.{name}": listens[name]}
        values["bind"] = listens[name].rpartition(":")[0]
    return whole.and_also(**values)
