# Every target makes its own virtual environment; nothing is needed but Python 3.11 or newer with its venv module.
# PYTHON=... chooses the interpreter, ARGS=... goes to pytest.
# PARALLEL= runs the tests in one process.
VENV := .venv
BIN := $(VENV)/bin
PARALLEL := -n auto --maxprocesses 4 --dist loadfile
PYTHON ?= $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11 python3.15,$(shell $(python) -c \
	'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))

# Those of the classifiers, and the version, each from its only place.
PYTHONS := $(shell sed -n 's/.*:: Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml)
VERSION := $(shell sed -n 's/^VERSION: .*"\(.*\)"/\1/p' server/config/version.py)

.DELETE_ON_ERROR:
.PHONY: release-check install-lines print-pythons print-version print-notes demo damage-demo edge-demo spark-demo test test-portable test-with-portable test-with-kqueue print-portable test-long test-spark-kill simulate simulate-planted histories soak fuzz lint types types-here types-darwin docs checks console-pictures bench bench-kafka bench-spark format man dist sbom zipapp clean

# pip, not python, stands for the environment: where the system's venv lacks ensurepip, python is there without pip.
$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "triolog needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

# One stamp for each group of pyproject.toml, so that a demo does not wait for linters; dev and fuzz contain test, test contains
# release, spark-demo, edge-demo and demo.
# uv installs `test` in about 30 s, pip in 52 (2026-11-28, 2 cores); pip, which knows groups since 25.1, does it where uv cannot,
# behind a pip.conf for example.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/pip
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv || true
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable . --group $* || { \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1' && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group $*; }
	@touch $@ $(if $(filter dev fuzz,$*),$(VENV)/.installed-test) $(if $(filter dev fuzz test,$*),$(VENV)/.installed-spark-demo $(VENV)/.installed-edge-demo $(VENV)/.installed-release) \
		$(if $(filter dev fuzz test spark-demo edge-demo,$*),$(VENV)/.installed-demo)

# ARGS=... goes to the demo: --console, --keep, --rows N.
demo: $(VENV)/.installed-demo
	$(BIN)/triolog demo $(ARGS)

# ARGS=... goes to the demo: --seed N, --data-dir DIR, --json. With librdkafka, which comes with the edge demo.
damage-demo: $(VENV)/.installed-edge-demo
	$(BIN)/triolog damage-demo $(ARGS)

# ARGS=... goes to the demo: --to HOST:PORT, --seed N, --json. Its devices need Mosquitto, and are left out without it.
edge-demo: $(VENV)/.installed-edge-demo
	$(BIN)/triolog edge-demo $(ARGS)

# ARGS=... goes to the demo: --rows N, --json.
spark-demo: $(VENV)/.installed-spark-demo
	$(BIN)/triolog spark demo $(ARGS)

# The commit tier; TRIOLOG_TEST=merge is what .ci/run calls.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# Suites as macOS would run them: what only Linux has is hidden, and sockets are watched by trio alone, then by an imitation of
# kqueue. docs/platforms.md lists the tests that this skips. PORTABLE=ci leaves out what takes long.
# The same names are hidden with both watchers, so PORTABLE=ci runs suites that watch no socket with one of them.
PORTABLE_ci_kqueue := tests/server/embedded/test_conformance.py tests/server/loop tests/server/listeners/connections \
	tests/server/listeners/native
PORTABLE_ci := $(PORTABLE_ci_kqueue) tests/server/system tests/server/storage/directory tests/server/storage/disk
PORTABLE_all := tests/server/embedded tests/server/fake tests/server/loop tests/server/system tests/server/storage \
	tests/server/listeners tests/clients
PORTABLE ?= all
print-portable:
	@echo $(PORTABLE_$(PORTABLE))
test-portable: $(addprefix test-with-,$(or $(WATCHER),portable kqueue))
test-with-portable test-with-kqueue: test-with-%: $(VENV)/.installed-test
	TRIOLOG_TEST_WATCHER=$* $(BIN)/python -m pytest $(PARALLEL) -p tests.support.hidden_names \
		$(or $(PORTABLE_$(PORTABLE)_$*),$(PORTABLE_$(PORTABLE))) $(ARGS)

# Everything, for hours: full counts over other draws on every run (SEED=... repeats one), all planted faults, and HOURS of soak.
# build/long/SEED has a case for each failure. HOURS=0 leaves the soak out.
test-long: $(VENV)/.installed-test
	@seed=$${SEED:-$$($(BIN)/python -c 'from tests.support import counts; print(counts.drawn_seed())')}; \
	echo "make test-long SEED=$$seed repeats this run"; status=0; \
	TRIOLOG_TEST=long TRIOLOG_TEST_SEED=$$seed $(BIN)/python -m pytest $(PARALLEL) -o session_timeout=14400 $(ARGS) || status=1; \
	TRIOLOG_TEST=merge $(BIN)/python -m tests.planted_faults || status=1; \
	test "$(HOURS)" = 0 || $(BIN)/python -m tests.soak soak --hours $(or $(HOURS),2) --seed $$seed || status=1; \
	echo "seed $$seed"; exit $$status

# A streaming job whose driver is killed 30 times and whose server is killed 100 times; takes about a quarter of an hour.
test-spark-kill: $(VENV)/.installed-test
	TRIOLOG_TEST=long TRIOLOG_TEST_SPARK_KILLS=10 $(BIN)/python -m pytest -o faulthandler_timeout=3000 tests/tools/spark/jvm/test_kills.py $(ARGS)

# Worlds of seeds 0 to SEEDS - 1, or the one of SEED. ARGS=... goes to the simulation: --short, --enumerate, --first N, --jobs N.
simulate: $(VENV)/.installed-test
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),100) $(if $(SEED),--seed $(SEED)) $(ARGS)

# The worlds that are kept find their planted faults. With SEEDS=2000, new short lives and long worlds search: NAMES="last-five ...".
simulate-planted: $(VENV)/.installed-test
	$(BIN)/python -m tests.simulation.planted $(if $(SEEDS),--seeds $(SEEDS)) $(NAMES)

# Real clients of seven families against a server that is killed every 10 to 40 s, for MINUTES, then a check of all that they did
# and were told. ARGS=... : --families ..., --rate N, --folder FOLDER.
histories: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak histories --minutes $(or $(MINUTES),30) --seed $(or $(SEED),0) $(ARGS)

# The same at a slow pace for HOURS, with few kills, and whether the server grows: build/soak/soak-SEED has a picture and figures.
soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak soak --hours $(or $(HOURS),2) --seed $(or $(SEED),0) $(ARGS)

# TARGET=... names one target, all by default; RUNS=... are executions of each. ARGS=... goes to it: --totals, --minimise.
fuzz: $(VENV)/.installed-fuzz
	$(BIN)/python -m tests.fuzzing $(TARGET) --runs $(or $(RUNS),100000) $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python -m tests.support.plain_english > /dev/null

# Also with the names of macOS: an error there is a call that only Linux has. Each run has a cache of its own, or it would discard
# the other's.
types: types-here types-darwin
types-here: $(VENV)/.installed-dev
	$(BIN)/mypy
types-darwin: $(VENV)/.installed-dev
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin

# Everything that runs no test, after one installation at a time: two checks at a time, because each keeps one core busy.
checks:
	$(MAKE) $(VENV)/.installed-dev
	$(MAKE) $(VENV)/.installed-docs
	$(MAKE) --jobs=2 types-here lint types-darwin docs

# The site, in build/site. ARGS=... goes to mkdocs; a warning is an error: a link without its end, a page that no menu has.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict $(ARGS)

# The pictures of docs/console.md, made anew by the tests that look at each view; they take two minutes, so that charts are full.
console-pictures: $(VENV)/.installed-test
	TRIOLOG_TEST=long TRIOLOG_WRITE_PICTURES=1 $(BIN)/python -m pytest tests/browser/test_pictures.py $(ARGS)

bench: $(VENV)/.installed-edge-demo
	$(BIN)/triolog bench

# ARGS=... goes to the benchmark: --only ROW, --quick, --starts 10000. Needs Go; Kafka's jars come with Maven and a JDK.
bench-kafka: $(VENV)/.installed-test
	$(BIN)/triolog bench-kafka --save $(ARGS)

bench-spark: $(VENV)/.installed-spark-demo
	$(BIN)/triolog spark bench --save $(ARGS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A manual page for every command, in build/man.
man: $(VENV)/.installed-demo
	$(BIN)/python packaging/man_pages.py build/man

# The bill of materials, in build/triolog.cdx.json, with the extras of a server. SBOM_EXTRAS=spark chooses others.
sbom: $(VENV)/.installed-release
	$(BIN)/python packaging/sbom.py $(if $(SBOM_EXTRAS),--extras $(SBOM_EXTRAS)) build/triolog.cdx.json

# What goes to a package index: a source distribution, the wheel that is made from it, and a check of both; the bill beside it.
dist: sbom
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

# What a release has to pass: everything is built, checked, installed into empty environments, and tried there with the README.
release-check: zipapp $(VENV)/.installed-test
	TRIOLOG_TEST=merge TRIOLOG_TEST_RELEASED=$(CURDIR) $(BIN)/python -m pytest tests/test_packaging.py tests/test_sbom.py \
		tests/test_release.py tests/test_wheels.py $(ARGS)

# The documentation says how to install triolog as IS_ON_PYPI in protocol/extras.py has it.
install-lines:
	$(PYTHON) packaging/install_lines.py

# The supported Pythons as JSON, the version, and its section of the changelog, for .github/workflows.
print-pythons:
	@printf '[%s]\n' "$$(printf '"%s"\n' $(PYTHONS) | paste -s -d , -)"
print-version:
	@echo $(VERSION)
print-notes:
	@sed -n '/^## \[$(VERSION)\]/,/^## \[/{/^## \[/d;p;}' CHANGELOG.md

# build/triolog.pyz: the server and the command line in one file, for machines that have nothing but one of these Pythons.
# It has native wheels for each of them, for this kind of machine: files of one name are the same, others say whose they are.
ZIPAPP_EXTRAS := cli,metrics
zipapp: dist
	rm -rf build/zipapp
	mkdir -p build/zipapp/all
	wheel="$$(ls dist/*.whl)[$(ZIPAPP_EXTRAS)]"; \
	for version in $(PYTHONS); do \
		target=build/zipapp/$$version; options="--quiet --only-binary :all: --python-version $$version --target $$target"; \
		$(BIN)/uv pip install --python $(BIN)/python $$options "$$wheel" || { rm -rf $$target; \
			$(BIN)/python -m pip install --disable-pip-version-check --no-compile $$options "$$wheel"; } && \
		cp -R $$target/. build/zipapp/all || exit 1; \
	done
	cd build/zipapp/all && rm -rf bin .lock *.dist-info/direct_url.json *.dist-info/uv_cache.json
	$(BIN)/shiv --site-packages build/zipapp/all --compressed --reproducible --extend-pythonpath \
		--python '/usr/bin/env python3' --entry-point triolog.tools.cli:run --output-file build/zipapp/triolog.pyz
	$(BIN)/python packaging/guarded_zipapp.py build/zipapp/triolog.pyz build/triolog.pyz $(PYTHONS)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
