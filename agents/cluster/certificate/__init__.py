"""A self-signed certificate: shared by replicas, rotated in time, and trusted before it is served."""
