"""Imports what a worker needs, once in the forkserver: no thread is started, no device touched.

The model classes are those of common encoders; any other one is imported when it is loaded."""

from __future__ import annotations

import contextlib
import importlib
import os

# Read when numpy and torch are imported. OpenBLAS would start its threads right then, and a process with threads is not
# safe to fork; nothing here multiplies matrices in numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# How long OpenMP's threads wait for each other by spinning before they sleep. A model of six layers has a hundred
# places where they meet: asleep at once, MiniLM takes 6 ms for a short text on two cores, and 2 ms after a short spin.
# Spinning for as long as libgomp would by itself costs most of the speed beside other workers.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import safetensors.torch
import tokenizers
import torch
import transformers.modeling_utils
import transformers.models.auto.configuration_auto
import transformers.models.auto.modeling_auto
import transformers.models.bert.modeling_bert
import transformers.models.distilbert.modeling_distilbert
import transformers.models.modernbert.modeling_modernbert
import transformers.models.mpnet.modeling_mpnet
import transformers.models.qwen3.modeling_qwen3
import transformers.models.roberta.modeling_roberta
import transformers.models.t5.modeling_t5
import transformers.models.xlm_roberta.modeling_xlm_roberta

# Loading weights asks for this table first, and making it compiles a thousand regular expressions: half the time that
# a small model takes to load. Its module keeps it; a release of Transformers without it is slower and no worse.
with contextlib.suppress(ImportError, AttributeError):
    importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bert")

__all__ = ("safetensors", "tokenizers", "torch", "transformers")
