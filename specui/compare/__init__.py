"""The race: two to four lanes answer the same prompt side by side, and what comes of it is a ratio to believe."""
