from __future__ import annotations

from enginectl.redaction import GONE, redacted_settings, redacted_text, secrets_of
from enginectl.settings import EngineSettings


def settings() -> EngineSettings:
    return EngineSettings(
        name="t",
        config={"model": "/m"},
        env={"HF_TOKEN": "abcdef123456", "OMP_NUM_THREADS": "4", "DB_PASSWORD": "pw"},
        engine_args=["--api-key", "topsecret99", "--port", "8000", "--auth-token=tok-12345"],
    )


def test_values_of_secrets_go_and_the_rest_stays() -> None:
    found = redacted_settings(settings())
    assert found.env == {"HF_TOKEN": GONE, "OMP_NUM_THREADS": "4", "DB_PASSWORD": GONE}
    assert found.engine_args == ["--api-key", GONE, "--port", "8000", f"--auth-token={GONE}"]
    assert settings().env["HF_TOKEN"] == "abcdef123456"


def test_a_log_that_repeats_a_secret_does_not_keep_it() -> None:
    text = redacted_text("token abcdef123456 at https://me:pass@host/x hf_abcdefghijk pw", secrets_of(settings()))
    assert text == f"token {GONE} at https://{GONE}@host/x {GONE} pw"
