"""Faults of links: cut without a word, slow, lossy, narrow; one way or both.

They know directed pairs of hosts, and nothing of how a link is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from harness.nemesis.fault import NODES, Ability, Argument, Begun, FaultKind, Scene, named
from harness.nemesis.network import CLIENTS, Way
from harness.nemesis.shaping import MS, OVERTAKEN_NS, QUEUE_NS, Shape

CUTS: Final = frozenset({Ability.CUTS})
LINKS: Final = frozenset({Ability.LINKS})
FROM: Final = Argument("from whom: a selector, names, or clients; everybody else, if it is not said", "", names=NODES)
SIDE: Final = Argument("both; in: it is heard and hears nothing; out: it hears and is not heard", "both",
                       choices=("both", "in", "out"))


async def others(scene: Scene, names: Sequence[str], selector: str | Sequence[str]) -> list[str]:
    """The other side of a fault of ``names``: all others and the clients, if the selector is empty."""
    chosen = await scene.chosen(selector) if selector else [*scene.nodes, CLIENTS]
    return [name for name in chosen if name not in names]


def ways(near: Iterable[str], far: Sequence[str], side: str) -> list[Way]:
    """All directed pairs between two sides."""
    outward = [(one, other) for one in near for other in far]
    return [*(outward if side != "in" else ()), *((other, one) for one, other in outward if side != "out")]


async def silenced(scene: Scene, pairs: Sequence[Way], words: str, nodes: Sequence[str]) -> Begun:
    """Cuts ways until the fault is undone. Without any it is of no nodes: nothing happens."""
    for source, target in pairs:
        await scene.network.cut(source, target)

    async def mend() -> None:
        for source, target in pairs:
            await scene.network.mend(source, target)

    return Begun(words, mend, nodes if pairs else ())


async def _cut(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    far = await others(scene, names, args["from"])
    side = {"both": "", "in": ", who still hear it", "out": ", whom it still hears"}[args["side"]]
    whom = named(far) if args["from"] else "everybody else"
    return await silenced(scene, ways(names, far, args["side"]), f"cut {named(names)} from {whom}{side}", names)


async def _isolate(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    pairs = [way for name in names
             for way in ways([name], [each for each in (*scene.nodes, CLIENTS) if each != name], args["side"])]
    return await silenced(scene, sorted(set(pairs)), f"cut each of {named(names)} from everybody", names)


async def _partition(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    shuffled = scene.chance.sample(list(names), len(names))
    middle = (len(names) + 1) // 2
    one, two = sorted(shuffled[:middle]), sorted(shuffled[middle:])
    return await silenced(scene, ways(one, two, "both"), f"part {named(one)} from {named(two)}", names)


def _shaped(name: str, about: str, words: str, arguments: Mapping[str, Argument],
            shape: Callable[[Mapping[str, Any]], Shape]) -> FaultKind:
    """A fault that makes links worse; ``words`` have {} for each argument."""
    async def begin(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
        made, pairs = shape(args), ways(names, await others(scene, names, args["from"]), args["side"])
        for source, target in pairs:
            await scene.network.shape(source, target, made)

        async def unshape() -> None:
            for source, target in pairs:
                await scene.network.unshape(source, target, made)

        side = {"both": "", "in": " of what it hears", "out": " of what it says"}[args["side"]]
        what = words.format(*(f"{args[name]:g}" for name in arguments))
        return Begun(f"{what} on the links of {named(names)}{side}", unshape, names if pairs else ())

    return FaultKind(name, f"{about}; undone: links are as they were", begin,
                     {**arguments, "side": SIDE, "from": FROM}, LINKS)


def _share(about: str, default: float) -> Argument:
    return Argument(f"the share of packets that {about}", default, most=1.0)


FAULTS: Final = (
    FaultKind("cut", "links lose everything without a word, one way or both; undone: they work", _cut,
              {"side": SIDE, "from": FROM}, CUTS),
    FaultKind("isolate", "each of the nodes is cut from everybody, from the others of them, too; undone: links work",
              _isolate, {"side": SIDE}, CUTS),
    FaultKind("partition", "the nodes fall into two halves, drawn, that do not hear each other; clients reach both; "
              "undone: links work", _partition, {}, CUTS),
    _shaped("slow", "packets come late, in order", "{} ± {} ms", {
        "delay_ms": Argument("how late", 100.0), "jitter_ms": Argument("sooner or later than that, drawn", 0.0),
    }, lambda args: Shape(delay_ms=args["delay_ms"], jitter_ms=args["jitter_ms"])),
    _shaped("lose", "packets are lost", "lose {} of all packets", {"share": _share("are lost", 0.1)},
            lambda args: Shape(loss=args["share"])),
    _shaped("duplicate", "packets come twice", "double {} of all packets", {"share": _share("come twice", 0.1)},
            lambda args: Shape(duplicate=args["share"])),
    _shaped("reorder", f"packets come {OVERTAKEN_NS // MS} ms late, and others overtake them",
            "hold back {} of all packets", {"share": _share("are overtaken", 0.1)},
            lambda args: Shape(reorder=args["share"])),
    _shaped("throttle", f"so many bytes a second pass; what would wait longer than {QUEUE_NS // MS} ms is lost",
            "{} bytes/s", {"bytes_per_s": Argument("on each way between two hosts", 100_000.0, least=1.0)},
            lambda args: Shape(bytes_per_s=args["bytes_per_s"])),
)
