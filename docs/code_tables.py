"""The page of all request codes of RocketMQ: who answers each there and here, and what was run.

``reference/codes.json`` says what was answered: ``python -m tests.broker.codes`` asked our servers, the scenario
``both_brokers_name_servers_and_controllers_know_the_same_codes`` Java's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from broker.admin import NOT_OFFERED
from broker.timer.part import NO_ENGINE
from harness.scenarios.interop.codes import ABSENT, CODES
from remoting.codes import RequestCode

RECORDED: Final = Path(__file__).resolve().parent / "reference" / "codes.json"
READ: Final[Mapping[str, frozenset[int]]] = {
    "container": frozenset({25, 26, 902, 903}),
    "client": frozenset({39, 40, 220, 221, 307, 309, 326, 200073})}
"""Of Java's servers that no scenario runs: by ``BrokerContainerProcessor`` and ``ClientRemotingProcessor``."""


@cache
def recorded() -> Mapping[str, Any]:
    """``here``: by seat and code the answer's code; ``java``: by seat the codes that it knows."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


REFUSED: Final[Mapping[int, str]] = {**NOT_OFFERED, RequestCode.SWITCH_TIMER_ENGINE: NO_ENGINE}
"""By the broker, whatever the fields say: with these words."""


def in_java(code: int) -> list[str]:
    """Seats that answer it with another code than 3."""
    known = {**recorded()["java"], **READ}
    return [seat for seat, codes in known.items() if code in codes]


def here(code: int) -> dict[str, int]:
    """Seats that do so here, and with what they answer a request without fields."""
    return {seat: answers[str(code)] for seat, answers in recorded()["here"].items() if str(code) in answers}


def codes() -> Iterator[str]:
    """A row per code of the release."""
    yield "| code | name | answered in Java by | here by, and with what where no field is given |"
    yield "|---|---|---|---|"
    for code in CODES:
        answered = ", ".join(f"{seat}: {answer}" for seat, answer in here(code).items())
        if code in REFUSED:
            answered += f", always, with the words: {REFUSED[code]}"
        missing = next((why for why, absent in ABSENT.items() if code in absent), "")
        java = ", ".join(in_java(code))
        nobody = f"nobody: {missing}" if missing and java else "nobody, as in Java"
        yield f"| {code} | `{RequestCode(code).name}` | {java or 'nobody'} | {answered or nobody} |"


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {"codes": codes}
