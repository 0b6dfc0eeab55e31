"""The demo: a latency-sensitive service, greedy batch work, and the control loop between them."""
