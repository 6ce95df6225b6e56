"""A whole step of the Llama family in one call of compiled code: built at first use, checked, then used.

Where it cannot be built or does not agree with torch, the eager path stays; see docs/kernels.md."""
