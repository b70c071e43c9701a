"""Speculative decoding: draft tokens from a draft model or from prompt lookup, verified by the model in one batch."""
