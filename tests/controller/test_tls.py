"""Controllers under TLS on real sockets: raft between them by certificates, brokers' requests beside it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from controller.admin import cli
from controller.config import ControllerConfig, check, from_properties
from controller.server import RunningController, serve_controller
from raft.tls import ALPN
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.daemon.files import MemoryFiles
from remoting.daemon.keys import ConfigError
from remoting.daemon.process import leaves
from remoting.daemon.tls import tls_of
from remoting.errors import RemotingError
from remoting.headers.controller import ApplyBrokerIdRequest
from remoting.tls import client_context


@pytest.mark.parametrize("mode", ["permissive", "enforcing", "disabled"])
async def test_three_controllers_with_certificates(
    tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str],
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    listeners = [(await trio.open_tcp_listeners(0, host="127.0.0.1"))[0] for _ in range(3)]
    addresses = [f"127.0.0.1:{listener.socket.getsockname()[1]}" for listener in listeners]
    peers = ";".join(f"n{number}-{address}" for number, address in enumerate(addresses))
    running: list[RunningController] = []
    given: dict[str, str] = {}
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        for number, listener in enumerate(listeners):
            issued = authority.issue_cert(f"n{number}", "127.0.0.1")
            issued.private_key_pem.write_to_path(str(tmp_path / f"n{number}.key"))
            issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"n{number}.pem"))
            given = {
                "controllerDLegerGroup": "g", "controllerDLegerPeers": peers, "controllerDLegerSelfId": f"n{number}",
                "controllerStorePath": str(tmp_path / f"n{number}"), "tls.server.mode": mode,
                "tls.server.certPath": str(tmp_path / f"n{number}.pem"),
                "tls.server.keyPath": str(tmp_path / f"n{number}.key"),
                "tls.server.trustCertPath": str(tmp_path / "ca.pem"), "segmentBytes": str(1 << 20),
                "electionTimeoutMs": "1500"}
            config = from_properties(given)

            async def run(*, task_status: trio.TaskStatus[RunningController], config=config, listener=listener) -> None:  # type: ignore[no-untyped-def]
                await serve_controller(config, files=MemoryFiles(), listeners=[listener],
                                       tls=tls_of(config, raft_alpn=ALPN), task_status=task_status)

            running.append(await nursery.start(run))
        secure = await stack.enter_async_context(open_client(tls=client_context(ca=str(tmp_path / "ca.pem"))))
        plain = await stack.enter_async_context(open_client())
        with trio.fail_after(30):
            while True:  # on a slow machine the first one may lose its place at once
                active = await _active(running, addresses)
                answer = await (plain if mode == "disabled" else secure).call(active, request(
                    RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest("c", "a", 1, "127.0.0.1:1;1")))
                if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                    break
            assert answer.code == ResponseCode.SUCCESS, answer
            if mode == "enforcing":
                with pytest.raises(RemotingError):
                    await plain.call(active, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
                assert await _mqadmin(active) == cli.FAILED
            else:
                answer = await plain.call(active, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
                assert answer.ext["isLeader"] == "true"
                assert await _mqadmin(active) == cli.DONE
            elsewhere = {"controllerDLegerGroup": "h", "controllerStorePath": str(tmp_path / "h")}
            foreign = from_properties({**given, **elsewhere})
            assert "is a controller of group g; this one is of group h" in await _failed_start(foreign)
            under_tls = cli.FAILED if mode == "disabled" else cli.DONE
            capsys.readouterr()
            assert await _mqadmin(active, "--tls") == under_tls
            assert "without --tls-ca no certificate is checked" in capsys.readouterr().err
            assert await _mqadmin(active, "--tls-ca", str(tmp_path / "ca.pem")) == under_tls
            assert await _mqadmin(active, "--tls-ca", str(tmp_path / "none.pem")) == cli.USAGE
        await stack.aclose()
        nursery.cancel_scope.cancel()


async def _active(running: Sequence[RunningController], addresses: Sequence[str]) -> str:
    """The address of the active one, once there is one."""
    while True:
        for controller, address in zip(running, addresses, strict=True):
            if controller.core.active.active:
                return address
        await trio.sleep(0.02)


async def _failed_start(config: ControllerConfig) -> str:
    """What the others' answers made this controller say."""
    said = ""
    try:
        await serve_controller(config, files=MemoryFiles(), listeners=[], tls=tls_of(config, raft_alpn=ALPN))
    except* ConfigError as failures:
        said = str(next(leaves(failures)))
    return said


async def _mqadmin(address: str, *tls: str) -> int:
    return await cli.run(cli.parser().parse_args(["getControllerMetaData", "-a", address, *tls]))


def test_enforcing_needs_what_controllers_check_each_other_with() -> None:
    config = from_properties({
        "controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-h:1", "controllerDLegerSelfId": "n0",
        "tls.server.mode": "enforcing", "tls.server.certPath": "c", "tls.server.keyPath": "k"})
    with pytest.raises(ConfigError, match="trustCertPath"):
        check(config)


async def test_the_first_controller_under_tls_hears_those_that_have_none_yet(tmp_path: Path) -> None:
    """Else, with an empty disk, it would begin the group a second time."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("n1", "127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "n1.key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "n1.pem"))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    peer = f"n0-127.0.0.1:{listener.socket.getsockname()[1]}"
    given = {"controllerDLegerGroup": "g", "controllerDLegerPeers": peer, "controllerDLegerSelfId": "n0",
             "controllerStorePath": str(tmp_path / "n0"), "segmentBytes": str(1 << 20)}
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(
            serve_controller, from_properties(given), files=MemoryFiles(), listeners=[listener]))
        with trio.fail_after(10):
            assert "is a controller of group g; this one is of group h" in await _failed_start(from_properties({
                **given, "controllerDLegerGroup": "h", "controllerDLegerPeers": f"{peer};n1-127.0.0.1:1",
                "controllerDLegerSelfId": "n1", "controllerStorePath": str(tmp_path / "n1"),
                "tls.server.certPath": str(tmp_path / "n1.pem"), "tls.server.keyPath": str(tmp_path / "n1.key"),
                "tls.server.trustCertPath": str(tmp_path / "ca.pem")}))
        nursery.cancel_scope.cancel()
