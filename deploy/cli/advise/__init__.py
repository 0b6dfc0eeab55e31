"""``slacktide advise``: tries a grid of policies on recorded days."""
