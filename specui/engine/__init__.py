"""The decoding engine: llama.cpp, drafters, verification and the speculative loop."""
