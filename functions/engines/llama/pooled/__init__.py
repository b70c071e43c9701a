"""Pooled models on llama.cpp: embeddings of texts, reranking scores of pairs, and classification logits."""
