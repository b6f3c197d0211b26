"""Compares the request codes that RocketMQ's servers answer with ours: all are sent to both, without any field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from harness.processes import java, ours
from harness.scenarios.interop.failover import GROUP
from harness.scenarios.interop.scenario import Stage, expect, scenario
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError, RequestTimeout

NOT_OF_5_5: Final = frozenset({50, 51, 52, 53, 54, 1014, 1015, 1016, 1017, 1018})
"""Codes of earlier releases, and of the log of Java's controllers."""
CODES: Final = tuple(sorted({int(code) for code in RequestCode} - NOT_OF_5_5))
ABSENT: Final[Mapping[str, frozenset[int]]] = {
    "users and access lists are not here": frozenset(range(3001, 3011)),
    "lite topics are not here": frozenset(range(200070, 200080)),
    "records of POP are not kept in RocksDB here": frozenset({200056}),
}
"""Codes that only Java's servers answer."""
RECORDED: Final = Path(__file__).parents[3] / "docs" / "reference" / "codes.json"


async def known(client: Client, address: str) -> frozenset[int]:
    """Codes that a server knows: all but those it answers with 3. Without an answer it knows the code, too."""
    found = set()
    for code in CODES:
        try:
            answer = await client.call(address, request(code), 3_000)
        except RequestTimeout:
            found.add(code)
            continue
        except RemotingError:
            found.add(code)
            await trio.sleep(0.5)
            continue
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            found.add(code)
    return frozenset(found)


@scenario("5.5.0", timeout_s=600)
async def both_brokers_name_servers_and_controllers_know_the_same_codes(stage: Stage) -> None:
    """All 164 codes without fields, to Java's three servers and to ours: 3 from the same, but for what is absent."""
    here, release = stage.here, stage.release
    async with (
        open_client() as client,
        java.namesrv(release, here / "java-namesrv") as java_namesrv,
        java.controllers(release, here / "java-controllers", 1) as java_controllers,
        java.broker(release, here / "java-broker", group=GROUP, namesrv=[java_namesrv.address]) as java_broker,
        ours.namesrv(here / "namesrv") as namesrv,
        ours.controllers(here / "controllers", 1) as controllers,
        ours.broker(here / "broker", GROUP, namesrv=[namesrv.address]) as broker,
    ):
        absent = frozenset[int]().union(*ABSENT.values())
        java_knows = {}
        for seat, theirs, mine in (
            ("broker", java_broker, broker), ("name server", java_namesrv, namesrv),
            ("controller", java_controllers[0], controllers[0]),
        ):
            java_knows[seat] = await known(client, theirs.address)
            here_known = await known(client, mine.address)
            stage.say(f"{seat}: Java's answers {len(java_knows[seat])}, ours {len(here_known)} of {len(CODES)}")
            expect(here_known | absent >= java_knows[seat], f"{seat}: only Java's: "
                   f"{sorted(java_knows[seat] - here_known - absent)}")
            expect(here_known <= java_knows[seat], f"{seat}: only ours: {sorted(here_known - java_knows[seat])}")
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["java"]
        expect({seat: sorted(codes) for seat, codes in java_knows.items()} == recorded,
               f"docs/reference/codes.json has others: {({seat: sorted(found) for seat, found in java_knows.items()})}")
