"""Ask a running host with OpenAI's SDK, which needs nothing but another base URL.

`python examples/openai_sdk.py [URL]`; default: http://127.0.0.1:8000/v1.
"""

import sys

from openai import OpenAI


def main(url: str = "http://127.0.0.1:8000/v1") -> None:
    """Chat, chat with a stream, and embed."""
    client = OpenAI(base_url=url, api_key="none")
    answer = client.chat.completions.create(
        model="smollm2-135m",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
    )
    print(answer.choices[0].message.content)

    stream = client.chat.completions.create(
        model="smollm2-135m",
        messages=[{"role": "user", "content": "What is the capital of Italy?"}],
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()

    vectors = client.embeddings.create(model="all-minilm-l6-v2", input=["a cold frame", "a greenhouse"])
    print(len(vectors.data), "vectors of", len(vectors.data[0].embedding), "numbers")


if __name__ == "__main__":
    main(*sys.argv[1:])
