"""Compares the Prometheus pages of our broker and of Java's: names, kinds and labels of timers and transactions.

It starts both, has a Java client send them timers and transactions, and reads both pages.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from urllib.request import urlopen

import attrs
import trio

from harness.processes import java, ours
from harness.processes.java.settings import Value
from harness.processes.ports import reserved
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.waiting import LATER, PAIRS, PLANS, WAITS, clients, transacting
from harness.scenarios.interop.watch import create_topic

COMPARED = re.compile(r"rocketmq_(timer_|timing_|half_|commit_|rollback_|finish_)")
NOT_OURS = frozenset({"otel_scope_name", "otel_scope_version", "instance_id", "aggregation", "le",
                      "storage_type", "storage_medium"})
"""Labels of Java's exporter, and two that say `local` and `disk` on each line of its store."""


@attrs.define
class Family:
    """All lines of one name."""

    kind: str
    labels: set[str] = attrs.field(factory=set)


def families(page: str) -> dict[str, Family]:
    """The families of a page that are compared, by name."""
    found: dict[str, Family] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            if COMPARED.match(name):
                found[name] = Family(kind)
        elif COMPARED.match(line):
            name, _, rest = line.partition("{")
            family = next((each for of, each in found.items() if name in (of, f"{of}_bucket")), None)
            if family is not None:
                family.labels |= {each[0] for each in re.finditer(r"\w+(?==\")", rest.partition("}")[0])}
    return found


def exporter(port: int) -> dict[str, Value]:
    """Settings of a broker, Java's or ours, that serves its page there."""
    return {"metricsExporterType": "PROM", "metricsPromExporterPort": port, "metricsPromExporterHost": "127.0.0.1"}


async def read(port: int) -> str:
    """The page that is served there."""
    def get() -> str:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:  # the exporter of this machine
            return str(answer.read().decode())
    return await trio.to_thread.run_sync(get)


@scenario("5.5.0", timeout_s=300)
async def our_page_of_metrics_has_what_javas_has_of_timers_and_transactions(stage: Stage) -> None:
    """Timers and transactions at both: each name, kind and label of Java's page for Prometheus is on ours."""
    pages: dict[str, dict[str, Family]] = {}
    for whose in ("java", "ours"):
        with ExitStack() as ports:
            port = ports.enter_context(reserved())
            extra = {**WAITS, **exporter(port)}
            here = attrs.evolve(stage, here=stage.here / whose)
            async with (
                ours.namesrv(here.here / "namesrv") as namesrv,
                ours.broker(here.here / "broker", namesrv=[namesrv.address], extra=extra)
                if whose == "ours" else
                java.broker(stage.release, here.here / "broker", namesrv=[namesrv.address], extra=extra),
            ):
                for topic in (LATER, PAIRS):
                    await create_topic(stage, namesrv.address, topic)
                async with clients(here, namesrv.address) as made:
                    await made.timer("soon", 2_000)
                    await made.timer("far", 100_000)
                    await made.timers.wait_for("received", lambda found: len(found) >= 2)
                    async with transacting(made, "transact", (*PLANS, "UNKNOW"), 6):
                        text = await read(port)
                        with trio.move_on_after(5):  # the page has open halves as soon as they are shown
                            while "rocketmq_half_messages{" not in text:
                                await trio.sleep(0.1)
                                text = await read(port)
                        pages[whose] = families(text)
    theirs, mine = pages["java"], pages["ours"]
    stage.say(f"Java's page has {', '.join(sorted(theirs))}")
    expect(theirs, "Java's page has none of what is compared")
    missing = sorted(theirs.keys() - mine.keys())
    expect(not missing, f"on Java's page and not on ours: {missing}; ours has {sorted(mine)}")
    for name, family in theirs.items():
        expect(mine[name].kind == family.kind, f"{name} is a {family.kind} of Java's, and a {mine[name].kind} of ours")
        lacks = family.labels - mine[name].labels - NOT_OURS
        expect(not lacks, f"{name} has no label {sorted(lacks)} on ours, which has {sorted(mine[name].labels)}")
    stage.say(f"ours has each of them, and {', '.join(sorted(mine.keys() - theirs.keys())) or 'no others'}")
