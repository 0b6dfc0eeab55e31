"""What the node's production pods will use at most: models trained here, published for the stream."""
