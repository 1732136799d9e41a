"""Where a model can go: pure functions over State and memory gauges."""
