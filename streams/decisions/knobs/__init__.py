"""What the knobs of a node's groups hold: weights, ``cpu.idle``, limits and memory protection. Pure."""
