"""Thinking and tool calls in a model's text: one incremental parser and the formats of calls it knows."""
