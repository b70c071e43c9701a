"""The GGUF model as llama.cpp opens it: file header, weights, vocabulary, LoRA adapters and contexts."""
