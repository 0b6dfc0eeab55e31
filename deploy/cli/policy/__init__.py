"""``slacktide policy``: what a policy sets, checked before anything acts by it."""
