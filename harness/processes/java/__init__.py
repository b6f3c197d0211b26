"""Java peers: Apache RocketMQ's published programs, fetched, started, disturbed and asked, as async contexts of trio.

``await fetch()`` gives a ``Release``; every other call takes it first, then a directory that keeps what the process
writes. A scenario reads so::

    rocketmq = await java.fetch("5.5.0")
    async with (
        java.namesrv(rocketmq, here / "namesrv") as namesrv,
        java.broker(rocketmq, here / "a1", group="broker-a", namesrv=[namesrv.address], controllers=ours) as broker,
    ):
        await broker.kill()
        said = await java.mqadmin(rocketmq, "getSyncStateSet", "-a", ours[0], "-b", "broker-a")

It knows the Java side alone, and nothing of this project's servers.
"""

from harness.processes.java.admin import AdminRun, mqadmin
from harness.processes.java.errors import FetchFailed, JavaMissing, JavaPeerError
from harness.processes.java.jars import (
    CURRENT,
    OLDER,
    Release,
    Tools,
    cache_folder,
    cached,
    fetch,
    fetch_client,
    fetch_namesrv,
    find_tools,
)
from harness.processes.java.jvm import JVM
from harness.processes.java.programs import (
    asker,
    decoder,
    exercise,
    filtering,
    later,
    operate,
    poller,
    popper,
    receiver,
    router,
    sender,
    transactor,
)
from harness.processes.java.servers import broker, controller, controllers, namesrv

__all__ = [
    "CURRENT", "JVM", "OLDER", "AdminRun", "FetchFailed", "JavaMissing", "JavaPeerError", "Release", "Tools", "asker",
    "broker", "cache_folder", "cached", "controller", "controllers", "decoder", "exercise", "fetch", "fetch_client",
    "fetch_namesrv", "filtering", "find_tools", "later", "mqadmin", "namesrv", "operate", "poller", "popper",
    "receiver", "router", "sender", "transactor",
]
