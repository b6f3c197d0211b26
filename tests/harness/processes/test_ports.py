"""Reserved ports: free for the server they are for, across its restarts, and for nobody else."""

from __future__ import annotations

import errno
import socket

import pytest

from harness.processes import ports
from harness.processes.ports import reserved


def serve(port: int) -> socket.socket:
    """What a server does: bind with SO_REUSEADDR, and listen."""
    return socket.create_server(("127.0.0.1", port), reuse_port=False)


def test_the_server_may_come_go_and_come_again() -> None:
    with reserved() as port:
        for _ in range(2):
            with serve(port) as listening, socket.create_connection(("127.0.0.1", port)) as dialled:
                accepted, _ = listening.accept()
                accepted.close()
                assert dialled.recv(1) == b""


def test_others_do_not_get_it() -> None:
    with reserved(-2, 1) as port:
        for taken in (port - 2, port, port + 1):
            with socket.socket() as other, pytest.raises(OSError) as refused:
                other.bind(("127.0.0.1", taken))
            assert refused.value.errno == errno.EADDRINUSE
        with reserved() as another:
            assert another not in (port - 2, port, port + 1)


def test_it_is_free_afterwards() -> None:
    with reserved() as port:
        pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_neighbours_are_none_that_connections_leave_behind() -> None:
    with reserved(*range(1, 60)) as port:
        assert not set(range(port, port + 60)) & set(range(32_768, 61_000)), "ports that Linux gives to clients"


def test_neighbours_that_are_taken_make_it_look_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every port is taken as a neighbour: it gives up with words, and holds nothing."""
    held: list[int] = []

    def taken(port: int) -> socket.socket:
        held.append(port)
        raise OSError(errno.EADDRINUSE, "taken")

    monkeypatch.setattr(ports, "_bind_fresh", taken)
    with pytest.raises(OSError, match=r"no free port with free neighbours at \(-2, 1\)"), reserved(-2, 1):
        raise AssertionError("it must not be entered")
    assert len(held) == ports.TRIES
