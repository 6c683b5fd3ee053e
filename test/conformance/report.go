package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// spec is the part of the suite's report about one spec that is used.
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	Type       string   `json:"LeafNodeType"`
	State      string   `json:"State"`
	Failure    struct {
		Message string `json:"Message"`
	} `json:"Failure"`
}

// name returns the spec's full text, by which it can be selected.
func (s spec) name() string { return strings.Join(append(slices.Clone(s.Containers), s.Leaf), " ") }

// cutOff returns whether the spec was interrupted with the suite, or was never begun. A spec that skips itself has a
// reason.
func (s spec) cutOff() bool {
	return s.State == "interrupted" || s.State == "aborted" || s.State == "skipped" && s.Failure.Message == ""
}

// failure returns the first line of the failure.
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
	return decodeReport(data)
}

func decodeReport(data []byte) ([]spec, error) {
	var suites []struct {
		Specs []spec `json:"SpecReports"`
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("decode report: %w", err)
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
