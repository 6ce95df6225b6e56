"""What one request's sampling needs besides its parameters: its tokens so far, and its changes to the logits.

Owned by the request's place in the batch; dies with it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.messages import SamplingParams


class SamplerState:
    """`tokens` is the request's own growing list, prompt and output; not copied."""

    def __init__(
        self, params: SamplingParams, tokens: list[int], num_prompt: int, vocab: int, device: torch.device
    ) -> None:
        self.params = params
        self.tokens = tokens
        self.num_prompt = num_prompt
        self._device = device
        self._masked: Tensor | None = self._not_allowed(vocab)
        self._ends = sorted(
            {
                *(params.stop_token_ids or ()),
                *params.all_stop_token_ids,
                *(() if params.eos_token_id is None else (params.eos_token_id,)),
            }
        )
        self._bias_ids, self._bias = self._bias_tensors()
        self._penalised = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) != (0, 0, 1)
        self._counts = torch.zeros(vocab if self._penalised else 0, device=device)
        self._prompt = torch.zeros(vocab if self._penalised else 0, dtype=torch.bool, device=device)
        self._counted = num_prompt
        if self._penalised and num_prompt:
            self._prompt[self._ids(tokens[:num_prompt])] = True
        self.adjusts = bool(
            self._penalised
            or params.bad_words_token_ids
            or params.logit_bias
            or params.min_tokens > 0
            or params.allowed_token_ids is not None
        )
        self.is_plain_greedy = params.temperature < 1e-5 and not self.adjusts

    @property
    def position(self) -> int:
        """Of the token to be drawn: how many there are before it."""
        return len(self.tokens)

    def adjust(self, logits: Tensor) -> None:
        """logits (V,), in place."""
        if self._masked is not None:
            logits.masked_fill_(self._masked, -math.inf)
        forbidden = self._bad_word_ends()
        if len(self.tokens) - self.num_prompt < self.params.min_tokens:
            forbidden += self._ends
        if forbidden:
            logits[self._ids(forbidden)] = -math.inf
        if self._bias_ids is not None and self._bias is not None:
            logits[self._bias_ids] += self._bias
        if self._penalised:
            self._penalise(logits)

    def _penalise(self, logits: Tensor) -> None:
        new = self.tokens[self._counted :]
        if new:
            self._counts.index_add_(0, self._ids(new), torch.ones(len(new), device=self._device))
            self._counted += len(new)
        seen = self._counts > 0
        factor = self.params.repetition_penalty
        if factor != 1:
            changed = torch.where(logits > 0, logits / factor, logits * factor)
            logits.copy_(torch.where(self._prompt | seen, changed, logits))
        logits.sub_(self._counts * self.params.frequency_penalty)
        logits.sub_(seen * self.params.presence_penalty)

    def _bad_word_ends(self) -> list[int]:
        """Last ids of the bad words whose beginning the output ends with."""
        output = self.tokens[self.num_prompt :] if self.params.bad_words_token_ids else []
        ends = []
        for word in self.params.bad_words_token_ids or ():
            begin = word[:-1]
            if word and (not begin or output[-len(begin) :] == begin):
                ends.append(word[-1])
        return ends

    def _not_allowed(self, vocab: int) -> Tensor | None:
        if self.params.allowed_token_ids is None:
            return None
        mask = torch.ones(vocab, dtype=torch.bool, device=self._device)
        mask[self._ids(self.params.allowed_token_ids)] = False
        return mask

    def _bias_tensors(self) -> tuple[Tensor | None, Tensor | None]:
        bias = self.params.logit_bias
        if not bias:
            return None, None
        return self._ids(list(bias)), torch.tensor(list(bias.values()), device=self._device)

    def _ids(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)
