"""Sentence-transformers models exported to ONNX: an encoder, pooling and the modules after it, computed in numpy.

`functions.engines.checkpoint.sentence.layout` reads which modules those are from the model's files.
"""
