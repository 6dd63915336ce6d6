"""SpecUI: a local chat for GGUF models with speculative decoding that can be switched in mid-answer."""

__version__ = "0.1.0"
