"""Who is silent: nodes of which nothing has come into the log for a while, and when so many are that it is the log."""
