"""What turns prompts into tokens: the scripted engine and the MLX engine behind one protocol."""
