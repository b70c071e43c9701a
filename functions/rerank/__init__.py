"""The rerank function: documents by how well they answer a query."""
