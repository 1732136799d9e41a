"""Model files on this node: what is there, how more get there, how they go."""
