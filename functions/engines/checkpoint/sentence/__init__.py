"""What sentence-transformers adds to a folder: modules, pooling, prompts and the kinds of vectors it gives."""
