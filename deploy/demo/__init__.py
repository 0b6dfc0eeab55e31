"""The demo: a latency-sensitive service, batch work that uses all idle CPU, and the control loop."""
