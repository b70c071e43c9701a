"""Pooled models on llama.cpp: a text becomes one vector, or a pair of texts one score.

It knows tokens, batches and what the file says of pooling, and nothing of requests or wire formats.
"""
