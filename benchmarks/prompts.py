"""Prompts of the benchmarks, written for this project."""

EDIT_A_FILE = '''Rename the variable `total` to `balance` everywhere in this file and change nothing else. \
Answer with the whole file only.

```python
"""A small ledger."""

import csv
from pathlib import Path


class Ledger:
    """Keeps entries and their total."""

    def __init__(self, owner, currency="EUR"):
        self.owner = owner
        self.currency = currency
        self.entries = []
        self.total = 0

    def add(self, amount, note=""):
        """Add an entry and return the new total."""
        if amount == 0:
            raise ValueError("an entry needs an amount")
        self.entries.append((amount, note))
        self.total = self.total + amount
        return self.total

    def remove(self, index):
        """Remove an entry and return the new total."""
        amount, note = self.entries.pop(index)
        self.total = self.total - amount
        return self.total

    def save(self, path):
        """Write the entries to a CSV file."""
        with Path(path).open("w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["amount", "note"])
            for amount, note in self.entries:
                writer.writerow([amount, note])

    def report(self):
        """Return a line for people."""
        return f"{self.owner}: {self.total:.2f} {self.currency} in {len(self.entries)} entries"
```
'''

WRITE_CODE = """Write a Python class `LRUCache` with the methods get(key), put(key, value), __len__ and clear, \
using collections.OrderedDict. Add type annotations and a docstring to each method, then show how it is used."""

STORY = "Write a short story about a lighthouse keeper and her cat."

BY_NAME = {"edit-a-file": EDIT_A_FILE, "write-code": WRITE_CODE, "story": STORY}
