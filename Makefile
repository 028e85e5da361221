# Needs Go 1.26, a C compiler (for the race detector), and for interop a JDK (17 or newer) and Maven.
# `make demo` and `make test` are all one needs to know; the others are for work on the code.

GO          ?= go
FUZZTIME    ?= 60s
BENCHFLAGS  ?=
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Tests that start real processes run one package at a time, after all others: they would disturb one another's clocks.
UNIT = $$($(GO) list ./... | grep -v '^tandem/interop')

.DEFAULT_GOAL := build
.PHONY: build demo test unit race interop tools bench lint lint-all fuzz tidy-check clean

build: ## bin/tandem
	$(GO) build -trimpath -o bin/tandem ./cmd/tandem

demo: build ## the scripted tour; exit status 0 if its verdict holds
	bin/tandem demo

test: tools ## everything that must pass: vet, all tests under the race detector, fuzz seeds, interop
	$(GO) vet ./...
	$(MAKE) --no-print-directory unit interop

unit race:
	$(GO) test -race -timeout 15m $(UNIT)

interop: build
	$(GO) test -race -timeout 45m -p 1 -v ./interop/...

tools: # names what is missing, and what is left out without it
	@command -v $${CC:-cc} >/dev/null || { echo "a C compiler is missing: the race detector needs one" >&2; exit 1; }
	@for tool in java javac mvn; do \
		command -v $$tool >/dev/null && continue; \
		echo "$$tool is missing: the tests against Apache RocketMQ are left out" >&2; \
		if [ "$$CI" = true ]; then exit 1; fi; \
	done

bench: build ## all measurements, about ten minutes, kept under bench/results; ends with each figure against its bound. BENCHFLAGS='--apache 5.5.0 --redis' for more
	bin/tandem bench all --out bench/results $(BENCHFLAGS)

lint: ## formatting, vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
		[ -z "$$unformatted" ] || { echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

lint-all: lint ## also the linters of .golangci.yml; takes some minutes the first time
	$(GO) run $(GOLANGCI) run ./...

fuzz: ## each fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

tidy-check: ## go.mod and go.sum are what the imports need
	$(GO) mod tidy -diff
	$(GO) mod verify

clean:
	rm -rf bin
	$(GO) clean -testcache
