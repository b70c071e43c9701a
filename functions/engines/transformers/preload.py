"""What a worker would import anyway, imported once into the forkserver: no thread is started, no device touched.

The model classes are those of common encoders; any other one is imported when it is loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import os

# Read when numpy and torch are imported. OpenBLAS would start its threads right then, and a process with threads is not
# safe to fork; nothing here multiplies matrices in numpy. OpenMP's threads would wait for each other by spinning, which
# beside other workers costs most of the speed: measured on two shared cores, 5 to 8 texts/s instead of 11 to 30.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

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
