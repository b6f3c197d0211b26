"""Name servers that the DNS names, or an address server: found, found again, and kept while nobody answers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.config import BrokerConfig, check, from_properties
from broker.nameservers import NameServersPart, by_address_server, by_dns, lookups
from harness.simulation.worlds.brokers import NAMESRV, cluster, until
from remoting.daemon.keys import ConfigError


@contextmanager
def address_server(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[str]]]:
    """A real one, that answers one after the other and repeats the last; with the paths that were asked for."""
    left, asked = list(answers), list[str]()

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


async def test_the_dns_names_all_addresses_of_a_name() -> None:
    assert "127.0.0.1:9876" in await by_dns("localhost:9876")
    with pytest.raises(OSError, match=r"\w"):
        await by_dns("no-such-name.invalid:9876")
    with pytest.raises(ValueError, match="is no address"):
        await by_dns("localhost")


async def test_an_address_server_is_asked_where_java_asks_it() -> None:
    with address_server((200, b" 10.0.0.1:9876;10.0.0.2:9876 \r\nmore\n")) as (domain, asked):
        config = from_properties({"rocketmq.namesrv.domain": domain, "rocketmq.namesrv.domain.subgroup": "mine",
                                  "fetchNamesrvAddrByAddressServer": "true"})
        assert await by_address_server(config.address_server) == ["10.0.0.1:9876", "10.0.0.2:9876"]
        assert asked == ["/rocketmq/mine"]
    assert BrokerConfig().address_server == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"


@pytest.mark.parametrize("answer", [(404, b""), (200, b"nobody"), (200, b"h:1;" * 101), (200, b"\xff:1")])
async def test_what_is_no_list_of_addresses_is_none(answer: tuple[int, bytes]) -> None:
    with address_server(answer) as (domain, _), pytest.raises((OSError, ValueError)):
        await by_address_server(f"http://{domain}/")


async def test_what_was_found_is_kept_until_there_is_another_answer(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Sequence[str] | Exception] = [
        OSError("gone"), OSError("gone"), ["a:1"], ["a:1"], [], OSError("gone"), ["b:1", "a:1", "b:1"]]
    found: list[tuple[float, Sequence[str]]] = []

    async def ask() -> Sequence[str]:
        answer = answers.pop(0) if answers else ["b:1", "a:1"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        part = NameServersPart(ask, 10_000, "here", lambda now: found.append((trio.current_time() - began, now)))
        await nursery.start(part.run)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert [(round(at), now) for at, now in found] == [(2, ("a:1",)), (42, ("a:1", "b:1"))]
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["name servers not found"] * 3, "once for each that is another"


def test_what_is_asked() -> None:
    def asked(**given: str) -> int:
        return len(list(lookups(from_properties(given), lambda _: None)))

    assert asked() == asked(namesrvAddr="h:1") == 0
    assert asked(namesrvAddr="h:1", fetchNameSrvAddrByDnsLookup="true") == 1
    assert asked(fetchNamesrvAddrByAddressServer="true") == 1
    assert asked(namesrvAddr="h:1", fetchNamesrvAddrByAddressServer="true") == 0, "as in Java"
    with pytest.raises(ConfigError, match="one name and its port"):
        check(from_properties({"namesrvAddr": "h:1;i:1", "fetchNameSrvAddrByDnsLookup": "true", "brokerName": "a",
                               "brokerIP1": "127.0.0.1"}))


async def test_a_broker_registers_with_whom_it_is_told_of_and_no_more_with_others(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        registration = node.broker.registration
        await until(lambda: registration.registered == [NAMESRV])
        registration.use([NAMESRV, "other:1"])
        await trio.sleep(1)
        assert registration.registered == [NAMESRV], "the other one does not answer"
        registration.use(["other:1"])
        await trio.sleep(1)
        assert registration.registered == []
        registration.use([NAMESRV])
        await until(lambda: registration.registered == [NAMESRV])
