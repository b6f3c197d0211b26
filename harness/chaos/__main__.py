"""``python -m harness.chaos``: the command ``chaos`` in a checkout that is not installed."""

import sys

from harness.chaos.cli import main

sys.exit(main())
