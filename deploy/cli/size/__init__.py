"""``slacktide size``: what a cluster of a size needs, from measured bytes and benchmarks."""
