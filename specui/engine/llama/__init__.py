"""llama.cpp through llama-cpp-python's public C bindings; beside `chat.py` the only room that imports llama_cpp.

Knows tokens, logits and memory; nothing about drafts, sampling or text streams. One `Model` is the weights of one
file; one `Context` is a KV cache with the ids in it; a `NativeGrammar` is llama.cpp's state of a grammar.
"""

from specui.engine.llama.context import AbortFlag, Context, ContextSize, Logits
from specui.engine.llama.grammar import NativeGrammar
from specui.engine.llama.weights import Model, quantize_f32

__all__ = ["AbortFlag", "Context", "ContextSize", "Logits", "Model", "NativeGrammar", "quantize_f32"]
