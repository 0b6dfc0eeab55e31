"""Invariants of a finished run, checked on everything that its topics hold and on what its nodes' kernels saw."""
