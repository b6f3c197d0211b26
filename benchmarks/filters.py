"""Evaluations per second of filters over properties, on bytes as they stand in the log. No broker runs.

    python -m benchmarks.filters            # one line of JSON for each expression
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

from broker.filters.expressions import Expression
from remoting.record import encode_properties

EXPRESSIONS = {
    "one number": "price > 500",
    "one text": "colour = 'red'",
    "range and text": "price BETWEEN 100 AND 200 AND colour = 'red'",
    "list": "region IN ('eu', 'us', 'cn') AND NOT (colour = 'blue')",
    "eight terms": " OR ".join(f"price = {number}" for number in range(8)),
    "five names": "a = 1 OR b = 2 OR c = 3 OR price > 900 OR colour CONTAINS 'x'",
}
ROUNDS, SECONDS = 5, 0.3


def messages() -> list[bytes]:
    """A thousand, with what a Java client puts beside a user's properties."""
    return [encode_properties({
        "KEYS": f"order-{number}", "UNIQ_KEY": f"7F000001{number:024X}", "CLUSTER": "DefaultCluster", "WAIT": "true",
        "TAGS": "TagA", "price": str(number), "colour": ("red", "blue", "green")[number % 3],
        "region": ("eu", "us", "ap", "sa")[number % 4], "TRACE_ON": "true"}) for number in range(1_000)]


def main() -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.filters", description=__doc__).parse_args()
    every = messages()
    for name, text in EXPRESSIONS.items():
        began = time.perf_counter()
        matches = Expression(text).matches
        compile_us = (time.perf_counter() - began) * 1e6
        rates, wanted = [], sum(map(matches, every))
        for _ in range(ROUNDS):
            count, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < SECONDS:
                for raw in every:
                    matches(raw)
                count += len(every)
            rates.append(count / spent)
        print(json.dumps({"expression": name, "text": text, "wanted of 1000": wanted, "compile_us": round(compile_us),
                          "per_second": round(statistics.median(rates))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
