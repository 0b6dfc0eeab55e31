"""The console: what the log showed, second by second, in a browser."""
