package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// passed is the state of a spec that needs no second look.
const passed = "passed"

// Outcome is what became of a spec the last time it ran.
type Outcome struct {
	// State is passed, failed, skipped and so on, as the suite reports it.
	State string `json:"state"`
	// Failure is the first line of what went wrong.
	Failure string `json:"failure,omitempty"`
	// Tries is how often the spec has run; more than one for a spec that
	// passed means that it failed before.
	Tries int `json:"tries"`
}

// Results is the outcome of each spec by its name.
type Results map[string]Outcome

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
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.Rename(file+".new", file)
}

// add takes the outcome of one more run of a spec.
func (r Results) add(s spec) {
	r[s.name()] = Outcome{State: s.State, Failure: s.failure(), Tries: r[s.name()].Tries + 1}
}

// spec is what we read of the suite's report about one spec.
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	Type       string   `json:"LeafNodeType"`
	State      string   `json:"State"`
	Failure    struct {
		Message string `json:"Message"`
	} `json:"Failure"`
}

// name is the spec's full text, by which it can be chosen.
func (s spec) name() string { return strings.Join(append(slices.Clone(s.Containers), s.Leaf), " ") }

// failure is the first line of what went wrong.
func (s spec) failure() string {
	line, _, _ := strings.Cut(strings.TrimSpace(s.Failure.Message), "\n")
	return line
}

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
