"""Reads model folders in Hugging Face's format without torch: configuration, limits, tokenizer, sentence modules.

Shared by the engines that load such folders (Transformers and ONNX Runtime)."""
