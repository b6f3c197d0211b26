"""Plays a schedule: starts a target, lets clients work, applies and undoes faults, and waits until all is well.

Every process that it starts has ended when it returns or raises. What it cannot do ends the run with a sentence. A node
that ends by itself, or does not come back, is a finding: the result tells of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from harness.checkers.recovery import ELECTED
from harness.nemesis import disks as of_disks
from harness.nemesis import faults as registry
from harness.nemesis import sandbox
from harness.nemesis.abilities import probe
from harness.nemesis.disks import Disk
from harness.nemesis.errors import NotHere
from harness.nemesis.fault import OF_DISKS, Ability, Begun, named
from harness.nemesis.forwarding import Forwarders, forwarders
from harness.nemesis.network import CLIENTS, Network, Share, namespaces
from harness.nemesis.shaping import Shape
from harness.processes.errors import StartFailed
from harness.processes.handle import environment
from harness.targets.fields import FormatError
from harness.targets.target import Places, Target, places, places_of
from harness.torture.clients import ClassClient, ProgramClient, RunClient, class_of
from harness.torture.directory import RUN_ID, RunDirectory
from harness.torture.load import Crowd, HistoryFile
from harness.torture.node import NodeVersion, RunNode
from harness.torture.scenario import ClientLoad
from harness.torture.schedule import Schedule, Step
from harness.torture.selecting import Selector, choose, selector
from harness.torture.warden import Warden
from harness.torture.words import RunFailed
from harness.workloads.workload import Recipe, Workload

FIRST_PORT: Final = 20_000
KIND_PORTS: Final = 100
"""From one kind's first port to the next one's."""
DISK_BYTES: Final = 1 << 30
WATCH_S: Final = 0.1
LAST_LINES: Final = 10
"""Lines of a node's log in a report about a node that is gone."""
ACTING: Final = "acting"
LEADING: Final = ("master", "leader", ACTING)
CONTROLS: Final = "active"
"""The role of the controller that leads the others, whose failovers are counted apart from those of groups."""
AFTER_S: Final = 1.0
"""Time that clients go on when all is well again, and nobody waits for what the last fault broke: it has to work."""


@attrs.define(eq=False)
class Loopback:
    """All nodes at addresses of this host; no link can be cut."""

    names: Sequence[str]

    def address(self, name: str) -> str:
        return "127.0.0.1" if name == CLIENTS else f"127.79.0.{11 + self.names.index(name)}"

    bind = address

    def prefix(self, name: str) -> Sequence[str]:
        return ()

    async def cut(self, source: str, target: str) -> None:
        raise RunFailed("links cannot be cut on the loopback")

    async def mend(self, source: str, target: str) -> None:
        await trio.lowlevel.checkpoint()

    async def shape(self, source: str, target: str, shape: Shape) -> None:
        raise RunFailed("links cannot be shaped on the loopback")

    async def unshape(self, source: str, target: str, shape: Shape) -> None:
        await trio.lowlevel.checkpoint()

    async def heal(self) -> None:
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class Testbed:
    """The scene of the faults: a target's nodes as they are now."""

    target: Target
    nodes: Mapping[str, RunNode]
    network: Network
    disks: Mapping[str, Disk]
    chance: Random
    roles: dict[str, list[str]] = attrs.field(factory=dict)
    taken: set[str] = attrs.field(factory=set)
    """Nodes that a fault holds now."""

    async def chosen(self, selector_: str | Sequence[str]) -> list[str]:
        """Names that a scenario's selector chooses; of names themselves, where ``clients`` may be one, all."""
        await trio.lowlevel.checkpoint()
        if not isinstance(selector_, str):
            return list(selector_)
        return [CLIENTS] if selector_ == CLIENTS else list(self.pick(selector(selector_, "from"), ()))

    def pick(self, which: Selector, taken: Sequence[str] | set[str]) -> tuple[str, ...]:
        """Names of nodes that a selector chooses now."""
        kinds = {name: node.kind for name, node in self.nodes.items()}
        return choose(which, kinds, self.roles, taken, self.chance)


@attrs.define(eq=False)
class Played:
    """The result of a run, besides its history."""

    faults: int = 0
    kinds: Counter[str] = attrs.field(factory=Counter)
    """Number of faults by name."""
    took_over: Counter[str] = attrs.field(factory=Counter)
    """Number of times that another node led, or acted, than before, by role."""
    came_back: Counter[str] = attrs.field(factory=Counter)
    """Number of times that nobody led, and then the same node as before, by role, where there are no controllers: of
    theirs nobody can say whether none led, or none told."""
    skipped: list[str] = attrs.field(factory=list)
    died: list[str] = attrs.field(factory=list)
    """Sentences about nodes that ended by themselves or did not come back, with the last lines of their logs."""
    well: bool = False
    """Whether all came back at the end, and the last operations were done."""
    unwell: list[str] = attrs.field(factory=list)
    """Sentences about what was missing at the end, node by node, with the last lines of their logs."""
    seconds: float = 0.0

    @property
    def failovers(self) -> int:
        """Number of times that another node led a group, or acted in it, than before."""
        return sum(self.took_over[role] for role in LEADING)


@attrs.define(eq=False)
class StartLine:
    """A start line for groups: they start one by one, and time begins for all of them at once."""

    count: int = 1
    turn: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(1, max_value=1), init=False)
    """Held by the group that starts its nodes and clients."""
    _ready: int = attrs.field(default=0, init=False)
    _begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _began_ns: int = attrs.field(default=0, init=False)

    async def wait(self) -> int:
        """The moment, by the monotonic clock, at which the last one was ready."""
        self._ready += 1
        assert self._ready <= self.count, "each waits once"
        if self._ready == self.count:
            self._began_ns = time.monotonic_ns()
            self._begun.set()
        await self._begun.wait()
        return self._began_ns


@attrs.define(eq=False)
class Player:
    """Plays one run. ``say`` takes lines for people.

    ``network`` and ``line``, where they are given, are shared with other groups that are played at once.
    """

    directory: RunDirectory
    target: Target
    here: Path
    """The folder of the target's file."""
    schedule: Schedule
    load: ClientLoad
    make: Callable[[Recipe], Workload]
    say: Callable[[str], None]
    network: Network | None = None
    line: StartLine = attrs.field(factory=StartLine)
    played: Played = attrs.field(factory=Played, init=False)
    history: HistoryFile = attrs.field(init=False)
    bed: Testbed = attrs.field(init=False)
    places: Places = attrs.field(init=False)
    _held: dict[int, tuple[Step, Begun]] = attrs.field(factory=dict, init=False)
    _nemesis: Any = attrs.field(init=False)
    _warden: Warden | None = attrs.field(default=None, init=False)
    _led: dict[str, list[str]] = attrs.field(factory=dict, init=False)
    """By role that leads: who had it last."""
    _begin: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when all clients are ready and time begins."""

    async def play(self) -> Played:
        """Plays the whole run. Raises ``RunFailed`` where the target does not start or a fault cannot happen."""
        try:
            return await self._play()
        except BaseExceptionGroup as errors:
            raise _in_words(errors) from None

    async def _play(self) -> Played:
        async with AsyncExitStack() as stack:
            files = [stack.enter_context((self.directory.path / name).open("wb"))
                     for name in ("history.jsonl", "nemesis.jsonl")]
            self.history, self._nemesis = HistoryFile(files[0]), files[1]
            if not sandbox.inside():
                self._warden = Warden(self.directory.path)
                stack.callback(self._warden.close)
            network = self.network
            if network is None:
                network = await stack.enter_async_context(ground(self.target.nodes, [self.schedule]))
            self.bed = self._made(network)
            await self._forward(network)
            await self.line.turn.acquire()
            await stack.enter_async_context(self._nodes())
            if self.target.well and not await self._well():
                raise RunFailed("\n".join(["it is not well before anything was done to it", *self.played.unwell]))
            await self._run()
        return self.played

    # --- what there is -------------------------------------------------------------------------------------------

    def _made(self, network: Network) -> Testbed:
        needs = {each for step in self.schedule.steps for each in registry.fault(step.fault).needs}
        disks: dict[str, Disk] = {}
        if needs & OF_DISKS:
            disks = of_disks.make(self.directory.path / "nodes", self.target.nodes, DISK_BYTES, sandbox.inside(),
                                  shims=True)
        shift = 0 if sandbox.inside() else os.getpid() % 2_000 * 10  # parallel runs have neighbouring pids
        addresses: dict[str, dict[str, str]] = {}
        listens: dict[str, dict[str, str]] = {}
        for number, kind in enumerate(self.target.kinds.values()):
            first = kind.first_port or FIRST_PORT + KIND_PORTS * number + shift
            for node in kind.nodes:
                ports = {name: first + place for place, name in enumerate(kind.ports)}
                addresses[node] = {name: f"{network.address(node)}:{port}" for name, port in ports.items()}
                listens[node] = {name: f"{network.bind(node)}:{port}" for name, port in ports.items()}
                for name, port in ports.items() if not sandbox.inside() else ():
                    _require_free(node, name, network.bind(node), port)
        self.places = places(self.target, addresses, python=sys.executable, here=str(self.here),
                             run=str(self.directory.path))
        nodes = {node: self._node(node, network, addresses[node], listens[node], disks.get(node))
                 for node in self.target.nodes}
        return Testbed(self.target, nodes, network, disks, Random(f"{self.schedule.seed}/choices"))

    def _node(self, name: str, network: Network, addresses: Mapping[str, str], listens: Mapping[str, str],
              disk: Disk | None) -> RunNode:
        kind, directory = self.target.kind_of(name), self.directory.node(name)
        data = directory / "store"
        directory.mkdir(parents=True, exist_ok=True)
        of = places_of(self.places, self.target, name, addresses, listens, directory=str(directory), data=str(data))
        of = of.and_also(host=network.address(name), bind=network.bind(name))
        what = kind.ready.what
        ready = attrs.evolve(kind.ready, what=of.fill(what) if isinstance(what, str) else tuple(of.filled(what)))
        marked = (dict(disk.environment) if disk is not None else {}) | self._marked
        versions = [NodeVersion([*network.prefix(name), *of.filled(each.command)],
                                {key: of.fill(value) for key, value in each.environment.items()} | marked,
                                {file: of.fill(content) for file, content in each.files.items()})
                    for each in (kind.before, kind.upgraded) if each is not None]
        made = RunNode(
            name, directory, [], addresses[str(what)] if ready.how == "tcp" else "", "", kind=kind.name, data=data,
            ports=addresses, ready=ready, stop_signal=signal.Signals[kind.stop], started=self._watch, versions=versions)
        made.become(0)
        return made

    @property
    def _marked(self) -> dict[str, str]:
        return {RUN_ID: str(self.directory.path)}

    def _watch(self, group: int) -> None:
        if self._warden is not None:
            self._warden.watch(group)

    async def _forward(self, network: Network) -> None:
        whole, there = (network.whole, network.there) if isinstance(network, Share) else (network, str)
        if not isinstance(whole, Forwarders):
            return
        ours, others = {there(name): node for name, node in self.bed.nodes.items()}, whole.pid_of
        whole.pid_of = lambda name: ours[name].pid if name in ours else others(name)
        for kind in self.target.kinds.values():
            for name in kind.nodes:
                ports = [int(self.places.values[f"{name}.{port}"].rpartition(":")[2]) for port in kind.ports]
                try:
                    await whole.open(there(name), ports)
                except OSError as error:
                    raise RunFailed(f"a port of {name} is in use: {error}") from None

    @asynccontextmanager
    async def _nodes(self) -> AsyncIterator[None]:
        """Starts all nodes, kind by kind, and ends them."""
        try:
            for kind in self.target.kinds.values():
                try:
                    async with trio.open_nursery() as nursery:
                        for name in kind.nodes:
                            nursery.start_soon(self.bed.nodes[name].start)
                except* StartFailed as errors:
                    raise RunFailed("\n".join(str(each) for each in _leaves(errors))) from None
            yield
        finally:
            with trio.CancelScope(shield=True):
                for disk in self.bed.disks.values():
                    await disk.resume()
                async with trio.open_nursery() as nursery:
                    for node in self.bed.nodes.values():
                        node.resume()
                        nursery.start_soon(node.kill)

    async def client(self, number: int) -> RunClient:
        """Makes the client of this number, and waits until it is ready. Raises ``RunFailed``."""
        program = self.target.client
        if program.made_by:
            nodes = {name: value for name, value in self.places.values.items() if "." in name}
            return ClassClient(class_of(program.made_by, self.here)(nodes))
        made = ProgramClient(self.places.and_also(client=str(number)).filled(program.command),
                             self.directory.path / "clients", f"client-{number}", self._marked)
        await made.open()
        return made

    # --- what happens --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        recipe = Recipe(self.schedule.clients, self.load.keys, Random(f"{self.schedule.seed}/load"), self.load.args)
        clients = Crowd(self.make(recipe), self.history, self.client, self.schedule.clients, self.load.rate,
                          self.load.timeout_ms)
        stop = trio.Event()
        async with trio.open_nursery() as others:
            if self.target.roles:
                await others.start(self._follow_roles)
            others.start_soon(self._look)
            others.start_soon(self._progress)
            async with trio.open_nursery() as working:
                async with trio.open_nursery() as opening:
                    for number in range(self.schedule.clients):
                        opening.start_soon(working.start, clients.work, number, self._begin, stop)
                self.line.turn.release()
                await self._wait_for_roles()
                self.history.began_ns = await self.line.wait()
                self._begin.set()
                if self.bed.roles:
                    self.history.observed("roles", "", self.bed.roles)
                    self._count_leads(self.bed.roles)
                await self._steps()
                await self._heal()
                self.played.well = await self._well()
                await clients.turned()
                await trio.sleep(AFTER_S)
                stop.set()
            if self.played.well:
                await clients.finish()
            self.played.seconds = self.history.now_ns() / 1e9
            others.cancel_scope.cancel()

    async def _wait_for_roles(self) -> None:
        """Wait until each leading role is taken: faults on a role without a node would be skipped."""
        asked = {each.name for step in self.schedule.steps for each in step.nodes.filters if each.of == "role"}
        if not asked:
            return
        leading = asked & {*LEADING} - {ACTING}  # slaves and acting ones may come later
        with trio.move_on_after(self.target.well_s):
            while not (all(map(self.bed.roles.get, leading)) and any(self.bed.roles.values())):
                await trio.sleep(WATCH_S)
            return
        nobody = [role for role in sorted(leading or asked) if not self.bed.roles.get(role)]
        self.say(f"{self.target.well_s:g} s ([well] timeout_s) are over, and [roles] names no {', no '.join(nobody)}: "
                 "faults on them are skipped until it does; look into clients/roles.log")

    async def _steps(self) -> None:
        """Begins each fault at its moment until the time is over, then undoes those that still hold."""
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number, step in enumerate(self.schedule.steps):
                await trio.sleep_until(began + step.at_ms / 1e3)
                nursery.start_soon(self._step, number, step)
            await trio.sleep_until(began + self.schedule.seconds)
            nursery.cancel_scope.cancel()

    async def _step(self, number: int, step: Step) -> None:
        kind, bed = registry.fault(step.fault), self.bed
        names = bed.pick(step.nodes, () if step.beside else bed.taken)
        if not names:
            self.played.skipped.append(f"{step.at_ms / 1e3:.1f} s {step.fault} {step.nodes.words}: nobody is free")
            return
        taken = set() if step.beside else set(names)
        bed.taken |= taken
        try:
            began_ns = self.history.now_ns()
            try:
                with trio.CancelScope(shield=True):
                    begun = await kind.begin(bed, list(names), kind.checked(step.args))
            except* StartFailed as errors:  # such a fault starts nodes again
                self._not_back(errors)
                begun = Begun(f"{step.fault} {named(names)}", None, list(names))
            except* NotHere as errors:
                raise RunFailed("; ".join(f"{step.fault}: {each}" for each in _leaves(errors))) from None
            if not begun.nodes:  # as a cut from whoever leads, while nobody does
                self.played.skipped.append(f"{step.at_ms / 1e3:.1f} s {begun.words}: it would change nothing")
                return
            self._held[number] = step, begun
            self.played.faults += 1
            self.played.kinds[step.fault] += 1
            self._note(step, begun, "start", began_ns)
            self.say(begun.words)
            await trio.sleep(step.hold_ms / 1e3)
            await self._undo(number)
        finally:
            bed.taken -= taken

    async def _undo(self, number: int) -> None:
        step, begun = self._held.pop(number)
        self._note(step, begun, "end", self.history.now_ns())
        try:
            with trio.CancelScope(shield=True):
                await begun.undo()
        except* StartFailed as errors:
            self._not_back(errors)

    async def _heal(self) -> None:
        """Undoes everything, and starts every node."""
        async with trio.open_nursery() as nursery:
            for number in list(self._held):
                nursery.start_soon(self._undo, number)
        await self.bed.network.heal()
        for node in self.bed.nodes.values():
            node.resume()
            try:
                await node.launch()
            except StartFailed as error:
                self._died(str(error))

    async def _well(self) -> bool:
        self.played.unwell = []
        with trio.move_on_after(self.target.well_s):
            while unwell := await self._unwell():
                self.played.unwell = unwell
                await trio.sleep(WATCH_S)
            return True
        self.say(f"not well after {self.target.well_s:g} s")
        self.played.unwell = self.played.unwell or [f"[well] did not end in time{self._ends_of_logs()}"]
        for words in self.played.unwell:
            self.say(words)
        return False

    async def _unwell(self) -> list[str]:
        """Sentences about what is not well; none if all is well."""
        down = [node for node in self.bed.nodes.values() if not await node.is_up()]
        if down or not self.target.well:
            return [f"{node.name} is not up ({node.ready.words}), "
                    + ("though it runs" if node.running else f"it ended with exit code {node.exit_code}")
                    + _last(node) for node in down]
        command = self.places.filled(self.target.well)
        try:
            asked = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True,
                                           env=environment() | self._marked)
        except OSError as error:
            raise RunFailed(f"[well] {command[0]}: {error.strerror}") from None
        said = (asked.stdout + asked.stderr).decode(errors="replace").strip()
        return [f"all nodes are up, but [well] ends with {asked.returncode}\n{said}{self._ends_of_logs()}"] if (
            asked.returncode) else []

    def _ends_of_logs(self) -> str:
        return "".join(f"\n{node.name}:{_last(node)}" for node in self.bed.nodes.values())

    async def _look(self) -> None:
        """Notes each node that ended by itself, once."""
        while True:
            await trio.sleep(WATCH_S)
            for node in self.bed.nodes.values():
                if node.expected and not node.starting and not node.running:
                    node.expected = False
                    self._died(f"{node.name} ended by itself with exit code {node.exit_code}{_last(node)}")

    def _not_back(self, errors: BaseExceptionGroup[StartFailed]) -> None:
        for each in _leaves(errors):
            first, *log = str(each).splitlines()
            self._died("\n".join([first, *log[-LAST_LINES:]]))

    def _died(self, words: str) -> None:
        self.played.died.append(words)
        self.say(words)

    async def _follow_roles(self, task_status: trio.TaskStatus[None]) -> None:
        """Reads roles from the target's command, line by line; starts it again where it ends."""
        command = self.places.filled(self.target.roles)
        task_status.started()
        while True:
            with (self.directory.path / "clients" / "roles.log").open("ab") as log:
                try:
                    process = await trio.lowlevel.open_process(
                        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                        env=environment() | self._marked)
                except OSError as error:
                    raise RunFailed(f"[roles] {command[0]}: {error.strerror}") from None
            try:
                assert process.stdout is not None
                held = b""
                async for some in process.stdout:
                    *lines, held = (held + some).split(b"\n")
                    for line in lines:
                        self._roles(line)
            finally:
                with trio.CancelScope(shield=True):
                    process.kill()
                    await process.wait()
            await trio.sleep(1)

    def _roles(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            return
        if isinstance(found, dict) and all(isinstance(each, list) for each in found.values()) and (
                found != self.bed.roles):
            before, self.bed.roles = self.bed.roles, {
                str(role): [str(name) for name in names] for role, names in found.items()}
            if not self._begin.is_set():
                return
            self.history.observed("roles", "", self.bed.roles)
            self._count_leads(before)
            for role, names in self.bed.roles.items():
                if set(names) - set(before.get(role, names)):
                    self.history.observed(ELECTED, None, {role: names})

    def _count_leads(self, before: Mapping[str, Sequence[str]]) -> None:
        """Counts who took over, a leader that was not the last one or a node that acts for it, and who came back."""
        for role in (*LEADING, CONTROLS):
            now, last = self.bed.roles.get(role, []), self._led.get(role, [])
            if set(now) - set(last) and (last or role == ACTING):
                self.played.took_over[role] += 1
            elif now and last and not before.get(role) and CONTROLS not in self.bed.roles:
                self.played.came_back[role] += 1
            if now or role == ACTING:  # a slave may act again after its master was back
                self._led[role] = now

    async def _progress(self) -> None:
        last = 0
        while True:
            await trio.sleep(5)
            done = self.history.counts["ok"] + self.history.counts["fail"] + self.history.counts["info"]
            left = max(self.schedule.seconds - self.history.now_ns() / 1e9, 0)
            self.say(f"{done:,} operations, {(done - last) / 5:.0f}/s, {self.history.counts['info']:,} unknown, "
                     f"{self.played.faults} faults, {left:.0f} s left")
            last = done

    def _note(self, step: Step, begun: Begun, phase: str, now_ns: int) -> None:
        row = {"fault": step.fault, "phase": phase, "time_ns": now_ns, "on": list(begun.nodes), "words": begun.words}
        self._nemesis.write(json.dumps(row).encode() + b"\n")
        self._nemesis.flush()


@asynccontextmanager
async def ground(names: Sequence[str], schedules: Sequence[Schedule]) -> AsyncIterator[Network]:
    """Hosts for these nodes, on which all that the schedules do can be done. Raises ``RunFailed``."""
    assert schedules
    needs = {each for schedule in schedules for step in schedule.steps for each in registry.fault(step.fault).needs}
    if sandbox.inside():
        try:
            async with namespaces(names, str(schedules[0].seed)) as made:
                yield made
        except subprocess.CalledProcessError as error:
            raise RunFailed(f"no network of our own: {' '.join(map(str, error.cmd))}: "
                            f"{(error.stderr or b'').decode().strip()}") from None
    elif needs & {Ability.CUTS, Ability.LINKS}:
        async with forwarders(names) as cutting:
            yield cutting
    else:
        yield Loopback(names)


async def play_together(players: Mapping[str, Player]) -> dict[str, Played]:
    """Plays groups at once, by their names: on one network, from one moment on. Raises ``RunFailed``."""
    line = StartLine(len(players))
    try:
        names = [f"{group}.{node}" for group, player in players.items() for node in player.target.nodes]
        schedules = [player.schedule for player in players.values()]
        async with ground(names, schedules) as whole, trio.open_nursery() as nursery:
            for group, player in players.items():
                player.network, player.line = Share(whole, group), line
                nursery.start_soon(player.play)
    except BaseExceptionGroup as errors:
        raise _in_words(errors) from None
    return {group: player.played for group, player in players.items()}


def _in_words(errors: BaseExceptionGroup[Any]) -> BaseException:
    """Return the error that ends a run: an interrupt, or sentences; else the errors as they are."""
    leaves = _leaves(errors)
    if any(isinstance(each, KeyboardInterrupt) for each in leaves):  # clients got the interrupt, too
        return KeyboardInterrupt()
    if all(isinstance(each, RunFailed | NotHere | FormatError) for each in leaves):
        return RunFailed("\n".join(dict.fromkeys(map(str, leaves))))
    return errors


def _require_free(node: str, name: str, host: str, port: int) -> None:
    """Raises ``RunFailed`` where a port is taken: another program would be taken for the node."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise RunFailed(f"port {name} of {node}, {host}:{port}: {error.strerror}: end who has it, or give its kind "
                            "another first_port") from None


def _last(node: RunNode) -> str:
    """The end of a node's log, to stand below a sentence about it."""
    return f"\n{node.tail(LAST_LINES)}".rstrip()


def _leaves(errors: BaseExceptionGroup[Any]) -> list[BaseException]:
    return [leaf for each in errors.exceptions
            for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])]


def missing(target: Target, schedule: Schedule, root: Path) -> tuple[list[str], dict[str, Any]]:
    """Return why faults of this schedule cannot happen here, each once; and the abilities for ``run.json``."""
    able = probe(root)
    found = []
    for name in dict.fromkeys(step.fault for step in schedule.steps):
        kind = registry.fault(name)
        needs = kind.needs - {Ability.CUTS}
        why = able.missing(attrs.evolve(kind, needs=needs))
        if why:
            found.append(f"{name}: {why}")
    return found, able.as_json()


async def built(target: Target, where: Places, path: Path) -> None:
    """Runs the command that builds a target, for the run of this directory. Raises ``RunFailed``."""
    if not target.build:
        return
    command = where.filled(target.build)
    warden = Warden(path)
    try:
        done = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True,
                                      env=environment() | {RUN_ID: str(path)})
    except OSError as error:
        raise RunFailed(f"[build] {command[0]}: {error.strerror}: is it installed?") from None
    finally:
        warden.close()
    if done.returncode:
        raise RunFailed(f"[build] {' '.join(command)} ended with exit code {done.returncode}\n"
                        f"{(done.stdout + done.stderr).decode(errors='replace').strip()}")


