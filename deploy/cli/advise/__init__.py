"""``slacktide advise``: recorded days under a grid of policies, and the knee."""
