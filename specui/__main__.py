"""`python -m specui`."""

INTERRUPTED = 130

if __name__ == "__main__":
    try:
        from specui.cli import main

        code = main()
    except KeyboardInterrupt:  # while modules are still being read
        code = INTERRUPTED
    raise SystemExit(code)
