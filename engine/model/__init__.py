"""One decoder for the Llama family, read from a Hugging Face directory. Only modules that compute import torch."""
