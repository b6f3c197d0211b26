"""What transactions, timers, delayed messages and POP cost a broker: calls and CPU time of each, in one process.

    python -m benchmarks.broker_calls [--parts timers,enqueued,popped] [--count 20000] [--slaves 1] [--top 30]

A master with so many slaves runs in one thread, on real sockets and disks; who sends is another thread, and is not
counted. Each part runs twice: for the CPU time, and under cProfile for the calls, which are nearly the same on any
machine, however busy it is. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count as numbers
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import attrs
import trio

from benchmarks.measure import quantile
from broker.config import from_properties
from broker.parts import configuration
from broker.schedule.levels import LEVELS_MAX
from broker.schedule.part import DelaysPart
from broker.server import RunningBroker, World, serve_broker
from broker.store.directory import DirectoryFiles
from broker.timer.part import TimersPart
from broker.transactions.part import TransactionsPart
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.daemon.files import DiskFiles
from remoting.frame import FrameReader, encode
from remoting.headers.popping import AckMessageRequest, PopMessageRequest, PopMessageResponse
from remoting.headers.sending import SendMessageRequestV2
from remoting.headers.transactions import EndTransactionRequest
from remoting.receipts import Receipt, read_offsets, read_starts
from remoting.record import COMMIT, PREPARED, encode_properties, parse_message_id

WINDOW: Final = 32
SENDERS: Final = 8
BODY: Final = b"." * 128
GROUP: Final = "shop"
AHEAD_MS: Final = 3_600_000
"""As long before their time timers are stored; then all brokers' clocks are set to it."""
FIRST_LEVEL: Final = 6
"""The shortest delay level in use: the others come due while messages are stored."""


@attrs.define(eq=False)
class Sender:
    """A producer with one connection, in a thread of its own."""

    port: int
    _socket: socket.socket = attrs.field(init=False)
    _reader: FrameReader = attrs.field(init=False, factory=FrameReader)

    _numbers: Iterator[int] = attrs.field(init=False, factory=numbers)

    def __attrs_post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def answers(self) -> Iterator[Command]:
        for answer in self.received():
            assert not answer.code, answer
            yield answer

    def received(self) -> Iterator[Command]:
        return self._reader.feed(self._socket.recv(1 << 20))

    def all_of(self, frames: list[bytes]) -> list[Command]:
        """Sent at once; their answers."""
        self._socket.sendall(b"".join(frames))
        found: list[Command] = []
        while len(found) < len(frames):
            found += self.answers()
        return found

    def send_oneway(self, frames: list[bytes]) -> None:
        self._socket.sendall(b"".join(frames))

    def latencies_ms(self, seconds: float) -> list[float]:
        """Of sends, so many under way at any time."""
        ends, found, began = time.perf_counter() + seconds, list[float](), dict[int, float]()
        while time.perf_counter() < ends or began:
            while time.perf_counter() < ends and len(began) < SENDERS:
                command = sent("plain", "U")
                command.opaque = next(self._numbers)
                began[command.opaque] = time.perf_counter()
                self._socket.sendall(encode(command))
            for answer in self.answers():
                found.append((time.perf_counter() - began.pop(answer.opaque)) * 1e3)
        return found


def latencies_ms(port: int, seconds: float) -> list[float]:
    """Of sends from a process of its own: a thread of this one would wait for Python's lock."""
    sender = Sender(port)
    found = sender.latencies_ms(seconds)
    sender.close()
    return found


@attrs.define
class Clock:
    """The brokers' wall clock, which can be set."""

    ahead_ms: int = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


def sent(topic: str, unique: str, sys_flag: int = 0, **properties: str) -> Command:
    values = {"UNIQ_KEY": unique, "WAIT": "true", "TAGS": "TagA", **properties}
    return request(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2(
        topic=topic, queue_id=1, producer_group=GROUP, default_topic="TBW102", default_topic_queue_nums=4,
        born_timestamp=time.time_ns() // 1_000_000, properties=encode_properties(values).decode(), batch=False,
        reconsume_times=0, unit_mode=False, sys_flag=sys_flag), BODY)


def ended(answer: Command) -> Command:
    """The commit of the half that was stored with this answer."""
    return request(RequestCode.END_TRANSACTION, EndTransactionRequest(
        GROUP, int(answer.ext["queueOffset"]), parse_message_id(answer.ext["msgId"])[1], COMMIT, False,
        answer.ext["transactionId"], answer.ext["transactionId"]), oneway=True)


@asynccontextmanager
async def brokers(root: Path, slaves: int, clock: Clock) -> AsyncGenerator[list[RunningBroker], None]:
    """A master that answers when its slaves have it, and those."""
    async with trio.open_nursery() as nursery:
        found: list[RunningBroker] = []
        for number in range(1 + slaves):
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            (ha,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            given = {
                "brokerName": "a", "brokerIP1": "127.0.0.1", "brokerId": str(number), "fastListen": "false",
                "storePathRootDir": str(root / str(number)), "listenPort": str(listener.socket.getsockname()[1]),
                "haListenPort": str(ha.socket.getsockname()[1]), "waitTimeMillsInSendQueue": "60000",
                "brokerRole": "SLAVE" if number else "SYNC_MASTER" if slaves else "ASYNC_MASTER",
                "inSyncReplicas": str(1 + slaves), "totalReplicas": str(1 + slaves)}
            if number:
                given["haMasterAddress"] = found[0].config.ha_address
            config = from_properties(given, start=configuration()())
            world = World(DiskFiles(), DirectoryFiles(config.store_path_root_dir), wall_ms=clock.now_ms)
            found.append(await nursery.start(partial(serve_broker, config, world, [listener], ha_listeners=[ha])))
        yield found
        for each in reversed(found):
            await each.stop()


@attrs.define(eq=False)
class Counted:
    """What the loop's thread does while it is entered."""

    profile: cProfile.Profile | None
    cpu_s: float = 0.0
    took_s: float = 0.0

    def __enter__(self) -> None:
        self.cpu_s, self.took_s = -time.thread_time(), -time.perf_counter()
        if self.profile is not None:
            self.profile.enable()

    def __exit__(self, *_: object) -> None:
        if self.profile is not None:
            self.profile.disable()
        self.cpu_s += time.thread_time()
        self.took_s += time.perf_counter()


@attrs.define(eq=False)
class Passes(trio.abc.Instrument):
    """CPU time of each pass of the loop, in which all tasks have a turn that want one: who sends waits for some."""

    took_ms: list[float] = attrs.field(factory=list)
    _began_s: float | None = None

    def after_io_wait(self, timeout: float) -> None:
        self._began_s = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        if self._began_s is not None:
            self.took_ms.append((time.thread_time() - self._began_s) * 1e3)


Measure = Callable[[list[RunningBroker], int, Counted, Clock], Awaitable[str]]


async def transactions(running: list[RunningBroker], count: int, counted: Counted, clock: Clock) -> str:
    """Halves and their commits, both ``WINDOW`` at a time; until each replica knows that all ended."""
    sender = Sender(running[0].config.listen_port)

    def work(begin: int, end: int) -> None:
        for number in range(begin, end, WINDOW):
            halves = [encode(sent("paid", f"{unique:032X}", PREPARED, TRAN_MSG="true", PGROUP=GROUP))
                      for unique in range(number, number + WINDOW)]
            sender.send_oneway([encode(ended(answer)) for answer in sender.all_of(halves)])

    async def known(ends: int) -> None:
        parts = [each.parts[TransactionsPart] for each in running]
        while any(part.feed.half_end < ends or part.feed.behind or len(part.halves) for part in parts):  # noqa: ASYNC110
            await trio.sleep(0.01)

    warm = 10 * WINDOW
    await trio.to_thread.run_sync(work, 0, warm)
    await known(warm)
    with counted:
        await trio.to_thread.run_sync(work, warm, warm + count)
        await known(warm + count)
    sender.close()
    return ""


def stored(sender: Sender, count: int, properties: Callable[[int], dict[str, str]]) -> None:
    """Messages with these properties by their number, ``WINDOW`` at a time."""
    for number in range(0, count, WINDOW):
        sender.all_of([encode(sent("due", f"{unique:032X}", 0, **properties(unique)))
                       for unique in range(number, number + WINDOW)])


async def burst(master: RunningBroker, counted: Counted, store: Callable[[Sender], None], begin: Callable[[], None],
                left: Callable[[], int]) -> str:
    """Work that waits begins at once; once more, without cProfile, while ``SENDERS`` ordinary sends of another process
    are under way at any time."""
    sender, found, passes, both = Sender(master.config.listen_port), list[float](), Passes(), Counted(None)

    async def ended() -> None:
        while left():  # noqa: ASYNC110
            await trio.sleep(0.01)

    async def send(seconds: float, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            found.extend(await trio.to_thread.run_sync(pool.apply, latencies_ms, (sender.port, seconds)))

    await trio.to_thread.run_sync(store, sender)
    begin()
    with counted:
        await ended()
    if counted.profile is not None:
        sender.close()
        return ""
    await trio.to_thread.run_sync(store, sender)
    with get_context("spawn").Pool(1) as pool:
        with trio.move_on_after(3):
            await send(0.1)
        before = quantile(sorted(found[len(found) // 3:]), 0.99)
        found.clear()
        async with trio.open_nursery() as nursery:
            await nursery.start(send, 0.1)
            begin()
            trio.lowlevel.add_instrument(passes)
            with both:
                await ended()
            trio.lowlevel.remove_instrument(passes)
            nursery.cancel_scope.cancel()
    sender.close()
    after = quantile(sorted(found), 0.99)
    return (f"with sends: the last {both.took_s:.2f} s behind its time, {both.cpu_s:.2f} s of CPU; a pass of the loop "
            f"{quantile(sorted(passes.took_ms), 0.99):.2f} ms of CPU in 99 % of {len(passes.took_ms)}, at most "
            f"{max(passes.took_ms):.1f} ms; sends p99 {before:.1f} ms before, {after:.1f} ms meanwhile "
            f"({after / before:.1f} times), {len(found)} of them")


async def timers(running: list[RunningBroker], count: int, counted: Counted, clock: Clock) -> str:
    """Timers that are all due in one second."""
    due_ms, part = 0, running[0].parts[TimersPart]
    wanted = 0

    def store(sender: Sender) -> None:
        nonlocal due_ms, wanted
        due_ms, wanted = (clock.now_ms() + AHEAD_MS) // 1_000 * 1_000, wanted + count
        stored(sender, count, lambda unique: {"TIMER_DELIVER_MS": str(due_ms + unique * 1_000 // count)})

    def begin() -> None:
        clock.ahead_ms += due_ms + 1_000 - clock.now_ms()

    return await burst(running[0], counted, store, begin, lambda: wanted - part.counters.delivered.total())


async def enqueued(running: list[RunningBroker], count: int, counted: Counted, clock: Clock) -> str:
    """Timers that all wait to be put into the wheel."""
    master = running[0]
    part = master.parts[TimersPart]
    wanted = 0

    def stop(value: str) -> None:
        part.configure(from_properties({"timerStopEnqueue": value}, start=master.config))

    def store(sender: Sender) -> None:
        nonlocal wanted
        wanted += count
        trio.from_thread.run_sync(stop, "true")
        stored(sender, count, lambda unique: {"TIMER_DELIVER_MS": str(clock.now_ms() + AHEAD_MS)})

    return await burst(master, counted, store, lambda: stop("false"), lambda: wanted - part.places[0])


async def levels(running: list[RunningBroker], count: int, counted: Counted, clock: Clock) -> str:
    """Delayed messages of all levels that are all due at once."""
    part = running[0].parts[DelaysPart]
    wanted = 0

    def store(sender: Sender) -> None:
        nonlocal wanted
        wanted += count
        stored(sender, count, lambda unique: {"DELAY": str(FIRST_LEVEL + unique % (LEVELS_MAX + 1 - FIRST_LEVEL))})

    def begin() -> None:
        clock.ahead_ms += 2 * AHEAD_MS

    return await burst(running[0], counted, store, begin, lambda: wanted - sum(part.delivered().values()))


async def popped(running: list[RunningBroker], count: int, counted: Counted, clock: Clock, together: int) -> str:
    """Messages that one consumer pops, ``WINDOW`` at a time, and acknowledges, so many requests at once."""
    master = running[0]
    sender, own = Sender(master.config.listen_port), count + 10 * WINDOW

    def work(number: int) -> None:
        for _ in range(0, number, WINDOW):
            (answer,) = sender.all_of([encode(request(RequestCode.POP_MESSAGE, PopMessageRequest(
                GROUP, "popped", -1, WINDOW, 600_000, 1_000, clock.now_ms())))])
            found = PopMessageResponse.from_ext(answer.ext)
            begins = read_starts(found.start_offset_info or "")
            acks = [encode(request(RequestCode.ACK_MESSAGE, AckMessageRequest(
                GROUP, "popped", queue_id, Receipt(begins[flag, queue_id], found.pop_time, found.invisible_time,
                                                   found.revive_qid, flag, "a", queue_id, offset).encode(), offset)))
                for (flag, queue_id), offsets in read_offsets(found.msg_offset_info or "").items()
                for offset in offsets]
            assert len(acks) == WINDOW, len(acks)
            for begin in range(0, WINDOW, together):
                sender.all_of(acks[begin:begin + together])

    def store() -> None:
        for number in range(0, own, WINDOW):
            sender.all_of([encode(sent("popped", f"{unique:032X}")) for unique in range(number, number + WINDOW)])
        time.sleep(0.5)

    await trio.to_thread.run_sync(store)
    await trio.to_thread.run_sync(work, own - count)
    with counted:
        await trio.to_thread.run_sync(work, count)
    sender.close()
    return ""


PARTS: Final[dict[str, Measure]] = {
    "transactions": transactions, "timers": timers, "enqueued": enqueued, "levels": levels,
    "popped": partial(popped, together=WINDOW), "popped-singly": partial(popped, together=1)}


async def measured(name: str, count: int, slaves: int, profile: cProfile.Profile | None) -> None:
    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-calls-")))
        counted, clock = Counted(profile), Clock()
        running = await stack.enter_async_context(brokers(root, slaves, clock))
        found = await PARTS[name](running, count, counted, clock)
    if profile is None:
        print(f"{name}, {slaves} slaves: {counted.cpu_s / count * 1e6:.1f} µs of CPU each, "
              f"{count / counted.took_s:,.0f}/s{found and '; '}{found}", flush=True)


def calls(profile: cProfile.Profile, count: int, top: int) -> None:
    stats = pstats.Stats(profile)
    rows = stats.stats.items()  # type: ignore[attr-defined]
    python = sum(row[1] for (file, _, _), row in rows if not file.startswith("~"))
    every = sum(row[1] for _, row in rows)
    print(f"  calls each: {python / count:.1f} of Python functions, {every / count:.1f} with built-in ones")
    root = Path(__file__).parents[1]
    for (file, line, function), (_, number, own, _, _) in sorted(rows, key=lambda row: -row[1][2])[:top]:
        where = Path(file).relative_to(root) if file.startswith(str(root)) else Path(file).name
        print(f"  {own / count * 1e6:8.2f} µs  {number / count:6.2f} times  {where}:{line} {function}")


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--slaves", type=int, default=1)
    parser.add_argument("--top", type=int, default=30, help="functions that take most time")
    asked = parser.parse_args()
    count = asked.count // WINDOW * WINDOW
    for name in asked.parts:
        trio.run(measured, name, count, asked.slaves, None)
        profile = cProfile.Profile(time.thread_time)
        trio.run(measured, name, count, asked.slaves, profile)
        calls(profile, count, asked.top)


if __name__ == "__main__":
    main()
