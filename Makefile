# Linux only: the program is a node agent. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

OUT := _output
BIN := $(OUT)/bin
export CGO_ENABLED ?= 0
# The build of a large dependency tree is done without version control stamps:
# what matters is stamped at link time.
export GOFLAGS ?= -buildvcs=false

DEVCLUSTER = go run ./test/cmd/devcluster
DEVVM = go run ./test/cmd/devvm
TOOL = go build -modfile=go.tools.mod -o $(BIN)/
DEEPCOPY = $(BIN)/deepcopy-gen --output-file zz_generated.deepcopy.go ./pkg/apis/...
DEEPCOPY_SUMS = find pkg/apis -name zz_generated.deepcopy.go -exec sha256sum {} + | sort
E2E_TIMEOUT ?= 50m
E2E_RUN ?= .
E2E_COUNT ?= 1
BENCH ?= .
BENCH_COUNT ?= 6
# Up to three tests that fail are run once more, each alone. Those that pass then are listed as unstable. A data race or
# a panic is never run again. RERUNS=0 runs nothing again.
RERUNS ?= 1
RERUN = --rerun-fails=$(RERUNS) --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race
UNSTABLE = [ ! -s $(1) ] || { echo "Unstable, each a defect to mend: these tests failed, and passed when run again."; cat $(1); }

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: go
go:
	@command -v go >/dev/null || { echo "Go is needed, version $$(awk '/^go /{print $$2}' go.mod) or any from 1.21 on that may fetch it; see https://go.dev/dl" >&2; exit 1; }
	@why=$$(go list -m 2>&1) || { echo "This $$(go version) cannot build the program: $$why" >&2; exit 1; }

##@ A node to use

.PHONY: run
run: go ## Start a real one-node cluster with this kubelet, or replace its kubelet (root).
	@$(DEVCLUSTER) run

.PHONY: demo
demo: go ## Put real memory pressure on the node and tell what happens (root).
	@$(DEVCLUSTER) demo

.PHONY: vm
vm: go ## Boot a virtual machine as a node with systemd and cgroup v2, with this kubelet (root). VM_ARGS=-stock for stock's.
	@$(DEVVM) $(VM_ARGS) run

.PHONY: stop
stop: go ## Stop the cluster and the virtual machine and remove every trace of them (root).
	@$(DEVCLUSTER) stop
	@$(DEVVM) stop

.PHONY: build
build: go ## Build everything that run needs, start nothing (root, for apt).
	@$(DEVCLUSTER) build

##@ Checks

.PHONY: test
test: unit e2e ## Unit tests with the race detector, then tests on the real node (root).

# go vet is off in tests: lint has the same analyses (govet), and vet reads every package of the dependencies first.
# Debug information is left out, which takes a tenth of the time: reports of races do without.
RACE := -race -vet=off -ldflags=-w -gcflags=all=-dwarf=false
.PHONY: unit
unit: $(BIN)/gotestsum ## Pure and unit tests with the race detector.
	@rm -f $(OUT)/unit-unstable.txt
	@echo "Unit tests with the race detector (about 27 minutes from cold caches on two cores)."
	CGO_ENABLED=1 $(BIN)/gotestsum --format pkgname-and-test-fails --junitfile $(OUT)/unit.xml \
		$(RERUN) --rerun-fails-report $(OUT)/unit-unstable.txt --packages "./pkg/kubelet/eviction ./..." -- $(RACE) -timeout 15m
	@$(call UNSTABLE,$(OUT)/unit-unstable.txt)

.PHONY: katalyst
katalyst: go ## A plugin of Katalyst, built from its unmodified code, and the same messages in its code and ours.
	cd test/katalyst && go vet . && go test -count=1 -timeout 5m .

.PHONY: differential
differential: go ## Random sequences of pressure beside stock, and of pods, many more than unit plays with the race detector.
	PLIMSOLL_SEQUENCES=20000 go test -count=1 -timeout 15m -run 'TestLikeStock$$' -v ./pkg/kubelet/eviction
	go test -count=1 -run 'TestDecisionsFromWhatWasWritten$$' -v ./pkg/kubelet/eviction
	go test -count=1 -run 'TestRandomAnswers$$' -v ./pkg/kubelet/eviction/arbiter
	go test -count=1 -run 'TestRandomRequests$$' -v ./pkg/kubelet/eviction/policy
	go test -count=1 ./pkg/kubelet/podlifecycle

.PHONY: e2e
e2e: $(BIN)/gotestsum ## Tests on real parts that the tests start themselves (root). E2E_RUN=regexp selects.
	@$(DEVCLUSTER) check
	@$(DEVCLUSTER) build
	@rm -f $(OUT)/e2e-unstable.txt
	$(BIN)/gotestsum --format standard-verbose --junitfile $(OUT)/e2e.xml \
		$(RERUN) --rerun-fails-report $(OUT)/e2e-unstable.txt --packages ./test/e2e_node -- \
		-tags e2e -vet=off -count=1 -parallel 8 -timeout $(E2E_TIMEOUT) -run '$(E2E_RUN)'
	@$(call UNSTABLE,$(OUT)/e2e-unstable.txt)

.PHONY: e2e-vm
e2e-vm: $(BIN)/gotestsum ## Tests on a node in a virtual machine, with systemd and cgroup v2 (root). E2E_RUN=regexp selects, E2E_COUNT repeats.
	@rm -f $(OUT)/e2e-vm-unstable.txt
	$(BIN)/gotestsum --format standard-verbose --junitfile $(OUT)/e2e-vm.xml \
		$(RERUN) --rerun-fails-report $(OUT)/e2e-vm-unstable.txt --packages ./test/vm -- \
		-tags vm -count=$(E2E_COUNT) -timeout $(E2E_TIMEOUT) -run '$(E2E_RUN)'
	@$(call UNSTABLE,$(OUT)/e2e-vm-unstable.txt)

.PHONY: e2e-vm-node
e2e-vm-node: go ## The node tests of e2e in a virtual machine, with systemd and cgroup v2, resumable (root, hours). VM_ARGS=-stock, -again.
	@$(DEVVM) -run '$(E2E_RUN)' $(VM_ARGS) test

.PHONY: e2e-numa
e2e-numa: go ## Eviction plugins on PLIMSOLL_KERNELS (paths with colons between), emulated, with cgroup v2 and 1, 2 and 4 NUMA nodes.
	go test -tags vm -count=1 -timeout 60m -v ./test/numa

.PHONY: generate
generate: $(BIN)/deepcopy-gen ## Write what is generated from the API types: deep copies, schemas.
	$(DEEPCOPY)
	go test -count=1 -run 'TestSchemaMatchesTypes$$' ./pkg/apis/pressure/v1alpha1 -update
	go test -count=1 -run 'TestDefinitionMatchesTypes$$' ./pkg/apis/node/v1alpha1 -update
	go test -count=1 -run 'TestSchemaMatchesTypes$$' ./pkg/apis/debug/v1alpha1 -update

# A unit test compares the schema. The generator of deep copies is not among the modules that unit tests can import.
.PHONY: generated
generated: $(BIN)/deepcopy-gen
	@before=$$($(DEEPCOPY_SUMS)); $(DEEPCOPY); [ "$$before" = "$$($(DEEPCOPY_SUMS))" ] || \
		{ echo "A file zz_generated.deepcopy.go did not match its types. It has been regenerated: commit it." >&2; exit 1; }

.PHONY: lint
lint: generated $(BIN)/golangci-lint ## Formatting, static analysis, generated files.
	@echo "Static analysis (a cold run takes about six minutes on two cores)."
	$(BIN)/golangci-lint run ./...

.PHONY: rules
rules: $(BIN)/promtool ## Rules of config/prometheus and their unit tests, by promtool.
	$(BIN)/promtool check rules config/prometheus/rules.yaml
	$(BIN)/promtool test rules config/prometheus/rules_test.yaml

.PHONY: vulncheck
vulncheck: $(BIN)/govulncheck ## Known vulnerabilities in what the kubelet links (asks a public data base).
	$(BIN)/govulncheck ./cmd/kubelet

# What presubmit runs in the machine: the unit, the life of a pod, one eviction, stock and back.
VM_SMALLEST := ^(TestUnitRunsOurKubelet|TestPodRuns|TestMemoryPressureEvictsTheHogAlone|TestStockAndBackUnderSystemd)$$

# Each step says how long it took; the first that fails ends the run.
define step
@start=$$SECONDS; echo; echo "=== $(1)"; $(2); echo "=== $(1): passed in $$((SECONDS - start)) s"
endef

.PHONY: presubmit
presubmit: go ## What CI runs: lint, unit tests, tests on the real node (root).
	$(call step,this machine,$(DEVCLUSTER) check)
	$(call step,parts of the node,$(DEVCLUSTER) build)
	$(call step,unit,$(MAKE) --no-print-directory unit)
	$(call step,node with systemd and cgroup v2,$(MAKE) --no-print-directory e2e-vm E2E_RUN='$(VM_SMALLEST)')
	@echo "The chaos test repeats one seed here, so that a failure is the change's; make soak draws new ones."
	@echo "Tests on the real node wait most of the time. Lint, katalyst and differential run beside them; their output follows."
	$(call step,real node and beside it lint katalyst differential,PLIMSOLL_CHAOS_SEED=$${PLIMSOLL_CHAOS_SEED:-11} \
		PLIMSOLL_CHAOS_TIME=$${PLIMSOLL_CHAOS_TIME:-1m} \
		hack/beside $(OUT)/beside.log '$(MAKE) --no-print-directory lint katalyst differential' \
		$(MAKE) --no-print-directory e2e)
	@echo; echo "All checks passed."

##@ What takes longer

.PHONY: conformance
conformance: go ## Upstream's suites for nodes and clusters against this kubelet, resumable (root, hours).
	@go run ./test/cmd/conformance $(CONFORMANCE_ARGS)

.PHONY: plugin-chaos
plugin-chaos: go ## Eviction plugins that hang, crash and lie, 5 min, with latencies compared; idle plugins, 2 min. Keep the machine quiet.
	PLIMSOLL_PLUGIN_CHAOS=$${PLIMSOLL_PLUGIN_CHAOS:-5m} go test -count=1 -timeout 20m -v -bench AtRest -benchtime 12x ./test/pluginchaos

.PHONY: reporter-load
reporter-load: go ## Reporter plugins with 3,000 messages in a second, and some that hang, crash and lie, 5 min each. Keep the machine quiet.
	PLIMSOLL_REPORTER_LOAD=$${PLIMSOLL_REPORTER_LOAD:-5m} go test -count=1 -timeout 30m -v -run '^(TestLoad|TestHostilePlugins)$$' ./test/reporters

.PHONY: race
race: go ## Who is first when a pod fills memory, the kubelet or the OOM killer: a matrix, resumable (root). RACE_ARGS=-help
	@go run ./test/cmd/race $(RACE_ARGS)

.PHONY: bench
bench: go $(BIN)/benchstat ## Benchmarks; compares with the results of the run before.
	@mkdir -p $(OUT)/bench; [ ! -f $(OUT)/bench/new.txt ] || mv $(OUT)/bench/new.txt $(OUT)/bench/old.txt
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCH_COUNT) ./pkg/... | tee $(OUT)/bench/new.txt
	@[ ! -f $(OUT)/bench/old.txt ] || $(BIN)/benchstat $(OUT)/bench/old.txt $(OUT)/bench/new.txt

.PHONY: soak
soak: $(BIN)/gotestsum ## Property tests with many cases, then node tests again and again, resumable (root). ROUNDS=n
	@hack/soak $(OUT)/soak $(BIN)/gotestsum

$(BIN)/golangci-lint: go.tools.mod
	@echo "Building golangci-lint (about two minutes)."
	@$(TOOL) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/gotestsum: go.tools.mod
	@$(TOOL) gotest.tools/gotestsum

$(BIN)/benchstat: go.tools.mod
	@$(TOOL) golang.org/x/perf/cmd/benchstat

$(BIN)/govulncheck: go.tools.mod
	@$(TOOL) golang.org/x/vuln/cmd/govulncheck

# Without service discoveries, which are most of its code.
$(BIN)/promtool: hack/promtool/go.mod
	@echo "Building promtool."
	@cd hack/promtool && go build -tags remove_all_sd -o $(CURDIR)/$(BIN)/ github.com/prometheus/prometheus/cmd/promtool

$(BIN)/deepcopy-gen: go.tools.mod
	@$(TOOL) k8s.io/code-generator/cmd/deepcopy-gen
