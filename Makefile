# Everything is made inside the checkout: .venv/ and .cache/, nothing else, and nothing needs root.
#
#   make             .venv with eryx, eryxd and the three plugins; ripgrep in .cache/
#   make demo        two agents on a small git repository, with real approvals
#   make test        all tests that an ordinary user can run
#   make test-system tests that need root, strace and tmux
#   make check       format, lint, types and fast tests (documentation checks are among them): under 30 s
#   make bench       measures; make soak: tests that run for minutes
#   make format      rewrites files; make clean: removes .cache and what was built, keeps .venv
#
# PYTHON=/path/to/python3 chooses the interpreter for a new .venv.

SHELL := /bin/sh
.DELETE_ON_ERROR:
.SUFFIXES:

BIN := .venv/bin
CACHE := $(CURDIR)/.cache
INSTALLED := .venv/.installed
PROJECTS := pyproject.toml plugins/mcp/pyproject.toml plugins/lsp/pyproject.toml plugins/copilot/pyproject.toml
FAST_TESTS := tests/unit tests/contract plugins

export PYTHON
export PATH := $(CACHE)/bin:$(PATH)
export PIP_CACHE_DIR := $(CACHE)/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NPM_CONFIG_CACHE := $(CACHE)/npm-cache
export NPM_CONFIG_UPDATE_NOTIFIER := false
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis

.PHONY: all install demo test test-system check format-check lint types fast-tests bench soak format clean

all: install
	@echo "eryx and eryxd are in $(BIN).  Next: make demo, make test; the top of the Makefile has the rest."

install: $(INSTALLED) .cache/ripgrep

demo: install
	@$(BIN)/eryx demo || [ $$? -eq 130 ] # Left with Ctrl-C: no error.

test: install
	$(BIN)/pytest -n 2

test-system: install
	$(BIN)/pytest -m system

check: install
	@$(MAKE) --no-print-directory --output-sync --keep-going --jobs=2 types format-check lint fast-tests

format-check: install
	$(BIN)/ruff format --check

lint: install
	$(BIN)/ruff check

types: install
	$(BIN)/mypy

fast-tests: install
	$(BIN)/pytest -q -n 2 $(FAST_TESTS)

bench: install
	$(BIN)/python -m bench

soak: install
	$(BIN)/pytest -m soak --timeout=3600

format: install
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .cache .hypothesis build dist plugins/*/build plugins/*/dist
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): $(BIN)/python $(PROJECTS) eryxd/__init__.py
	@echo "Installing eryx and its plugins into .venv (a minute or so) ..."
	@$(BIN)/python -m pip install --quiet -e '.[dev]' -e plugins/mcp -e plugins/lsp -e plugins/copilot
	@touch $@

# A dangling link (its Python was removed) counts as absent here, hence --clear.
$(BIN)/python:
	@sh -c "$$MAKE_VENV"

.cache/ripgrep: package.json
	@sh -c "$$INSTALL_RIPGREP"

# Import of ensurepip is what fails where a distribution ships venv in a package of its own.
define MAKE_VENV
newest= present=
usable='import sys; print("python%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))'
for python in "$$PYTHON" python3.14 python3.13 python3.12 python3.11 python3 python /usr/bin/python3; do
    [ -n "$$python" ] || continue
    name=$$("$$python" -c "$$usable" 2>/dev/null) && new_enough=yes || new_enough=
    present="$$present$$name"
    [ -n "$$new_enough" ] || continue
    newest=$${newest:-$$name}
    "$$python" -c 'import ensurepip, venv' 2>/dev/null || continue
    "$$python" -m venv --clear .venv && exit 0
done
package=$${newest:+$$newest-venv}
if [ -z "$$package" ]; then
    [ -n "$$present" ] && package="python3.11 python3.11-venv" || package=python3-venv
fi
[ "$$(id -u)" = 0 ] && sudo= || sudo="sudo "
echo "eryx needs a Python 3.11 or later that can make a virtual environment, and found none." >&2
if command -v apt-get >/dev/null; then
    echo "Type this, then make again:  $${sudo}apt-get install -y $$package" >&2
elif command -v dnf >/dev/null; then
    echo "Type this, then make again:  $${sudo}dnf install -y python3.12" >&2
elif command -v pacman >/dev/null; then
    echo "Type this, then make again:  $${sudo}pacman -S --needed python" >&2
else
    echo "Install one, then type:  make PYTHON=/path/to/python3" >&2
fi
exit 1
endef
export MAKE_VENV

# The npm package carries the binary for each platform in an optional package: nothing is downloaded beside it.
# A person can do without rg; a CI that went on without it would pass for the wrong reason.
define INSTALL_RIPGREP
set -e
mkdir -p .cache/npm .cache/bin
cp package.json .cache/npm/
if ! npm install --prefix .cache/npm --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error \
        --fetch-retries=1; then
    [ -z "$$CI" ] || exit 1
    command -v rg >/dev/null || echo "npm could not install ripgrep: going on without the tool rg." >&2
    exit 0
fi
set -- .cache/npm/node_modules/@vscode/ripgrep-*/bin/rg
ln -sf "$(CURDIR)/$$1" .cache/bin/rg
.cache/bin/rg --version >.cache/ripgrep
endef
export INSTALL_RIPGREP
