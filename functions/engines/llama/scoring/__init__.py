"""Next-token scoring on llama.cpp: how probable each of many texts is behind a prefix that they share.

Token ids in: one prefix, and `Branch`es, each a suffix with the answers that may follow it. Log-probabilities out:
`await ScoringModel.score(prefix, branches)`. It serves whoever reads a decision off a generating model, such as
questions over one input, or rerankers that answer yes or no (prefix: instruction and query; suffixes: the documents).
"""
