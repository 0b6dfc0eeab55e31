"""What the console keeps of the log: one file of SQLite, written by one follower, read by the pages."""
