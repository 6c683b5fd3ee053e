package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// passed is the state of a spec that is not run again.
const passed = "passed"

// Outcome is the outcome of the last run of a spec.
type Outcome struct {
	// State is passed, failed, skipped and so on, as the suite reports it.
	State string `json:"state"`
	// Failure is the first line of the failure.
	Failure string `json:"failure,omitempty"`
	// Tries is how often the spec has run; more than one for a spec that passed means that it failed before.
	Tries int `json:"tries"`
}

// Results are the outcomes by the name of the spec.
type Results map[string]Outcome

// loadResults reads what save wrote; without a file there are no results.
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

// add adds the outcome of one more run of a spec.
func (r Results) add(s spec) {
	r[s.name()] = Outcome{State: s.State, Failure: s.failure(), Tries: r[s.name()].Tries + 1}
}

// Merge takes from others the outcomes of specs that passed, or else those after more tries.
func (r Results) Merge(others Results) {
	for name, other := range others {
		have, found := r[name]
		better := other.Tries > have.Tries
		if (other.State == passed) != (have.State == passed) {
			better = other.State == passed
		}
		if !found || better {
			r[name] = other
		}
	}
}

// InEach returns the outcomes of the specs that have one in each of these rounds: passed if all of them are.
func InEach(rounds []Results) Results {
	all := maps.Clone(rounds[0])
	for _, round := range rounds[1:] {
		for name, outcome := range all {
			other, found := round[name]
			switch {
			case !found:
				delete(all, name)
			case outcome.State == passed:
				all[name] = other
			}
		}
	}
	return all
}

// Only returns the results of the specs that are chosen by their names.
func (r Results) Only(chosen func(name string) bool) Results {
	only := Results{}
	for name, outcome := range r {
		if chosen(name) {
			only[name] = outcome
		}
	}
	return only
}

// Has returns whether there is a result of a spec, which may be one that did not run.
func (r Results) Has(name string) bool {
	_, found := r[name]
	return found
}

// of returns the results of the specs of groups; the state of a spec without a result is empty.
func (r Results) of(groups []group) Results {
	of := Results{}
	for _, g := range groups {
		for _, name := range g.names {
			of[name] = r[name]
		}
	}
	return of
}
