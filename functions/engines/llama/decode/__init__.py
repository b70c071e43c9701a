"""Text generation: continuous batching, sampling and detokenization over one llama.cpp context."""
