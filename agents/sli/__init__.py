"""Publishes the latency of services, as a Prometheus server knows it."""
