"""Choosing GGUF files out of listings as real repositories have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.llama import file_format as gguf
from host.errors import ModelFileNotFound


def bartowski(model: str, *labels: str) -> list[str]:
    return [".gitattributes", "README.md", f"{model}-imatrix.gguf", *(f"{model}-{label}.gguf" for label in labels)]


def split(start: str, count: int) -> list[str]:
    return [f"{start}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


LLAMA = bartowski(
    "Llama-3.2-3B-Instruct",
    *("IQ3_M", "IQ3_XS", "IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K_L", "Q3_K_M", "Q3_K_XL", "Q4_0", "Q4_0_4_4", "Q4_K_L"),
    *("Q4_K_M", "Q4_K_S", "Q5_K_L", "Q5_K_M", "Q5_K_S", "Q6_K", "Q6_K_L", "Q8_0", "f16"),
)
UNSLOTH = [
    *(f"Qwen3-8B-{label}.gguf" for label in ("BF16", "IQ4_NL", "IQ4_XS", "Q2_K", "Q2_K_L", "Q3_K_M", "Q4_0", "Q4_1")),
    *(f"Qwen3-8B-{label}.gguf" for label in ("Q4_K_M", "Q4_K_S", "Q5_K_M", "Q6_K", "Q8_0")),
    *(f"Qwen3-8B-UD-{label}.gguf" for label in ("IQ1_M", "IQ1_S", "IQ2_M", "IQ2_XXS", "Q2_K_XL", "Q4_K_XL", "Q8_K_XL")),
    *("config.json", "params", "template", "imatrix_unsloth.dat", "imatrix_unsloth.gguf_file"),
]
DEEPSEEK = [
    *split("BF16/DeepSeek-R1-BF16", 3),
    *split("Q8_0/DeepSeek-R1-Q8_0", 2),
    *split("UD-IQ1_S/DeepSeek-R1-UD-IQ1_S", 4),
    *split("UD-Q4_K_XL/DeepSeek-R1-UD-Q4_K_XL", 5),
]
BLOKE = ["config.json", *(f"llama-2-7b-chat.{label}.gguf" for label in ("Q2_K", "Q3_K_S", "Q4_0", "Q4_K_M", "Q8_0"))]
GEMMA = ["gemma-3-4b-it-Q4_K_M.gguf", "gemma-3-4b-it-Q8_0.gguf", "gemma-3-4b-it-f16.gguf", "mmproj-model-f16.gguf"]
QWEN = [
    "qwen2.5-7b-instruct-q2_k.gguf",
    "qwen2.5-7b-instruct-q3_k_m.gguf",
    *split("qwen2.5-7b-instruct-q4_k_m", 2),
    *split("qwen2.5-7b-instruct-q8_0", 3),
]
MRADERMACHER = ["m.imatrix.gguf", *(f"m.i1-{label}.gguf" for label in ("IQ1_M", "Q4_K_M", "Q4_K_S", "Q6_K"))]
PHI = ["Phi-3-mini-4k-instruct-fp16.gguf", "Phi-3-mini-4k-instruct-q4.gguf"]
OSS = ["gpt-oss-20b-mxfp4.gguf"]
MOE = ["gpt-oss-120b-F16.gguf", "gpt-oss-120b-MXFP4_MOE.gguf"]
GLM = [f"GLM-4.5-Air-{label}.gguf" for label in ("IQ4_KSS", "IQ5_K", "IQ2_KT", "smol-IQ4_KSS")]
TERNARY = ["bitnet-TQ1_0.gguf", "bitnet-TQ2_0.gguf", "ggml-model-i2_s.gguf"]
LEWD = ["M-IQ4_XS-imat.gguf", "M-Q4_K_M-imat.gguf", "M-Q8_0-imat.gguf"]
DRAFTED = ["Qwen3-32B-Q4_K_M.gguf", "draft/Qwen3-0.6B-draft-Q4_K_M.gguf", "loras/style-lora-F16.gguf"]
ONLY_DRAFT = ["R1-DRAFT-0.5B-Q4_0.gguf", "R1-DRAFT-0.5B-Q8_0.gguf"]
VISION = [
    "mmproj-BF16.gguf",
    "mmproj-F16.gguf",
    "mmproj-F32.gguf",
    "Qwen2.5-VL-7B-UD-Q4_K_XL.gguf",
    "Qwen2.5-VL-7B-BF16.gguf",
]
EMBEDDING = ["nomic-embed-text-v1.5.f16.gguf", "nomic-embed-text-v1.5.f32.gguf", "nomic-embed-text-v1.5.Q8_0.gguf"]
FOLDERS = ["Q4_K_M/model.gguf", "Q8_0/model.gguf", "f16/model.gguf"]
BOTH = ["m-Q4_K_M.gguf", *split("m-Q4_K_M", 2), *split("m-Q8_0", 2)]
OLDER = ["m-Q4_K_M.gguf", "old/m-Q4_K_M.gguf"]
SINGLE = ["stories15M.gguf"]


@pytest.mark.parametrize(
    ("names", "asked", "first"),
    [
        (LLAMA, None, "Llama-3.2-3B-Instruct-Q4_K_M.gguf"),
        (LLAMA, "q4_k_m", "Llama-3.2-3B-Instruct-Q4_K_M.gguf"),
        (LLAMA, "Q4_K_L", "Llama-3.2-3B-Instruct-Q4_K_L.gguf"),
        (LLAMA, "Q6_K", "Llama-3.2-3B-Instruct-Q6_K.gguf"),
        (LLAMA, "Q6_K_L", "Llama-3.2-3B-Instruct-Q6_K_L.gguf"),
        (LLAMA, "Q4_0", "Llama-3.2-3B-Instruct-Q4_0.gguf"),
        (LLAMA, "Q4_0_4_4", "Llama-3.2-3B-Instruct-Q4_0_4_4.gguf"),
        (LLAMA, "iq4_nl", "Llama-3.2-3B-Instruct-IQ4_NL.gguf"),
        (LLAMA, "F16", "Llama-3.2-3B-Instruct-f16.gguf"),
        (LLAMA, "FP16", "Llama-3.2-3B-Instruct-f16.gguf"),
        (LLAMA, "Q2_K", "Llama-3.2-3B-Instruct-Q2_K.gguf"),
        (UNSLOTH, None, "Qwen3-8B-Q4_K_M.gguf"),
        (UNSLOTH, "UD-Q4_K_XL", "Qwen3-8B-UD-Q4_K_XL.gguf"),
        (UNSLOTH, "ud-iq2_xxs", "Qwen3-8B-UD-IQ2_XXS.gguf"),
        (UNSLOTH, "Q2_K", "Qwen3-8B-Q2_K.gguf"),
        (UNSLOTH, "Q2_K_L", "Qwen3-8B-Q2_K_L.gguf"),
        (UNSLOTH, "BF16", "Qwen3-8B-BF16.gguf"),
        (UNSLOTH, "Q4_1", "Qwen3-8B-Q4_1.gguf"),
        (DEEPSEEK, None, "Q8_0/DeepSeek-R1-Q8_0-00001-of-00002.gguf"),
        (DEEPSEEK, "UD-Q4_K_XL", "UD-Q4_K_XL/DeepSeek-R1-UD-Q4_K_XL-00001-of-00005.gguf"),
        (DEEPSEEK, "BF16", "BF16/DeepSeek-R1-BF16-00001-of-00003.gguf"),
        (BLOKE, None, "llama-2-7b-chat.Q4_K_M.gguf"),
        (BLOKE, "Q3_K_S", "llama-2-7b-chat.Q3_K_S.gguf"),
        (GEMMA, "F16", "gemma-3-4b-it-f16.gguf"),
        (GEMMA, None, "gemma-3-4b-it-Q4_K_M.gguf"),
        (QWEN, None, "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf"),
        (QWEN, "Q8_0", "qwen2.5-7b-instruct-q8_0-00001-of-00003.gguf"),
        (QWEN, "Q3_K_M", "qwen2.5-7b-instruct-q3_k_m.gguf"),
        (MRADERMACHER, None, "m.i1-Q4_K_M.gguf"),
        (MRADERMACHER, "Q6_K", "m.i1-Q6_K.gguf"),
        (MRADERMACHER, "i1-Q4_K_S", "m.i1-Q4_K_S.gguf"),
        (PHI, None, "Phi-3-mini-4k-instruct-q4.gguf"),
        (PHI, "F16", "Phi-3-mini-4k-instruct-fp16.gguf"),
        (PHI, "fp16", "Phi-3-mini-4k-instruct-fp16.gguf"),
        (OSS, None, "gpt-oss-20b-mxfp4.gguf"),
        (OSS, "MXFP4", "gpt-oss-20b-mxfp4.gguf"),
        (MOE, None, "gpt-oss-120b-MXFP4_MOE.gguf"),
        (GLM, "IQ2_KT", "GLM-4.5-Air-IQ2_KT.gguf"),
        (GLM, "smol-IQ4_KSS", "GLM-4.5-Air-smol-IQ4_KSS.gguf"),
        (TERNARY, "TQ2_0", "bitnet-TQ2_0.gguf"),
        (TERNARY, "i2_s", "ggml-model-i2_s.gguf"),
        (LEWD, None, "M-Q4_K_M-imat.gguf"),
        (LEWD, "Q8_0", "M-Q8_0-imat.gguf"),
        (LEWD, "Q8_0-imat", "M-Q8_0-imat.gguf"),
        (DRAFTED, None, "Qwen3-32B-Q4_K_M.gguf"),
        (ONLY_DRAFT, None, "R1-DRAFT-0.5B-Q8_0.gguf"),
        (VISION, None, "Qwen2.5-VL-7B-UD-Q4_K_XL.gguf"),
        (VISION, "BF16", "Qwen2.5-VL-7B-BF16.gguf"),
        (EMBEDDING, "f16", "nomic-embed-text-v1.5.f16.gguf"),
        (EMBEDDING, "f32", "nomic-embed-text-v1.5.f32.gguf"),
        (FOLDERS, None, "Q4_K_M/model.gguf"),
        (FOLDERS, "F16", "f16/model.gguf"),
        (BOTH, None, "m-Q4_K_M.gguf"),
        (BOTH, "Q8_0", "m-Q8_0-00001-of-00002.gguf"),
        (OLDER, None, "m-Q4_K_M.gguf"),
        (SINGLE, None, "stories15M.gguf"),
    ],
)
def test_the_right_file(names: list[str], asked: str | None, first: str) -> None:
    files = gguf.choose(names, asked, "org/repo")
    assert files[0] == first
    assert set(files) <= set(names)
    count = int(first.rsplit("-of-", 1)[1].removesuffix(".gguf")) if "-of-" in first else 1
    assert len(files) == len(set(files)) == count


@pytest.mark.parametrize(
    ("names", "asked", "told"),
    [
        (LLAMA, "Q4_K", "no Q4_K; it has F16, IQ3_M"),
        (LLAMA, "BF16", "no BF16;"),
        (LLAMA, "Q4_K_XL", "no Q4_K_XL;"),
        (UNSLOTH, "Q4_K_XL", "UD-Q4_K_XL"),
        (UNSLOTH, "F16", "no F16; it has BF16"),
        (UNSLOTH, "UD-Q4_K_M", "no UD-Q4_K_M;"),
        (GEMMA, "BF16", "it has F16, Q4_K_M, Q8_0"),
        (VISION, "F16", "it has BF16, UD-Q4_K_XL"),
        (DRAFTED, "F16", "it has Q4_K_M"),
        (QWEN, "Q4_K_M ", "no Q4_K_M "),
        (OSS, "MXFP4_MOE", "it has MXFP4"),
        (["mmproj-F16.gguf"], None, "no GGUF file with a model's weights"),
        (["m-imatrix.gguf"], None, "no GGUF file"),
        (["README.md"], "Q8_0", "no GGUF file"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], None, "several models in Q8_0: name one of a-Q8_0.gguf, b-Q8_0.gguf"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", "several models"),
        (["a.gguf", "b.gguf"], None, "several models in unknown quantization"),
        (split("m-Q8_0", 4)[:2], "Q8_0", "m-Q8_0-00003-of-00004.gguf, m-Q8_0-00004-of-00004.gguf missing"),
        (SINGLE, "Q8_0", "it has stories15M.gguf"),
        (SINGLE, ".*", "no .*;"),
    ],
)
def test_what_is_not_there_is_told(names: list[str], asked: str | None, told: str) -> None:
    with pytest.raises(ModelFileNotFound) as caught:
        gguf.choose(names, asked, "org/repo")
    assert told in caught.value.message
    assert caught.value.message.startswith("org/repo has ")


LABELS = [
    *("Q2_K", "Q2_K_L", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q3_K_XL", "Q4_0", "Q4_1", "Q4_K", "Q4_K_S", "Q4_K_M", "Q4_K_L"),
    *("Q5_0", "Q5_1", "Q5_K_S", "Q5_K_M", "Q6_K", "Q6_K_L", "Q8_0", "UD-Q2_K_XL", "UD-Q4_K_XL", "UD-Q8_K_XL"),
    *(
        "IQ1_S",
        "IQ1_M",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ2_S",
        "IQ2_M",
        "IQ3_XXS",
        "IQ3_XS",
        "IQ3_S",
        "IQ3_M",
        "IQ4_XS",
        "IQ4_NL",
    ),
    *(
        "UD-IQ1_S",
        "UD-IQ2_XXS",
        "TQ1_0",
        "TQ2_0",
        "MXFP4",
        "MXFP4_MOE",
        "NVFP4",
        "F16",
        "BF16",
        "F32",
        "IQ4_KS",
        "IQ4_KSS",
    ),
]
STEMS = [
    "Llama-3.2-1B",
    "qwen2_5-vl",
    "Mixtral-8x7B-v0.1",
    "gemma-3n-E2B-it",
    "bge-m3",
    "Phi-3.5",
    "ggml-model",
    "Q-star",
]


@given(
    labels=st.lists(st.sampled_from(LABELS), min_size=1, max_size=12, unique=True),
    stem=st.sampled_from(STEMS),
    separator=st.sampled_from("-._"),
    lower=st.booleans(),
    folders=st.booleans(),
    shards=st.integers(1, 4),
    data=st.data(),
)
def test_any_label_finds_its_own_files_and_no_others(labels, stem, separator, lower, folders, shards, data) -> None:
    def files(label: str) -> list[str]:
        start = f"{stem}{separator}{label.lower() if lower else label}"
        start = f"{label}/{start}" if folders else start
        return [f"{start}.gguf"] if shards == 1 else split(start, shards)

    names = [name for label in labels for name in files(label)]
    asked = data.draw(st.sampled_from(LABELS))
    noise = ["mmproj-F16.gguf", "README.md"]
    if asked in labels:
        assert list(gguf.choose(data.draw(st.permutations(names + noise)), asked, "r")) == files(asked)
    else:
        with pytest.raises(ModelFileNotFound) as caught:
            gguf.choose(names + noise, asked, "r")
        assert caught.value.extra["available"] == sorted(labels)


@given(st.lists(st.sampled_from(LABELS), min_size=1, unique=True))
def test_without_a_wish_the_best_known_comes_first(labels: list[str]) -> None:
    (file,) = gguf.choose([f"m-{label}.gguf" for label in labels], None, "r")
    taken = gguf.label(file)
    ranks = [gguf.PREFERRED.index(label) for label in labels if label in gguf.PREFERRED]
    assert taken == gguf.PREFERRED[min(ranks)] if ranks else taken == min(labels)


@pytest.mark.parametrize(
    "name", ["Qwen3-8B.gguf", "m.gguf", "Q/x.gguf", "fp.gguf", "Q4K.gguf", "mQ8_0.gguf", "iq.gguf"]
)
def test_names_without_a_quantization(name: str) -> None:
    assert gguf.label(name) is None
