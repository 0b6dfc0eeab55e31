"""``slacktide assess``: what a cluster could sell, from the Prometheus that it already has."""
