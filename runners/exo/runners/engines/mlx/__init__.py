"""The engine that computes: mlx-lm models, batched continuously. Nothing outside this folder imports MLX."""
