"""The node agent: collect, sample, act, guard."""
