"""What connects this node to the others: measured, told as facts, and what a Mac says of its cables."""
