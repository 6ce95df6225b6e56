"""What `make demo` runs: the real commands, one after the other, on the embedded default model.

The incident: eight generations at once, one of them a hog. `requests` shows it, `abort` ends just that one, the
others finish. State and sockets live in a temporary directory; an engine of yours is not touched."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from enginectl.client import connect
from enginectl.control import RequestView

QUESTIONS = [
    "What is a process?",
    "What does a scheduler do?",
    "Name three colours.",
    "What is a queue?",
    "Why do engines hang?",
    "What is a signal in Unix?",
    "What is 2 + 2?",
]
SHORT_TOKENS = 200
HOG_TOKENS = 4000
ENGINE = "default"
SEEN_S = 60.0


def enginectl(*words: str) -> None:
    """Runs one command as a user would, shows it, and stops the demo when it fails."""
    print(f"\n$ enginectl {' '.join(words)}", flush=True)
    done = subprocess.run(["enginectl", *words], timeout=1800)
    if done.returncode != 0:
        raise SystemExit(f"enginectl {words[0]} ended with {done.returncode}")


def generate(prompt: str, *options: str) -> subprocess.Popen[str]:
    words = ["enginectl", "generate", "-e", ENGINE, prompt, *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_running(number: int) -> list[RequestView]:
    """Until so many run at once. By the library: a process for each look would take the CPU from what it waits for."""
    end = time.monotonic() + SEEN_S
    with connect(ENGINE) as engine:
        while time.monotonic() < end:
            items = engine.requests()
            if sum(item.state == "running" for item in items) >= number:
                return items
            time.sleep(0.05)
    raise SystemExit(f"{number} requests did not run at once within {SEEN_S:.0f} s")


def play_the_incident() -> None:
    print(f"\n# {len(QUESTIONS) + 1} generations at once; one of them asks for {HOG_TOKENS:,} tokens")
    hog = generate("Count to a million.", "--max-tokens", str(HOG_TOKENS), "--ignore-eos")
    others = [generate(question, "--max-tokens", str(SHORT_TOKENS), "--ignore-eos") for question in QUESTIONS]
    try:
        items = wait_until_running(len(QUESTIONS) + 1)
        enginectl("requests", ENGINE)
        culprit = max(items, key=lambda item: item.max_tokens or 0)
        enginectl("abort", "-e", ENGINE, culprit.id)
        hog.wait(30)
        finished = [process.wait(600) for process in others]
    finally:
        for process in (hog, *others):
            process.kill()
            process.communicate()
    well = finished.count(0)
    print(f"# the hog ended with exit status {hog.returncode}; of the others, {well} of {len(others)} finished")
    if hog.returncode == 0 or any(finished):
        raise SystemExit("the incident did not go as it should")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ectl-") as home:
        os.environ["ENGINECTL_STATE_DIR"] = str(Path(home) / "state")
        os.environ["ENGINECTL_RUNTIME_DIR"] = str(Path(home) / "run")
        try:
            enginectl("start", "--set", "max_model_len=8192", "--set", "kv_memory=1GiB")
            play_the_incident()
            enginectl("call", "-e", ENGINE, "reset_prefix_cache")
            enginectl("top", ENGINE, "--once")
            enginectl("drain", ENGINE, "--grace", "30s")
        finally:
            subprocess.run(["enginectl", "kill", ENGINE, "--yes"], capture_output=True, timeout=60)


if __name__ == "__main__":
    main()
