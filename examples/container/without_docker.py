"""Do what a platform does with the container of one function, without Docker: start, probe, call, stop.

`python examples/container/without_docker.py [FOLDER]` runs the command of the Dockerfile beside it with `PORT` set,
waits for `/readyz`, asks the model, and sends SIGTERM.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

NAME = "smollm2-135m"
MANIFESTS = str(Path(__file__).parents[2] / "manifests")


def command(manifests: str) -> list[str]:
    """Return the container's command, with its folder of manifests."""
    return ["coldframe", "serve", "--manifests", manifests, "--only", NAME, "--host", "0.0.0.0"]  # noqa: S104


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    """Return when `/readyz` answers 200. The model is still cold then: the first call loads it."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise SystemExit("the host did not become ready")


def main(manifests: str = MANIFESTS) -> int:
    """Run the command to its end; returns its exit status, which is 0 after SIGTERM."""
    port = os.environ.get("PORT") or str(free_port())
    binary = str(Path(sys.executable).with_name("coldframe"))
    words = [binary, *command(manifests)[1:]]
    process = subprocess.Popen(words, env={**os.environ, "PORT": port})  # noqa: S603 - the command above
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            wait_until_ready(client, process)
            print("served:", [model["id"] for model in client.get("/v1/models").json()["data"]])
            question = {"role": "user", "content": "What is the capital of France?"}
            body = {"model": NAME, "messages": [question], "temperature": 0}
            answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            print("answer:", answer["choices"][0]["message"]["content"])
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        print("ended with status", status)
        return status
    finally:
        process.kill()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
