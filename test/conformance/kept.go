package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// resultFiles matches the names of all files with results of a suite, those of
// its shards included.
const resultFiles = "results*.json"

// file returns the path of a file of this suite with this kubelet.
func (s Suite) file(name string) string { return filepath.Join(s.Dir, s.Party, s.Name, name) }

// ownResults is the file that this run writes. Each shard has its own, so that those of several machines can be
// combined.
func (s Suite) ownResults() string {
	if s.Shard == (Shard{}) {
		return s.file("results.json")
	}
	return s.file(fmt.Sprintf("results-%dof%d.json", s.Shard.Index, s.Shard.Count))
}

// Kept returns the results of earlier runs, of all shards together. A spec that passed in one of them passed; otherwise
// the result with more tries counts.
func (s Suite) Kept() (Results, error) {
	files, err := s.keptFiles()
	if err != nil {
		return nil, err
	}
	all := Results{}
	for _, file := range files {
		results, err := loadResults(file)
		if err != nil {
			return nil, err
		}
		all.Merge(results)
	}
	return all, nil
}

// keptFiles returns the files with results, in the order of their names.
func (s Suite) keptFiles() ([]string, error) {
	entries, err := os.ReadDir(s.file(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list results: %w", err)
	}
	var files []string
	for _, entry := range entries {
		if match, _ := filepath.Match(resultFiles, entry.Name()); match {
			files = append(files, s.file(entry.Name()))
		}
	}
	return files, nil
}

// record adds the outcomes of specs to results, which are those of all shards, and to the file of this run. It returns
// how many passed.
func (s Suite) record(results Results, specs []spec) (good int, err error) {
	own, err := loadResults(s.ownResults())
	if err != nil {
		return 0, err
	}
	for _, spec := range specs {
		results.add(spec)
		own[spec.name()] = results[spec.name()]
		if spec.State == passed {
			good++
		}
	}
	return good, own.save(s.ownResults())
}

// forget removes the results of these specs from earlier runs.
func (s Suite) forget(groups []group) error {
	files, err := s.keptFiles()
	if err != nil {
		return err
	}
	for _, file := range files {
		results, err := loadResults(file)
		if err != nil {
			return err
		}
		for _, group := range groups {
			for _, name := range group.names {
				delete(results, name)
			}
		}
		if err := results.save(file); err != nil {
			return err
		}
	}
	return nil
}
