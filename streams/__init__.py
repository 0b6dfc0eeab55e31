"""Pure decisions, samples and windows as arrays, the worker around them, and the engine that feeds it from Kafka."""

assert __name__ == "slacktide.streams", "import slacktide.streams, not streams: a second copy would be loaded"
