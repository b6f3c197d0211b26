"""Faults of strangers: many who connect to a node's port and say nothing.

They know a node's ports by name, and nothing of what it speaks there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from harness.nemesis.crowd import limit
from harness.nemesis.errors import NotHere
from harness.nemesis.fault import PORT, Argument, Begun, FaultKind, Scene, named


async def _crowd(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    connections, addresses = int(args["connections"]), []
    limit(connections)
    for name in names:
        ports = scene.nodes[name].ports
        port = args["port"] or next(iter(ports), "")
        if port not in ports:
            raise NotHere(f"{name} has no port {port or 'at all'}; it has {', '.join(ports) or 'none'}")
        addresses.append(ports[port])
    crowds = [await trio.lowlevel.open_process(
        [sys.executable, "-P", "-m", "harness.nemesis.crowd", address, str(connections)],
        stdin=subprocess.PIPE) for address in addresses]

    async def leave() -> None:
        for each in crowds:
            each.kill()
            await each.wait()
            if each.stdin is not None:
                await each.stdin.aclose()

    return Begun(f"{connections} strangers connect to {args['port'] or 'a port'} of {named(names)} and say "
                 "nothing", leave, names)


FAULTS: Final = (
    FaultKind("crowd", "strangers connect to a port and say nothing; who is sent away comes again; undone: they leave",
              _crowd, {
                  "port": Argument("its name in the target; the first one, if it is not said", "", names=PORT),
                  "connections": Argument("how many strangers", 300.0, least=1.0, most=5_000.0),
              }),
)
