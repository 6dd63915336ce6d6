"""The commands of the command line, one module each: `add` enters it, and what it sets as `run` does the work."""
