"""A Spark session that has the data source, with a clear word where Java is missing.

Knows where Spark looks for Java; nothing of logs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from analysis.errors import JavaMissing
from analysis.register import PUSHDOWN, register

JAVA_MIN = 17
HOW_TO_GET = (
    f"install a Java runtime of version {JAVA_MIN} or later and put `java` on PATH, or set JAVA_HOME "
    "(on Debian: apt-get install openjdk-17-jre-headless)"
)

_LOGGING: Final = Path(__file__).absolute().with_name("log4j2.properties").as_uri()
_JAVA: Final = "spark.driver.extraJavaOptions"
QUIET: Final = {
    "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
    _JAVA: f"-Dlog4j2.configurationFile={_LOGGING}"}
"""Spark's settings for a command: its own log tells errors only."""
LIGHT: Final = {
    "spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false", "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1", "spark.python.sql.dataFrameDebugging.enabled": "false",
    _JAVA: f"{QUIET[_JAVA]} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Settings for small logs, best with ``local[1]``.

There Spark compiles each query for longer than it runs it, a broadcast is a job of its own, and notes of where each
column was named double the calls into Java.
"""


def session(master: str = "", *, name: str = "raft logs", **settings: str) -> SparkSession:
    """Return the active session, or a new one on ``master``, with the source.

    Default: as Spark is configured, else ``local[*]``. A new session shows timestamps in UTC.

    ``settings``: Spark's; a name without dots has ``_`` for them, as in ``spark_driver_memory="4g"``.

    Raises:
        JavaMissing: no Java of version 17 or later is found.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(name).config(PUSHDOWN, "true")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        if master:
            builder = builder.master(master)
        for key, value in settings.items():
            builder = builder.config(key if "." in key else key.replace("_", "."), value)
        active = builder.getOrCreate()
    register(active)
    return active


def check_java() -> int:
    """The major version of the Java that Spark will start. Raises ``JavaMissing``."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home}, where no bin/java is" if home else "no `java` is on PATH"
        raise JavaMissing(f"Spark runs on Java, and {where}: {HOW_TO_GET}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{java} does not run ({error}): {HOW_TO_GET}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    version = int(found[1]) if found else 0
    if version < JAVA_MIN:
        raise JavaMissing(f"{java} is Java {version or 'of an unknown version'}: {HOW_TO_GET}")
    return version
