"""A file that skips itself whole, run by test_rungs.py alone."""

from __future__ import annotations

import pytest

pytest.skip("a part is missing", allow_module_level=True)
