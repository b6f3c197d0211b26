"""Registers a broker at the controllers: an id in its group that is free, an application for it, then its address.

An application outlives everything but the controller's word that the id is another's. Each step is asked again until it
is answered, and goes on from its file after a start. Source: the design "Persistent unique BrokerId" of RocketMQ.

It knows identities and what controllers say of them, and neither elections nor who leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from broker.ha.config import NS_PER_MS
from broker.replicas.config import ManagerConfig
from broker.replicas.identity import Application, Identity
from broker.replicas.lease import Gate
from broker.replicas.machine import REGISTERED, Event, RoleMachine, State
from broker.replicas.outputs import (
    Output,
    RemoveApplication,
    Report,
    WriteApplication,
    WriteIdentity,
    WriteLives,
)
from broker.replicas.timetable import Kind
from broker.replicas.underway import OnAnswer, UnderWay
from broker.store.lives import ANY, LIVES_MAX
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.controller import (
    ApplyBrokerIdRequest,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)


class Announced(TypedDict):
    """Fields of registrations and heartbeats: how a broker acknowledges, for controllers that ask; Java's do not."""

    master_lease_ms: int | None
    all_ack_in_sync_state_set: bool | None
    min_in_sync_replicas: int | None
    learner: bool | None


class Registering:
    """The registration of one broker. ``look`` takes the next step."""

    def __init__(self, config: ManagerConfig, found: Identity | Application | None, check_code: str, life: int | None,
                 lives: tuple[int, ...] | None, machine: RoleMachine, gate: Gate, under_way: UnderWay,
                 happened: Callable[[Event], list[Output]], told_master: OnAnswer) -> None:
        """``found``, ``check_code``, ``life`` and ``lives`` are the manager's. ``happened`` moves the machine and
        carries out what that asks for; ``told_master`` handles what a registration tells of the master."""
        self._config, self._found, self._check_code, self._life = config, found, check_code, life
        self._lives = lives if life is not None else None
        self._doubts = False
        """Controllers said that the store is an older copy; it is registered with a log in doubt."""
        self._machine, self._gate, self._under_way = machine, gate, under_way
        self._happened, self._told_master = happened, told_master
        self._writing = False
        self.unrecorded = False
        """It is registered without its life, and its controllers know lives by now."""

    @property
    def broker_id(self) -> int | None:
        return self._found.broker_id if isinstance(self._found, Identity) else None

    def look(self, now_ns: int, leader: str) -> list[Output]:
        """Ask the active controller for the next step, where it is time to."""
        if self._machine.state in REGISTERED:
            return self._record(now_ns, leader)
        times, config, found = self._under_way.times, self._config, self._found
        assert (found is None) == (self._machine.state is State.NAMELESS), "the state says how far it is"
        assert isinstance(found, Application) == (self._machine.state is State.APPLYING), "the state says how far it is"
        if self._writing or not times.due(Kind.REGISTER, now_ns):
            return []
        if isinstance(found, Identity) and self._lives is not None and self._life not in self._lives:
            return [self._note(self._lives)]
        times.put(Kind.REGISTER, now_ns + config.retry_ms * NS_PER_MS)
        if found is None:
            return self._under_way.send(
                Kind.REGISTER, leader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                GetNextBrokerIdRequest(config.cluster_name, config.broker_name), now_ns, self._next_id)
        if isinstance(found, Application):
            return self._under_way.send(
                Kind.REGISTER, leader, RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest(
                    config.cluster_name, config.broker_name, found.broker_id, found.check_code), now_ns, self._applied)
        return self._under_way.send(Kind.REGISTER, leader, RequestCode.CONTROLLER_REGISTER_BROKER,
                                    self._registration(found.broker_id), now_ns, self._registered)

    def write(self) -> Output:
        """Return the file that follows from the last step."""
        if isinstance(self._found, Identity):
            return self._write(WriteIdentity(self._found))
        return self._write(RemoveApplication() if self._found is None else WriteApplication(self._found))

    def _note(self, lives: tuple[int, ...], *, doubt: bool = False) -> Output:
        """Return the file that says that one of these or this life may be on record."""
        assert self._life is not None, "who keeps lives has one"
        self._lives = (*lives[1 - LIVES_MAX:], self._life)
        return self._write(WriteLives(self._lives, doubt))

    def _write(self, file: Output) -> Output:
        assert not self._writing, "one file at a time"
        self._writing = True
        self._under_way.times.put(Kind.REGISTER)
        return file

    def written(self) -> None:
        """That file is durable, or removed."""
        assert self._writing, "one file at a time"
        self._writing = False

    def announced(self) -> Announced:
        """Return how this broker acknowledges."""
        config, least = self._config, self._gate.announced
        return {
            "master_lease_ms": config.master_lease_ms or None,
            "all_ack_in_sync_state_set": True if config.all_ack_in_sync_state_set else None,
            "min_in_sync_replicas": least if least > 1 else None,
            "learner": True if config.learner else None}

    def unknown(self) -> Report:
        """Return what the operator is told of a controller that does not know this broker's id."""
        return Report(f"the controller does not know broker {self.broker_id} of {self._config.broker_name!r}: its data "
                      "was lost or this broker was cleaned; remove the identity file to join as a new one")

    # --- inside ----------------------------------------------------------------------------------------------

    def _registration(self, broker_id: int, running: bool | None = None) -> RegisterBrokerToControllerRequest:
        config, lives = self._config, self._lives
        judged = not (running or self._doubts or lives is None or ANY in lives)
        return RegisterBrokerToControllerRequest(
            config.cluster_name, config.broker_name, broker_id, config.address, broker_life=self._life,
            already_running=running, known_lives=",".join(map(str, lives or ())) if judged else None,
            **self.announced())

    def _record(self, now_ns: int, leader: str) -> list[Output]:
        """Register this process's life, if controllers lack it: that costs no role. Heartbeats tell of refusals."""
        found, times = self._found, self._under_way.times
        assert isinstance(found, Identity), "who is registered has an id"
        if not self.unrecorded or self._machine.resigning or not times.due(Kind.RECORD, now_ns):
            return []
        self.unrecorded = False
        times.put(Kind.RECORD, now_ns + self._config.retry_ms * NS_PER_MS)
        return self._under_way.send(Kind.RECORD, leader, RequestCode.CONTROLLER_REGISTER_BROKER,
                                    self._registration(found.broker_id, True), now_ns, self._told_master)

    def _next_id(self, answer: Command | None, _: int) -> list[Output]:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return []
        number = GetNextBrokerIdResponse.from_ext(answer.ext).next_broker_id
        if number is None:
            return [Report("the controller told no next broker id")]
        self._found = Application(self._config.cluster_name, self._config.broker_name, number, self._check_code)
        return self._happened(Event.NUMBERED)

    def _applied(self, answer: Command | None, _: int) -> list[Output]:
        assert isinstance(self._found, Application)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self._found = self._found.granted
            return self._happened(Event.GRANTED)
        if answer is not None and answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self._found = None  # the id is another's; only this answer makes the application useless
            return self._happened(Event.ID_IS_ANOTHERS)
        return []

    def _registered(self, answer: Command | None, number: int) -> list[Output]:
        if answer is None:
            return []
        if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            return [self.unknown()]
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            unknown = RegisterBrokerToControllerResponse.from_ext(answer.ext).unknown_life
            if unknown is not None and self._lives is not None:
                self._doubts = True
                return [Report(f"this log is in doubt until it is level with a master's: {answer.remark}"),
                        self._note((), doubt=True)]
            return [Report(f"not registered, and asked again until it is: {answer.remark}")]
        if answer.code != ResponseCode.SUCCESS:
            return []
        self._doubts = False
        # No other life may be on record now. One that is later is another process's, which wrote more.
        noted = [self._note(())] if self._lives is not None and len(self._lives) > 1 else []
        return noted + self._happened(Event.REGISTERED) + self._told_master(answer, number)
