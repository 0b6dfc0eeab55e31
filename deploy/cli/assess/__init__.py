"""``slacktide assess``: what a cluster could offer to batch pods, from existing Prometheus data."""
