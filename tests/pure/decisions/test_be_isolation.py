"""What a pod's groups hold by its spec, with the arithmetic; what policies make of it stands in test_node_knobs.py."""

from slacktide.streams.decisions.knobs import isolation
from testbed.vectors import stated_test

test_cases = stated_test("be_isolation", isolation)
