"""Clients of the API server: the bridge between it and Kafka, the scheduler extender, and the admission webhook."""
