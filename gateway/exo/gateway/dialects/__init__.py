"""The client protocols. A dialect parses its requests and renders chunks; nothing else knows its shapes."""
