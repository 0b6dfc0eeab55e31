"""``python tests/bench``: what ``make bench`` runs."""

from __future__ import annotations

import sys
from pathlib import Path

# As for pytest (pyproject, pythonpath): helpers are modules with one name, `bench…` and `testbed…`.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.run import main  # noqa: E402

sys.exit(main())
