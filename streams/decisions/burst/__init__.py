"""Raises the CPU quotas of throttled latency-sensitive pods above their limits for a while. Pure."""
