package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

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

// cutOff says that the spec did not come to its own end, or was never begun,
// since the suite was interrupted. A spec that skips itself says why.
func (s spec) cutOff() bool {
	return s.State == "interrupted" || s.State == "aborted" || s.State == "skipped" && s.Failure.Message == ""
}

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
