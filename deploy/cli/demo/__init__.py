"""The demo: a latency-sensitive service, batch work that would eat everything, and the loop between them."""
