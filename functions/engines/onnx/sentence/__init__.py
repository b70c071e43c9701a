"""Sentence-transformers' kind of model as an ONNX graph: an encoder, pooling, and what follows it, all in numpy.

How that is done is read by `functions.engines.transformers.sentence.layout`, which knows no torch.
"""
