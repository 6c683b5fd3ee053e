package parity

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-project/plimsoll/cmd/kubelet/app"
)

const introduction = "# Parity with the stock kubelet\n\n" +
	"What of the stock kubelet %s this program has. Generated: `go test ./test/parity -update`; the test fails when " +
	"this " +
	"file is old, and when stock and ours differ without an entry in `test/parity/exceptions_test.go`. \"Stock\" are " +
	"the " +
	"packages that this program replaces (%s), \"ours\" are the packages here, \"library\" are packages of stock that " +
	"are " +
	"linked and that do the same work in both programs.\n\n" +
	"States: **same**: both have it. **same, another way**: the effect is the same, the means are not. **stock " +
	"library**: " +
	"only linked packages of stock have to do with it. **not needed**: it has no meaning here. **ours only**: stock " +
	"does " +
	"not have it. **missing**: not there yet.\n"

// render returns the document.
func render(version string, sections []*section, table map[key]exception) string {
	var b strings.Builder
	var names []string
	for _, path := range replaced {
		names = append(names, "`"+strings.TrimPrefix(path, stockModule)+"`")
	}
	b.WriteString(wrapped(fmt.Sprintf(introduction, version, strings.Join(names, ", "))))
	summary(&b, sections, table)
	lacks(&b, sections, table)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.title, wrapped(s.about))
		s.render(&b, table)
	}
	return b.String()
}

// wrapped wraps lines at 120 columns.
func wrapped(text string) string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > 120 {
				lines = append(lines, line)
				line = ""
			}
			line = strings.TrimSpace(line + " " + word)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func summary(b *strings.Builder, sections []*section, table map[key]exception) {
	states := []string{
		"same", string(another), "stock library", string(needless), string(extra), string(missing), "unexplained",
	}
	fmt.Fprintf(b, "\n| | %s |\n|---|%s\n", strings.Join(states, " | "), strings.Repeat("---:|", len(states)))
	for _, s := range sections {
		count := map[string]int{}
		for _, name := range s.names() {
			state, _ := s.state(name, table)
			count[state]++
		}
		fmt.Fprintf(b, "| %s |", s.title)
		for _, state := range states {
			fmt.Fprintf(b, " %d |", count[state])
		}
		b.WriteString("\n")
	}
}

// lacks returns the summary of what is missing, which comes first.
func lacks(b *strings.Builder, sections []*section, table map[key]exception) {
	b.WriteString("\n## What is missing\n\nSettings that are accepted and not acted upon yet; each is said in a " +
		"warning line at start:\n\n")
	for _, u := range app.UnsupportedSettings {
		fmt.Fprintf(b, "* %s: %s\n", u.Setting, u.Consequence)
	}
	if len(app.UnsupportedSettings) == 0 {
		b.WriteString("* none\n")
	}
	b.WriteString("\nOther things that stock does and this program does not do yet:\n\n")
	reasons, names := missingNames(sections, table)
	for _, why := range reasons {
		fmt.Fprintf(b, "* %s: %s\n", why, strings.Join(names[why], ", "))
	}
	if len(reasons) == 0 {
		b.WriteString("* none\n")
	}
}

// missingNames returns the names that are missing by the reason, and the reasons in their order.
func missingNames(sections []*section, table map[key]exception) (reasons []string, names places) {
	names = places{}
	for _, s := range sections {
		for _, name := range s.names() {
			if state, why := s.state(name, table); state == string(missing) {
				if len(names[why]) == 0 {
					reasons = append(reasons, why)
				}
				names.add(why, "`"+name+"`")
			}
		}
	}
	return reasons, names
}

func (s *section) render(b *strings.Builder, table map[key]exception) {
	if len(s.names()) == 0 {
		b.WriteString("None.\n")
		return
	}
	b.WriteString("| name | stock | ours | library | state | why, or more |\n|---|---|---|---|---|---|\n")
	for _, name := range s.names() {
		state, why := s.state(name, table)
		if why == "" {
			why = s.details[name]
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", cell(name), cell(list(s.stock[name])), cell(list(s.ours[name])),
			cell(list(s.library[name])), state, cell(why))
	}
}

// list shortens the text of a cell.
func list(where []string) string {
	const most = 3
	if len(where) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(where[:most], ", "), len(where)-most)
	}
	return strings.Join(where, ", ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
