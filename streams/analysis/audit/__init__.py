"""Lists evictions, holds and freezes, and exports them to a tamper-evident file. Pure."""
