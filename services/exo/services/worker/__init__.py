"""The worker: follows State and makes this node's runners match it."""
