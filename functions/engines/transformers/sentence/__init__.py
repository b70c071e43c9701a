"""Sentence-transformers models on torch: an encoder, pooling and the modules after it, as the model's files state."""
