"""``slacktide size``: computes the resources for a cluster size, from measurements."""
