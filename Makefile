# One command per job. `make demo` is the place to start.
#
#   make build            the extension, installed editable into $(VENV)
#   make test             C++ core tests, then Python tests
#   make test-sanitizers  C++ core tests under TSan, ASan and UBSan
#   make test-sanitized   Python tests under our own race sanitizer
#   make bench            launch, training, import and ring benchmarks
#   make demo             train a GPT on cpu and npu; leaves out/demo.png
#   make lint             ruff, mypy, clang-format
#   make clean            removes build/ and out/
#
# VENV=dir uses another virtual environment; a missing one is made.
# PIP_TORCH_FLAGS="--index-url ..." chooses where torch comes from.

VENV ?= .venv
PYTHON ?= python3.11
PIP_TORCH_FLAGS ?=
JOBS ?= $(shell nproc)
PYTEST_FLAGS ?=

override VENV := $(abspath $(VENV))
PY := $(VENV)/bin/python
BIN := $(VENV)/bin
# Stamps live in the environment they describe, so VENV= can be switched.
TOOLS := $(VENV)/.npu-tools
INSTALLED := $(VENV)/.npu-installed

CMAKE_CORE = $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
  -DNPU_CORE_ONLY=ON
CTEST = $(BIN)/ctest --output-on-failure --no-tests=error

# Whatever the extension is made from. Python files need no build.
SOURCES := CMakeLists.txt pyproject.toml $(shell find csrc -type f \
  -not -name '*.pyc' 2>/dev/null)

.PHONY: build test test-cpp test-python test-sanitizers test-sanitized bench demo lint clean
.DELETE_ON_ERROR:

$(PY):
	$(PYTHON) -m venv $(VENV)

$(TOOLS): pyproject.toml | $(PY)
	$(PY) -m pip install -q $(PIP_TORCH_FLAGS) torch==2.13.0
	$(PY) -m pip install -q numpy 'scikit-build-core>=0.10' 'pybind11>=2.12' \
	  'cmake>=3.22' ninja pyyaml typing_extensions click lazy-loader rich matplotlib \
	  scikit-learn pytest pytest-asyncio pytest-timeout hypothesis expecttest ruff mypy \
	  prometheus-client starlette uvicorn uvloop plotly httpx selenium \
	  perfetto textual trio accelerate
	-$(PY) -m pip install -q clang-format==18.1.8
	touch $@

$(INSTALLED): $(TOOLS) $(SOURCES)
	PATH=$(BIN):$$PATH CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(PY) -m pip install --no-build-isolation --no-deps -q -e .
	touch $@

build: $(INSTALLED)

test: test-cpp test-python

test-cpp: $(TOOLS)
	$(CMAKE_CORE) -B build/core
	$(BIN)/cmake --build build/core -j $(JOBS)
	$(CTEST) --test-dir build/core

# Twice: tracers, checkers and compilers change the process they run in.
test-python: $(INSTALLED)
	$(PY) -m pytest tests/unit tests/stress $(PYTEST_FLAGS)
	$(PY) -m pytest tests --ignore=tests/unit --ignore=tests/stress $(PYTEST_FLAGS)

# Correct programs give no report, nor do the processes that tests start.
test-sanitized: export TORCH_NPU_SANITIZER = 1
test-sanitized: $(INSTALLED)
	$(PY) -m pytest --npu-sanitize tests/unit tests/stress $(PYTEST_FLAGS)
	$(PY) -m pytest --npu-sanitize tests --ignore=tests/unit --ignore=tests/stress \
	  $(PYTEST_FLAGS)

test-sanitizers: $(TOOLS)
	for s in thread address undefined; do \
	  $(CMAKE_CORE) -B build/core-$$s -DNPU_SANITIZER=$$s && \
	  $(BIN)/cmake --build build/core-$$s -j $(JOBS) && \
	  TSAN_OPTIONS=halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1 \
	    $(CTEST) --test-dir build/core-$$s || exit 1; \
	done

bench: $(INSTALLED)
	mkdir -p out
	$(PY) bench/import_time.py
	$(PY) bench/launch.py
	$(PY) bench/train.py
	$(PY) bench/graphs.py
	$(PY) bench/enqueue.py
	$(PY) bench/provenance.py
	$(PY) bench/aio.py
	$(PY) bench/tracing.py
	$(PY) bench/sanitizer.py
	$(CMAKE_CORE) -B build/core
	$(BIN)/cmake --build build/core -j $(JOBS)
	for b in $$(find build/core/bench -maxdepth 3 -type f -perm -u+x \
	  -name '*bench*'); do $$b; done

demo: $(INSTALLED)
	$(PY) examples/demo.py

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/mypy
	if [ -x $(BIN)/clang-format ]; then \
	  find csrc tests/cpp bench/cpp -name '*.h' -o -name '*.cpp' | \
	    xargs $(BIN)/clang-format --dry-run --Werror; \
	fi

clean:
	rm -rf build out
	rm -f $(INSTALLED)
