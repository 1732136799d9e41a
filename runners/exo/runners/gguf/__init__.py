"""Import of GGUF files: the format, what of it MLX can hold exactly, and the model folder built from it.

Called by `exo.runners.convert`. Needs numpy and tokenizers, never MLX.
"""
