"""CPU beyond their limit for throttled latency-sensitive pods, for a while. Pure."""
