package parity

import (
	"fmt"
	"maps"
	"slices"
)

// places are the packages that use a name, by the name.
type places map[string][]string

func (p places) add(name, place string) {
	if !slices.Contains(p[name], place) {
		p[name] = append(p[name], place)
	}
}

// section is one table of the document: names that stock has, and names that we have.
type section struct {
	title, about string
	// stock, ours and library are the uses of a name: in the replaced packages, in our packages, and in packages of stock
	// that our program links.
	stock, ours, library places
	// details are the texts of one more column.
	details map[string]string
	// differs describes the difference of a name that both have.
	differs map[string]string
	// own describes a name that only we have and that is documented elsewhere; it needs no exception.
	own map[string]string
}

func newSection(title, about string) *section {
	return &section{
		title: title, about: about, stock: places{}, ours: places{}, library: places{},
		details: map[string]string{}, differs: map[string]string{}, own: map[string]string{},
	}
}

func (s *section) names() []string {
	all := map[string]bool{}
	for _, p := range []places{s.stock, s.ours, s.library} {
		for name := range p {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// difference is a name that is not the same on both sides.
type difference struct{ section, name, what string }

func (d difference) String() string { return fmt.Sprintf("%s: %s: %s", d.section, d.name, d.what) }

// differences returns the names that need an exception.
func (s *section) differences() []difference {
	var found []difference
	for _, name := range s.names() {
		if what := s.difference(name); what != "" {
			found = append(found, difference{s.title, name, what})
		}
	}
	return found
}

func (s *section) difference(name string) string {
	stock, ours, library := len(s.stock[name]) > 0, len(s.ours[name]) > 0, len(s.library[name]) > 0
	switch {
	case s.differs[name] != "":
		return s.differs[name]
	case stock && !ours:
		return fmt.Sprintf("stock has it in %v, we do not", s.stock[name])
	case ours && !stock && !library && s.own[name] == "":
		return fmt.Sprintf("we have it in %v, stock does not", s.ours[name])
	}
	return ""
}

// state returns the state of a name in the words of the document.
func (s *section) state(name string, table map[key]exception) (state, why string) {
	if s.difference(name) != "" {
		e, explained := table[key{s.title, name}]
		if !explained {
			return "unexplained", s.difference(name)
		}
		return string(e.state), e.why
	}
	if s.own[name] != "" {
		return string(extra), s.own[name]
	}
	if len(s.ours[name]) > 0 {
		return "same", ""
	}
	return "stock library", ""
}

// unexplained returns the differences without an exception.
func unexplained(sections []*section, table map[key]exception) []difference {
	var missing []difference
	for _, s := range sections {
		for _, d := range s.differences() {
			if _, ok := table[key{d.section, d.name}]; !ok {
				missing = append(missing, d)
			}
		}
	}
	return missing
}

// unneeded returns the exceptions without a difference.
func unneeded(sections []*section, table map[key]exception) []key {
	left := maps.Clone(table)
	for _, s := range sections {
		for _, d := range s.differences() {
			delete(left, key{d.section, d.name})
		}
	}
	return slices.SortedFunc(maps.Keys(left), func(a, b key) int {
		return slices.Compare([]string{a.section, a.name}, []string{b.section, b.name})
	})
}
