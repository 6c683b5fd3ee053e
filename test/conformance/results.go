package conformance

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// stockPasses names the specs that pass with the stock kubelet of the same
// release on a machine of the kind that runs this suite, one per line.
//
//go:embed stock.txt
var stockPasses string

// StockPasses are the names of the specs that pass with the stock kubelet.
func StockPasses() []string { return strings.Split(strings.TrimSpace(stockPasses), "\n") }

// passed is the state of a spec that needs no second look.
const passed = "passed"

// Results is the last known state of each spec: passed, failed, skipped and so
// on, as the suite reports it.
type Results map[string]string

// loadResults reads what save wrote; no file means no results.
func loadResults(file string) (Results, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Results{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	results := Results{}
	if err := json.Unmarshal(data, &results); err != nil {
		return nil, fmt.Errorf("read results %s: %w", file, err)
	}
	return results, nil
}

func (r Results) save(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.Rename(file+".new", file)
}

// Missing are the specs of want that did not pass, in order.
func (r Results) Missing(want []string) []string {
	var missing []string
	for _, name := range want {
		if r[name] != passed {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// spec is what we read of the suite's report about one spec.
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	Type       string   `json:"LeafNodeType"`
	State      string   `json:"State"`
}

// name is the spec's full text, by which it can be chosen.
func (s spec) name() string { return strings.Join(append(slices.Clone(s.Containers), s.Leaf), " ") }

// readReport reads a report of the suite.
func readReport(file string) ([]spec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var suites []struct {
		Specs []spec `json:"SpecReports"`
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read report %s: %w", file, err)
	}
	var specs []spec
	for _, suite := range suites {
		for _, s := range suite.Specs {
			if s.Type == "It" {
				specs = append(specs, s)
			}
		}
	}
	return specs, nil
}
