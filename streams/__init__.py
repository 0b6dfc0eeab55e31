"""Pure decisions, samples and windows in columns, the stream worker, and the engine that runs it on Kafka."""

assert __name__ == "slacktide.streams", "import slacktide.streams, not streams: a second copy would be loaded"
