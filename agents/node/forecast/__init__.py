"""Peak usage models of production pods: trained on the node, published for the stream workers."""
