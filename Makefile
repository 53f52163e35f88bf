# Two commands carry the promise: `make run` and `make test` set everything up on a fresh machine first.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# NAME=value pairs for the run, for example: make run ARGS="-p steps 20 -p seed 3"
ARGS ?=
RUN_ID ?=
BY ?=
REASON ?=

export HF_HUB_DISABLE_TELEMETRY = 1
export DO_NOT_TRACK = 1
export JUPYTER_PLATFORM_DIRS = 1

.PHONY: help run test lab bench lint purge pdf-libs

help: ## this list | هذه القائمة
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed | يلزم بايثون 3.11 أو أحدث") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

run: $(READY) ## train, evaluate and write the reports; RUN_ID=... resumes | التدريب والتقييم والتقارير
	@$(BIN)/python -m grpo_lib.run $(if $(RUN_ID),-p run_id $(RUN_ID)) $(ARGS)

test: $(READY) ## all tests | كل الاختبارات
	@$(BIN)/python -m pytest

lab: $(READY) ## JupyterLab on the notebooks | فتح الدفاتر
	@$(BIN)/jupyter lab --notebook-dir=. --LabApp.news_url=None \
	  --LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate \
	  --LabApp.extension_manager=readonly $(ARGS)

bench: $(READY) ## async against TRL's synchronous trainer, side by side | مقارنة غير المتزامن بالمتزامن
	@$(BIN)/python benchmarks/arms.py $(ARGS)

purge: $(READY) ## destroy a run's key and data; RUN_ID=... BY=... REASON=... | إتلاف مفتاح تشغيل وبياناته
	@$(BIN)/python -m grpo_lib.purge "$(RUN_ID)" --by "$(BY)" --reason "$(REASON)" --yes $(ARGS)

pdf-libs: ## the Debian libraries that PDF files need (uses sudo where it must) | مكتبات ملفات PDF
	$(if $(filter 0,$(shell id -u)),,sudo )apt-get install -y libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0

lint: $(READY) ## ruff check and format, notebooks included | فحص الأسلوب
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
