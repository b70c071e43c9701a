"""A model folder in Hugging Face's format, read without torch: configuration, limits and tokenizer.

Shared by the engines that load such folders (Transformers and ONNX Runtime).
"""
