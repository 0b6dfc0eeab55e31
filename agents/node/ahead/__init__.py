"""Samples ahead of their tick: pressure triggers, and looks at what latency-sensitive pods use."""
