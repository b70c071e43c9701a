"""Next-token scoring on llama.cpp: log-probabilities of many answers after a shared prefix.

Token ids in: one prefix, and `Branch`es, each a suffix with the answers that may follow it. Log-probabilities out:
`await ScoringModel.score(prefix, branches)`. It is used to read decisions off a generating model, such as
questions over one input, or rerankers that answer yes or no (prefix: instruction and query; suffixes: the documents).
"""
