"""``python -m tests.powercut``: a thousand power cuts with sync=always, then some with sync=never, which must lose.

Exits 1 if anything acknowledged was lost under ``always``, or if nothing was lost under ``never`` (then the cuts
prove nothing), 2 where no C compiler is found to build the recorder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import attrs

from raft.config import Sync
from tests.powercut.campaign import campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=1_000)
    parser.add_argument("--control-cuts", type=int, default=50, help="cuts with sync=never; they must lose something")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    always = campaign(cuts=options.cuts, seed=options.seed)
    never = campaign(cuts=options.control_cuts, sync=Sync.NEVER, seed=options.seed) if always else None
    if always is None or never is None:
        sys.stderr.write("not run: a C compiler (cc, gcc or clang) is needed to build the recorder\n")
        return 2
    report = {"always": attrs.asdict(always), "never": {**attrs.asdict(never), "losses": never.losses[:3]},
              "seconds": round(time.monotonic() - started)}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if always.lost == 0 and never.lost > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
