"""A certificate that signs itself: shared by replicas, renewed in time, and trusted before it is served."""
