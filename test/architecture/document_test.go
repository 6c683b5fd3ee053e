package architecture

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of packages in docs/architecture.md")

const (
	document   = "docs/architecture.md"
	tableBegin = "<!-- begin of the table of packages: written by \"go test ./test/architecture -update\" -->\n"
	tableEnd   = "<!-- end of the table of packages -->\n"
)

var ringNames = map[int]string{
	pure: "pure", contract: "contract", driver: "driver", adapter: "adapter", composition: "composition",
}

// packageTable is the table of rings as Markdown.
func packageTable() string {
	var table strings.Builder
	table.WriteString("| ring | package | what it does |\n|---|---|---|\n")
	for _, r := range rings {
		table.WriteString("| " + ringNames[r.ring] + " | `" + r.pkg + "` | " + r.what + " |\n")
	}
	return table.String()
}

// The table of packages in the documentation is the one that the tests check.
func TestDocumentShowsTheRings(t *testing.T) {
	text := read(t, document)
	before, rest, begun := strings.Cut(text, tableBegin)
	table, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for the table of packages", document)
	}
	want := packageTable()
	if table == want {
		return
	}
	if !*update {
		t.Fatalf("the table of packages in %s is not that of test/architecture: go test ./test/architecture -update",
			document)
	}
	if err := os.WriteFile(root+document, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
)

// Files and directories that the documentation of the architecture names exist.
func TestDocumentNamesWhatExists(t *testing.T) {
	text := read(t, document)
	links := linkTarget.FindAllStringSubmatch(text, -1)
	spans := codeSpan.FindAllStringSubmatch(text, -1)
	if len(links) == 0 || len(spans) == 0 {
		t.Fatalf("%d links, %d code spans in %s", len(links), len(spans), document)
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(root, "docs", link[1])); err != nil {
			t.Errorf("%s links to what does not exist: %v", document, err)
		}
	}
	for _, span := range spans {
		if path := pathNamed(span[1]); path != "" {
			if _, err := os.Stat(root + path); err != nil {
				t.Errorf("%s names what does not exist: %v", document, err)
			}
		}
	}
}

// pathNamed returns the path below the root that a code span names, and nothing for one that names no file. A file
// without a directory is one of pkg/kubelet.
func pathNamed(span string) string {
	first, _, nested := strings.Cut(span, "/")
	switch {
	case strings.ContainsAny(span, " …*<>"):
		return ""
	case nested && (first == "pkg" || first == "cmd" || first == "test" || first == "config" || first == "docs"):
		return span
	case !nested && strings.HasSuffix(span, ".go"):
		return "pkg/kubelet/" + span
	default:
		return ""
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
