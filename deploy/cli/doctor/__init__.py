"""``slacktide doctor``: whether a machine, and the log it would talk to, is ready for an agent and a worker."""
