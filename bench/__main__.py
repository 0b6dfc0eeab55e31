"""``python bench``: what ``make bench`` runs."""

import sys
from pathlib import Path

# As for pytest (pyproject, pythonpath): helpers are modules with one name, `bench…` and `testbed…`.
ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from bench.run import main  # noqa: E402

sys.exit(main())
