"""Samples ahead of the tick, on pressure triggers or a rise of latency-sensitive CPU use."""
