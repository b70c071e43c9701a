"""Sentence-transformers' kind of model: an encoder, pooling, and what follows it; a text becomes one vector.

It reads the model's own files for how that is done, and knows nothing of requests.
"""
