"""Thinking: pure decisions and windows, the worker around them, and the shells that feed it."""

assert __name__ == "slacktide.streams", "import slacktide.streams, not streams: a second copy would be loaded"
