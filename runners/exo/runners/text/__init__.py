"""Text on its way into and out of an engine: templates, characters, stop strings, reasoning and tool calls."""
