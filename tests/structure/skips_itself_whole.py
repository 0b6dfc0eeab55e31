"""A file that skips itself whole, run by test_rungs.py alone."""

import pytest

pytest.skip("a part is missing", allow_module_level=True)
