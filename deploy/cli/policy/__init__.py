"""``slacktide policy``: what a policy says, checked before anything acts by it."""
