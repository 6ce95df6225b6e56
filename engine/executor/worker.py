"""Runs steps on one device: rows in, tokens out, every fault of a single request kept with that request.

Owns decoder, KV cache, sampler and the held requests. Main thread only. It raises only when not even one token of a
scratch row can be run: then no step can, and the engine dies."""

from __future__ import annotations

import logging
import time

import numpy as np
import torch
from torch import Tensor

from engine.executor.held import Active, HeldRequests
from engine.executor.pages import Pages
from engine.messages import Logprobs
from engine.model.attention import KVCache
from engine.model.decoder import Decoder
from engine.model.inputs import Row
from engine.model.logprobs import add_prompt_rows, token_logprobs
from engine.model.native.decoder import NativeDecoder
from engine.model.sampler import Sampler, check_values
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

log = logging.getLogger(__name__)


class Worker:
    def __init__(self, decoder: Decoder | NativeDecoder, cache: KVCache, sampler: Sampler) -> None:
        self.decoder = decoder
        """May be exchanged between two steps: either kind reads what the other wrote."""
        self.cache = cache
        self._pages = Pages(cache.num_blocks, cache.shape.block_size)
        self.sampler = sampler
        self.held = HeldRequests(decoder.config.vocab_size, decoder.device)
        self._nothing = torch.empty(0, decoder.config.hidden_size, device=decoder.device)

    def execute(self, step: SchedulerOutput) -> ModelRunnerOutput:
        begin = time.perf_counter()
        output = ModelRunnerOutput([-1] * len(step.rows))
        active = self.held.apply(step)
        self.cache.upcoming = self._pages.next(step.first_unused_block, len(step.rows))
        for row in active:
            if row.held.broken is not None:
                output.errors[row.id] = row.held.broken
        rows, hidden = self._forward([row for row in active if row.held.broken is None], output.errors)
        self._collect_prompt(rows, hidden, output)
        middle = time.perf_counter()
        tokens = self._sample(rows, hidden, output)
        for place, row in enumerate(active):
            if row.id in tokens and row.id not in output.errors:
                output.sampled[place] = tokens[row.id]
                row.held.tokens.append(tokens[row.id])
        output.execute_ms = (middle - begin) * 1e3
        output.sample_ms = (time.perf_counter() - middle) * 1e3
        return output

    def run(self, rows: list[Row]) -> Tensor:
        """(K, hidden) of the tokens that packed rows keep."""
        return self.decoder.run(rows, self.cache)

    def self_check(self) -> None:
        """One token through the model on the block that no request owns. Raises whatever the model raises."""
        try:
            self.decoder.logits(self.run([Row([0], 0, 1, np.array([self.cache.shape.padding_block]))]))
        finally:
            self.cache.clear_padding()

    def _forward(self, rows: list[Active], errors: dict[str, str]) -> tuple[list[Active], Tensor]:
        """The rows that went through, and their hidden states. Writing a row's K and V twice changes nothing."""
        if not rows:
            return [], self._nothing
        try:
            return rows, self.run([row.row for row in rows])
        except Exception as error:
            log.warning(
                "a step of %d rows failed (%s: %s); running its rows alone", len(rows), type(error).__name__, error
            )
        _free_device_memory()
        passed, pieces = [], []
        for row in rows:
            try:
                pieces.append(self.run([row.row]))
                passed.append(row)
            except Exception as error:
                log.exception("request %s failed in the forward pass", row.id)
                errors[row.id] = f"forward pass failed: {type(error).__name__}: {error}"
        if not passed:
            self.self_check()
            return [], self._nothing
        return passed, torch.cat(pieces)

    def _collect_prompt(self, rows: list[Active], hidden: Tensor, output: ModelRunnerOutput) -> None:
        first = 0
        for row in rows:
            if row.held.prompt_logprobs is not None and row.id not in output.errors:
                try:
                    self._collect_row(row, hidden[first : first + row.row.num_kept], output)
                except Exception as error:
                    log.exception("request %s failed in its prompt log-probabilities", row.id)
                    output.errors[row.id] = f"prompt log-probabilities failed: {type(error).__name__}: {error}"
            first += row.row.num_kept

    def _collect_row(self, row: Active, hidden: Tensor, output: ModelRunnerOutput) -> None:
        held, collected = row.held, row.held.prompt_logprobs
        if collected is None:
            return
        start = row.row.start
        if collected.rows != start:
            raise RuntimeError(f"prompt tokens {collected.rows} to {start} were not computed in this run")
        following = held.tokens[start + 1 : min(start + row.row.count + 1, held.num_prompt)]
        best = held.params.prompt_logprobs or 0
        add_prompt_rows(collected, hidden[: len(following)], following, best, self.decoder.logits)
        if start + row.row.count >= held.num_prompt:
            held.prompt_logprobs = None
            if collected.rows:
                output.prompt_logprobs[row.id] = collected.message(as_tensors=True)

    def _sample(self, rows: list[Active], hidden: Tensor, output: ModelRunnerOutput) -> dict[str, int]:
        ends = np.cumsum([row.row.num_kept for row in rows], dtype=np.int64) - 1
        chosen = [i for i, row in enumerate(rows) if row.scheduled.samples and row.id not in output.errors]
        sampling = [rows[index] for index in chosen]
        if not sampling:
            return {}
        last = hidden if len(chosen) == len(hidden) else hidden[torch.from_numpy(ends[chosen]).to(hidden.device)]
        try:
            return self._sample_rows(sampling, last, output)
        except Exception as error:
            log.warning(
                "sampling %d rows failed (%s: %s); sampling them alone", len(sampling), type(error).__name__, error
            )
        tokens = {}
        for index, row in enumerate(sampling):
            try:
                tokens.update(self._sample_rows([row], last[index : index + 1], output))
            except Exception as error:
                log.exception("request %s failed in sampling", row.id)
                output.errors[row.id] = f"sampling failed: {type(error).__name__}: {error}"
        if not tokens:
            self.self_check()
        return tokens

    def _sample_rows(self, rows: list[Active], last: Tensor, output: ModelRunnerOutput) -> dict[str, int]:
        states = [row.held.state for row in rows if row.held.state is not None]
        wanted = [index for index, row in enumerate(rows) if row.held.params.logprobs is not None]
        if not wanted and all(state.is_plain_greedy for state in states):
            ids, failures = check_values(*self.decoder.greedy(last))
            return self._chosen(rows, ids, failures, output)
        logits = self.decoder.logits(last)
        # Indexing copies: the sampler changes logits in place, log-probabilities are of the raw ones.
        raw = logits[wanted] if wanted else None
        ids, failures = self.sampler.sample(logits, states, self.decoder.draw_tokens)
        if raw is not None:
            output.logprobs.update(_logprobs(raw, [rows[index] for index in wanted], [ids[index] for index in wanted]))
        return self._chosen(rows, ids, failures, output)

    def _chosen(
        self, rows: list[Active], ids: list[int], failures: dict[int, str], output: ModelRunnerOutput
    ) -> dict[str, int]:
        for index, text in failures.items():
            output.errors[rows[index].id] = text
        return {row.id: token for row, token in zip(rows, ids, strict=True) if token >= 0}


def _logprobs(raw: Tensor, rows: list[Active], ids: list[int]) -> dict[str, Logprobs]:
    good = [index for index, token in enumerate(ids) if token >= 0]
    if not good:
        return {}
    best = [rows[index].held.params.logprobs or 0 for index in good]
    messages = token_logprobs(raw[good], [ids[index] for index in good], best)
    return {rows[index].id: message for index, message in zip(good, messages, strict=True)}


def _free_device_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
