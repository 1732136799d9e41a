"""The only door to NATS: runs the server, connects, and offers the `Bus` port."""
