"""Counts what a controller does, as it happens: requests, commands through raft, elections, and their durations.

Plain numbers; who shows them is ``controller.metrics``' business.
"""

from __future__ import annotations

from typing import Final

import attrs

from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Elected, MasterStillExists, NotElected, Outcome
from controller.own_codes import OwnCode
from remoting.codes import RequestCode, ResponseCode
from remoting.daemon.latency import Latency

_STATUS: Final = {True: "success", False: "failed"}


@attrs.define(eq=False)
class Recorder:
    """The counters. Bind their methods to the server."""

    requests: dict[tuple[str, str], int] = attrs.field(factory=dict)
    request_latency: dict[str, Latency] = attrs.field(factory=dict)
    operations: dict[str, int] = attrs.field(factory=dict)
    operation_latency: Latency = attrs.field(factory=Latency)
    elections: dict[tuple[GroupKey, str], int] = attrs.field(factory=dict)

    def answered(self, code: int, answer: int, seconds: float) -> None:
        """Counts an answer, as ``remoting.endpoint.OnAnswer`` says."""
        name = request_name(code)
        key = name, _STATUS[answer == ResponseCode.SUCCESS]
        self.requests[key] = self.requests.get(key, 0) + 1
        latency = self.request_latency.get(name)
        if latency is None:
            latency = self.request_latency[name] = Latency()
        latency.add(seconds)

    def appended(self, done: bool, seconds: float) -> None:
        """One command went through raft, or did not."""
        status = _STATUS[done]
        self.operations[status] = self.operations.get(status, 0) + 1
        self.operation_latency.add(seconds)

    def decided(self, outcome: Outcome) -> None:
        """The outcome of an election, on the controller that asked for it."""
        match outcome:
            case Elected(key=key):
                result = "new_master_elected"
            case MasterStillExists(key=key):
                result = "keep_current_master"
            case NotElected(key=key):
                result = "no_master_elected"
            case _:
                return
        self.elections[key, result] = self.elections.get((key, result), 0) + 1


def request_name(code: int) -> str:
    """The constant's name; numbers that nobody knows are counted together."""
    for codes in (RequestCode, OwnCode):
        try:
            return codes(code).name
        except ValueError:
            continue
    return "UNKNOWN"
