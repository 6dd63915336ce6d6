"""`python -m specui`."""

from specui.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
