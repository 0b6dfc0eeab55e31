"""Computes the knobs of a node's groups: weights, ``cpu.idle``, limits and memory protection. Pure."""
