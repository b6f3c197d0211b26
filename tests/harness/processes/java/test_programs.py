"""Our Java programs from the outside: settings as system properties, and every one is read."""

from __future__ import annotations

from pathlib import Path

from harness.processes.java import programs
from harness.processes.java.jvm import JVM


def test_settings_become_system_properties() -> None:
    jvm = programs.with_settings(JVM(heap_mb=64, system={"a": "b"}), {"count": 5, "topic": "t"})
    assert (jvm.heap_mb, jvm.system) == (64, {"a": "b", "count": "5", "topic": "t"})


def test_every_program_is_run_and_every_setting_read() -> None:
    """The Java sources and their callers are kept in step: each setting that is given is one that is read."""
    python = Path(programs.__file__).read_text()
    source = {path.stem: path.read_text() for path in (Path(programs.__file__).parent / "src").glob("*.java")}
    for main, given in {
        "Send": ("namesrv", "topic", "count", "interval_ms", "timeout_ms", "retries", "body_bytes", "group"),
        "Exercise": ("namesrv", "rounds", "interval_ms", "patience_s"),
        "Ask": ("namesrv", "topic", "count", "interval_ms", "ttl_ms"),
        "Receive": ("namesrv", "topic", "group", "sql", "ordered"),
        "Poll": ("namesrv", "topic", "group"),
        "Route": ("namesrv", "topic", "interval_ms", "timeout_ms"),
        "Operate": ("namesrv", "broker", "topic", "cluster", "replica", "controllers"),
    }.items():
        assert f'"{main}"' in python
        for name in given:
            assert f'"{name}"' in python
            assert f'"{name}"' in source[main]
