"""One small Spark session for the modules here; where Java is missing they say so, as not run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import analysis
from analysis.errors import JavaMissing
from analysis.session import LIGHT, check_java


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        check_java()
    except JavaMissing as error:
        pytest.skip(f"not run: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = analysis.session(
            "local[1]", spark_driver_bindAddress="127.0.0.1", spark_driver_host="127.0.0.1", **LIGHT)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()
