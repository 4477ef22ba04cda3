# One command per job. `make demo` is the place to start.
#
#   make build            the extension, installed editable into $(VENV)
#   make core             what test-cpp and test-sanitizers run
#   make test             C++ core tests, then Python tests
#   make test-sanitizers  C++ core tests under TSan, and under ASan and UBSan
#   make test-sanitized   Python tests under our own race sanitizer
#   make test-delayed     Python tests on a driver whose tasks end late
#   make test-guarded     Python tests where only kernels reach device memory
#   make test-undefined   Python tests, the extension built with UBSan
#   make test-address     the same, the extension built with ASan
#   make test-thread      those in which threads meet, the extension built with TSan
#   make test-slow-host   Python tests on a host that is late at each line
#   make conformance      PyTorch's operator database, on npu and on cpu
#   make fuzz             random programs on npu and on cpu; MINUTES=n
#   make fuzz-docs        its table in docs/tested_with.md, from out/fuzz.json
#   make compatibility    other libraries on npu and on cpu: docs/tested_with.md
#   make judges           others' test suites, on npu and on cpu: docs/tested_with.md
#   make torture          everything that can give out, does; MINUTES=n
#   make torture-docs     adds that run to the campaign's in docs/tested_with.md
#   make mutants          do the tests see bugs that are put into the core?
#   make check            what every change must pass
#   make nightly          everything, in full: out/nightly.json
#   make nightly-docs     the table of docs/tested_with.md, from out/nightly.json
#   make bench            every benchmark: out/bench.json and out/bench.md
#   make bench-libraries  other libraries that benchmarks run
#   make bench-readme     the README's figures, from out/bench.json
#   make demo             train a GPT on cpu and npu; leaves out/demo.png
#   make coverage         which lines do the tests not reach? out/coverage
#   make pythons          a build and an import with each of PYTHONS="python3.12 ..."
#   make try-dev          a contributor's first hour, and all hooks
#   make versions         Python tests with each torch of VERSIONS="2.13.0 2.14.1"
#   make versions-docs    the table of docs/tested_with.md, from out/versions/
#   make wheel            dist/: the source distribution, and a wheel built from it
#   make dev              a contributor's first hour: tools, hooks, a build, a try
#   make docs             the site from docs/, in out/site; links are checked
#   make lint             ruff, mypy, clang-format, oxlint
#   make lock             tools/requirements.lock, with the newest versions
#   make clean            removes build/ and out/
#
# VENV=dir uses another virtual environment; a missing one is made, with torch
# TORCH=version.
# PIP_TORCH_FLAGS="--index-url ..." chooses where torch comes from.

VENV ?= .venv
PYTHON ?= python3.11
PIP_TORCH_FLAGS ?=
TORCH ?=
JOBS ?= $(shell nproc)
# One name of the compiler for all builds, as ccache tells c++ from g++.
export CXX
# A process that a test starts would compile a thousand files of Python again.
unexport PYTHONDONTWRITEBYTECODE
# The end of CI's log is what failed, not what warns.
PYTEST_FLAGS ?= $(if $(CI),--disable-warnings)

override VENV := $(abspath $(VENV))
PY := $(VENV)/bin/python
BIN := $(VENV)/bin
# Stamps live in the environment they describe, so VENV= can be switched.
BUILDERS := $(VENV)/.npu-builders
TOOLS := $(VENV)/.npu-tools
INSTALLED := $(VENV)/.npu-installed
# One for each environment, as torch's headers differ.
BUILD_PY := build/py$(patsubst .venv%,%,$(notdir $(VENV)))

# $(call build_core,TREE,SANITIZER): the core with its tests, in build/TREE.
build_core = $(BIN)/cmake -S . -B build/$(1) -G Ninja \
  -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja -DNPU_CORE_ONLY=ON -DNPU_SANITIZER=$(2) && \
  $(BIN)/cmake --build build/$(1) -j $(JOBS)
# A comma in an argument of $(call) has to come from a variable.
MEMORY_SANITIZERS := address,undefined
CTEST = $(BIN)/ctest --output-on-failure --no-tests=error -j $(JOBS)

# These sanitizers have a heap of their own, which has to be there before libc's.
OWN_HEAP := $(filter address thread,$(NPU_SANITIZER))

# NIGHTLY=1: tests that take minutes, larger samples, everything twice, and inputs
# of a new seed. Else all inputs are the same in every run, sets' order included.
NIGHTLY ?=
ifneq ($(NIGHTLY),)
  export NPU_TEST_NIGHTLY := 1
  export NPU_TEST_SEED ?= $(shell shuf -i 1-4294967295 -n 1)
else
  export PYTHONHASHSEED := 0
endif
QUICK := $(if $(NIGHTLY),,-m "not nightly$(if $(OWN_HEAP), and not libc_heap)")
SANITIZED := test-undefined test-address test-thread test-coverage
# The other folders ask what an operator computes, which has one thread.
TESTS := $(if $(filter thread,$(NPU_SANITIZER)),$(addprefix tests/,aio distributed \
  drivers graphs multiprocess races sanitizer stress unit),tests)
# By what a minute tells: the quick ones first.
STEPS := test test-sanitizers conformance \
  $(if $(NIGHTLY),torture compatibility judges test-delayed \
  test-guarded test-sanitized test-slow-host try-dev pythons coverage \
  $(filter-out test-coverage,$(SANITIZED)) mutants versions)

# Whatever the extension is made from. Python files need no build.
SOURCES := CMakeLists.txt pyproject.toml $(shell find csrc -type f \
  -not -name '*.pyc' 2>/dev/null)

.PHONY: tools lock build core test test-cpp test-python test-sanitizers test-sanitized \
  test-delayed test-guarded test-slow-host $(SANITIZED) conformance fuzz torture mutants compatibility \
  judges judges-docs steps check nightly nightly-docs fuzz-docs torture-docs \
  versions versions-docs coverage pythons try-dev bench bench-cpp bench-libraries bench-readme demo lint clean wheel dev docs
.DELETE_ON_ERROR:

$(PY):
	$(PYTHON) -m venv $(VENV)

# All that the core needs, which is compiled while torch is installed.
$(BUILDERS): tools/requirements.lock | $(PY)
	$(PY) -m pip install -q $$(grep -E '^(cmake|ninja)==' tools/requirements.lock)
	touch $@

# torch first: its index need not have the rest. Python compiles what it imports, which
# is a small part.
$(TOOLS): $(BUILDERS) tools/requirements.lock npu_dispatch/versions.py tools/requirements.py | $(PY)
	$(PY) -m pip install -q --no-compile $(PIP_TORCH_FLAGS) \
	  $(if $(TORCH),torch==$(TORCH),$$($(PY) tools/requirements.py torch))
	$(PY) -m pip install -q --no-compile -r tools/requirements.lock
	touch $@

# The newest versions of the tools, for every machine and Python that we support. A
# newer tool may find more: the whole gate is run before the file is committed.
lock: | $(PY)
	$(PY) -m venv build/lock && build/lock/bin/pip install -q uv
	echo torch > build/lock/excluded
	{ sed '/^[^#]/,$$d' tools/requirements.lock; \
	  $(PY) tools/requirements.py dev | build/lock/bin/uv pip compile - -q \
	    --universal --python-version 3.11.7 --no-header --no-annotate \
	    --excludes build/lock/excluded; } > build/lock/new
	mv build/lock/new tools/requirements.lock

# The stamp is as old as the beginning: what is edited meanwhile is built next time.
$(INSTALLED): $(TOOLS) $(SOURCES)
	touch $@.begun
	PATH=$(BIN):$$PATH CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(PY) -m pip install --no-build-isolation --no-deps -q -e . \
	  -C build-dir=$(BUILD_PY) \
	  $(if $(NPU_SANITIZER),-C cmake.define.NPU_SANITIZER=$(NPU_SANITIZER))
	mv $@.begun $@

# As its runtime has to be in the interpreter.
ifneq ($(OWN_HEAP),)
$(INSTALLED): $(VENV)/.npu-interpreter
$(VENV)/.npu-interpreter: tests/support/sanitized_python.cpp $(TOOLS)
	g++ -std=c++20 -Wall -Wextra -Werror -fsanitize=$(NPU_SANITIZER) -o $(PY).new $< \
	  $$($(PYTHON)-config --embed --includes --ldflags)
	mv $(PY).new $(PY)
	touch $@
endif

tools: $(TOOLS)

build: $(INSTALLED)

test: export NPU_TEST_DURATIONS := $(CURDIR)/out/durations.json
test: test-cpp test-python

# What test-cpp and test-sanitizers run.
core: $(BUILDERS)
	$(call build_core,core)
	$(call build_core,core-thread,thread)
	$(call build_core,core-address,$(MEMORY_SANITIZERS))

test-cpp: $(BUILDERS)
	$(call build_core,core)
	$(CTEST) --test-dir build/core

# Two at a time: a test that needs the machine for itself fails on a busy one, too.
# A worker that dies ends the run: xdist may wait for its tests for ever.
test-python: $(INSTALLED) $(if $(NIGHTLY),bench-libraries)
	$(PY) $(if $(filter coverage,$(NPU_SANITIZER)),-m coverage run) -m pytest \
	  -n 2 --dist loadfile --no-loadscope-reorder \
	  --max-worker-restart 0 $(QUICK) $(TESTS) \
	  $(PYTEST_FLAGS)

# At night, what takes minutes runs once: in `make test`.
test-sanitized test-delayed test-guarded test-slow-host $(SANITIZED) \
  versions: \
  export NPU_TEST_NIGHTLY :=
test-sanitized test-delayed test-guarded test-slow-host: QUICK := -m "not nightly"

# Correct programs give no report, nor do the processes that tests start.
test-sanitized: export TORCH_NPU_SANITIZER = 1
test-sanitized: PYTEST_FLAGS += --npu-sanitize
test-sanitized: test-python

# Several in flight, ends out of band, now and then no room: the same results.
test-delayed: export NPU_DRIVER = $(CURDIR)/build/core/tests/cpp/libnpu_delayed.so
test-delayed: bench-cpp test-python

# Nobody touches device memory beside the queue.
test-guarded: export NPU_DRIVER = $(CURDIR)/build/core/tests/cpp/libnpu_guarded.so
test-guarded: bench-cpp test-python

# The device is done before each line: nothing may count on work under way.
test-slow-host: export PYTHONPATH := $(CURDIR)/tests/support:$(PYTHONPATH)
test-slow-host: PYTEST_FLAGS += -p slow_lines
test-slow-host: test-python

# The extension in an environment of its own, with a compiler's sanitizer: what it
# finds ends the process, whose test fails.
$(SANITIZED): test-%:
	$(MAKE) test-python NIGHTLY= NPU_SANITIZER=$* VENV=.venv-$*

# Processes that are killed or leave by os._exit() do not tell which lines of C++ they
# have run.
coverage: COVERAGE := $(CURDIR)/.venv-coverage/bin
coverage: test-coverage
	$(call build_core,core-coverage,coverage)
	$(CTEST) --test-dir build/core-coverage
	mkdir -p out/coverage
	$(COVERAGE)/coverage combine -q
	$(COVERAGE)/coverage report --skip-covered --sort=miss > out/coverage/python.txt
	$(COVERAGE)/gcovr -r . -f csrc/ -j $(JOBS) --gcov-ignore-errors=all \
	  build/core-coverage build/py-coverage --txt out/coverage/cpp.txt
	grep TOTAL out/coverage/python.txt out/coverage/cpp.txt

# A child that ends need not wait a second for races at its end.
test-sanitizers: export TSAN_OPTIONS := halt_on_error=1:atexit_sleep_ms=20
test-sanitizers: export UBSAN_OPTIONS := halt_on_error=1
test-sanitizers: $(BUILDERS)
	$(call build_core,core-thread,thread)
	$(CTEST) --test-dir build/core-thread
	$(call build_core,core-address,$(MEMORY_SANITIZERS))
	$(CTEST) --test-dir build/core-address

# The same third of the operators on the same samples, and what changed; NIGHTLY=1:
# all, on new samples, and again with nearly all calls taken for large ones.
conformance: $(INSTALLED)
	$(if $(NIGHTLY),$(PY) -m tests.conformance.run --all --trial-limit 8)
	$(PY) -m tests.conformance.run $(if $(NIGHTLY),--all) $(CONFORMANCE_FLAGS)

MINUTES ?= 10
fuzz: $(INSTALLED)
	$(PY) -m tests.differential.fuzz --minutes $(MINUTES) $(FUZZ_FLAGS)

# The table of a run with FUZZ_FLAGS="--planted --report".
fuzz-docs:
	$(PYTHON) tools/pages.py fuzz

TORTURE_MINUTES ?= $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),6)
torture: $(INSTALLED) bench-cpp
	$(PY) -m tests.torture.run --minutes $(TORTURE_MINUTES) $(TORTURE_FLAGS)

# Adds the run of out/torture.json to those that docs/tested_with.md sums.
torture-docs:
	$(PYTHON) tools/pages.py torture

# At night, of few files: what is drawn from is compiled first.
MUTANTS_FLAGS ?= $(if $(NIGHTLY),--files 12 --minutes 30)
mutants: $(INSTALLED)
	$(PY) -m tests.mutants.run $(MUTANTS_FLAGS)

# Installs what it tries into out/compat; writes docs/tested_with.md.
compatibility: $(INSTALLED)
	$(PY) -m tests.compatibility.run $(COMPATIBILITY_FLAGS)

# Installs what it runs into out/judges. At night a third, another one each night.
judges: $(INSTALLED)
	$(PY) -m tests.judges.run $(JUDGES_FLAGS) \
	  $(if $(NIGHTLY),--part $$(($$(date +%s) / 86400 % 3)))

# The page of a run with JUDGES_FLAGS=--keep.
judges-docs:
	$(PYTHON) tools/pages.py

steps:
	@echo $(STEPS)

# Each a make of its own: some are others with another environment.
check:
	$(PYTHON) tools/steps.py

# Every step, although one before it failed; out/nightly.json.
nightly:
	$(PYTHON) tools/steps.py --night

# The tables of a night, which is kept beside the page that has them.
nightly-docs:
	cp out/durations.json tests/durations.json
	$(PYTHON) tools/pages.py nightly

# Each in an environment of its own. PYTHON=python3.12 tries that one. What `make
# test` has tried at night is left out then.
VERSIONS ?= $(shell $(PYTHON) tools/requirements.py $(if $(NIGHTLY),others,known))
# With another torch, what compares with pages of the first one is skipped, which CI
# does not allow.
versions: bench-cpp
	for v in $(VERSIONS); do \
	  CI= $(MAKE) test-python NIGHTLY= TORCH=$$v VENV=.venv-$$v-$(notdir $(PYTHON)) \
	    PYTEST_FLAGS="$(PYTEST_FLAGS) --junitxml=out/versions/torch-$$v-$(notdir $(PYTHON)).xml" \
	    || exit 1; \
	done

# The other versions of Python that we support, as far as they are here.
PYTHONS ?= python3.12 python3.13
pythons:
	for python in $(PYTHONS); do \
	  command -v $$python || { echo "$$python: not installed"; continue; }; \
	  $(MAKE) build PYTHON=$$python VENV=.venv-$$python && \
	    .venv-$$python/bin/python -c \
	      "import torch; assert torch.ones(2, device='npu').sum().item() == 2" || exit 1; \
	done

# The table of what was tried, from out/versions/.
versions-docs:
	$(PYTHON) tools/pages.py versions

# Goes on where it was interrupted; BENCH_FLAGS=--fresh begins anew.
bench: $(INSTALLED) bench-cpp
	$(PY) bench/run_all.py $(BENCH_FLAGS)

# What bench/rl.py and bench/trainer.py run, into out/compat.
bench-libraries: $(INSTALLED)
	$(PY) tools/libraries.py bench

bench-cpp: $(BUILDERS)
	$(call build_core,core)

bench-readme:
	$(PY) bench/tables.py

demo: $(INSTALLED)
	$(PY) examples/demo.py

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/oxlint --deny-warnings --ignore-pattern '*.min.js' npu_dispatch
	find csrc tests/cpp tests/support tests/torture bench/cpp -name '*.h' -o -name '*.cpp' | \
	  xargs $(BIN)/clang-format --dry-run --Werror

# The wheel is built from the source distribution, so that a file it lacks is
# missed here. torch's libraries stay torch's: another copy would be another torch.
# libgomp is torch's too, as two would not share their threads.
wheel: $(TOOLS)
	rm -rf dist build/dist
	PATH=$(BIN):$$PATH CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(PY) -m build --no-isolation -o build/dist .
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair -w dist \
	  --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*' \
	  build/dist/*.whl
	cp build/dist/*.tar.gz dist/

# compile_commands.json is where clangd looks; it names the files of the core.
dev: $(INSTALLED)
	$(call build_core,core)
	ln -sf build/core/compile_commands.json compile_commands.json
	$(BIN)/pre-commit install
	$(BIN)/npu-dispatch doctor

try-dev: dev
	$(BIN)/pre-commit run --all-files

# The pages of reference are made of what is installed.
docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict -d out/site

clean:
	rm -rf build out dist
	rm -f $(INSTALLED)
