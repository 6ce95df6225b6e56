"""For the peer's engine core: an executor that runs no model, one fixed token for each scheduled request.

Runs in the peer's venv, named to --distributed-executor-backend; needs its package, and nothing of this project.
What it says of the KV cache is what the model's configuration gives, so that the scheduler has its real work."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from vllm.v1.executor.abstract import Executor  # type: ignore[import-not-found]
from vllm.v1.kv_cache_interface import FullAttentionSpec  # type: ignore[import-not-found]
from vllm.v1.outputs import ModelRunnerOutput  # type: ignore[import-not-found]

TOKEN = 7
KV_BYTES = 4 * 1024**3
"""Never allocated; room for as many blocks as the requests at once need."""
BLOCK_TOKENS = 16
ANSWERS: dict[str, Any] = {"get_supported_tasks": ("generate",), "supports_draft_weight_updates": False}


class NullExecutor(Executor):  # type: ignore[misc]
    def _init_executor(self) -> None:
        pass

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        model = self.model_config
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size or BLOCK_TOKENS,
            num_kv_heads=model.get_num_kv_heads(self.parallel_config),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
        return [{f"layer.{n}": spec for n in range(model.get_num_layers(self.parallel_config))}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBHNC"]]

    def determine_available_memory(self) -> list[int]:
        return [KV_BYTES]

    def collective_rpc(
        self,
        method: Any,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        """There are no workers: whatever they are told is done."""
        answers = [ANSWERS[method]] if method in ANSWERS else []
        return finished(answers) if non_block else answers

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        ids = list(scheduler_output.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
            sampled_token_ids=[[TOKEN] for _ in ids],
        )
        return finished(output) if non_block else output

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


def finished(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
