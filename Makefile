# make demo   train, sample and evaluate the small model (installs first)
# make test   lint and the whole suite (installs first)
.PHONY: install demo lint test test-fast test-slow oracles fuzz chaos mutants ablations compare clean

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PY := $(VENV)/bin/python
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS)
comma := ,
CODE := celeris tests notebooks train.py sample.py evaluate.py

install: $(VENV)/.installed

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "error: Python 3.10 or newer is needed; name one with PYTHON=.")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt requirements-assets.txt | $(PY)
	$(PY) -m pip install --quiet -r requirements.txt
	$(PY) -m pip install --quiet --no-deps -r requirements-assets.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-dev.txt
	@touch $@

# The three commands go on from each other: the last two take the newest export under runs/.
demo: install
	$(PY) train.py experiment=tiny
	$(PY) sample.py prompt="Fellow citizens" num_samples=4 num_inference_steps=16 max_new_tokens=128 seed=7
	$(PY) evaluate.py metrics=[likelihood,quality,speed]

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(PY) -m mypy

# The default part first: what fails there fails within minutes.
test: lint test-fast test-slow

test-fast: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m slow

oracles: $(VENV)/.installed-dev
	$(PYTEST) tests/oracles

# 400 random requests to the samplers.
fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(PY) -m pytest -q tests/fuzz

# kill -9 at 20 random moments, then ten signals, on one process and on two: the run must end as if nothing had been.
chaos: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(PY) -m tests.chaos.kills --ranks 1
	OMP_NUM_THREADS=1 $(PY) -m tests.chaos.kills --ranks 2
	OMP_NUM_THREADS=1 $(PY) -m tests.chaos.signals --ranks 2

# Each deliberate fault in a copy of the code must turn the tests named with it red.
mutants: $(VENV)/.installed-dev
	$(PY) -m tests.mutants.run --jobs $(JOBS)

# Evaluates the finished runs under runs/ablation that are not yet, and writes the table.
# A study: python train.py -m experiment=ablation/base,ablation/schedule_cosine seed=1,2,3
ablations: install
	@for run in $$($(PY) -m celeris.tasks.ablations runs/ablation --missing); do \
		$(PY) evaluate.py checkpoint=$$run metrics=[likelihood] evaluation.likelihood.rows=96 \
			evaluation.likelihood.order=1 logger=none || exit 1; done
	$(PY) -m celeris.tasks.ablations runs/ablation docs/ablations.md

# The three tiny models of one size, data and number of tokens, side by side: docs/comparison.
# Trainings and evaluations go on where they were stopped; what is finished is skipped or taken from what was kept.
SYSTEMS ?= celeris_tiny ar_tiny mdlm_tiny
SEEDS ?= 1 2 3
RUNS = $(foreach seed,$(SEEDS),$(foreach system,$(SYSTEMS),$(system)/seed_$(seed)))
EACH = printf '%s\n' $(RUNS) | OMP_NUM_THREADS=1 xargs -P $(JOBS) -I{} sh -c
COMPARE := evaluation=compare metrics=[likelihood,quality]

compare: install
	@$(EACH) 'run={}; exec $(PY) train.py experiment=compare/$${run%/*} run_id=$${run#*/} seed=$${run##*_} \
		threads=1 ckpt=last'
	@$(EACH) 'exec $(PY) evaluate.py checkpoint=runs/compare/{} $(COMPARE) threads=1 logger=none'
	@sorted() { printf '%s\n' "$$@" | LC_ALL=C sort; }; \
		runs='$(subst $(eval) ,$(comma),$(RUNS:%=runs/compare/%))'; \
		if [ "$$(sorted runs/compare/*_tiny/seed_*)" = "$$(sorted $(RUNS:%=runs/compare/%))" ]; then \
			runs='runs/compare/*_tiny/seed_*'; fi; \
		OMP_NUM_THREADS=1 $(PY) evaluate.py evaluation=compare "compare=[$$runs]" threads=1 output=docs/comparison

clean:
	rm -rf .cache runs outputs multirun .pytest_cache .mypy_cache .ruff_cache
