"""The page: one file a tab, shared widgets beside them. The only package that imports gradio."""
