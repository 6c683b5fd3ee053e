package architecture

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the greatest length of a line of documentation, the same that lll in .golangci.yaml has for Go.
const maxColumns = 120

// TestMarkdownColumns holds the length of lines in all Markdown files of the repository.
func TestMarkdownColumns(t *testing.T) {
	for _, file := range markdownFiles(t) {
		for _, line := range longLines(read(t, file)) {
			t.Errorf("%s:%d: the line has more than %d columns; break it", file, line, maxColumns)
		}
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("ä", maxColumns+1)
	for text, want := range map[string][]int{
		strings.Repeat("ä", maxColumns):           nil,
		long:                                      {1},
		"text\n" + long + "\ntext\n* " + long:     {2, 4},
		"  * " + long:                             {1},
		"|" + long + "|":                          nil,
		"    " + long:                             nil,
		"```\n" + long + "\n```\ntext\n" + long:   {5},
		"<!--\n" + long + "\n-->\n    * " + long:  {2},
		"    code\n" + strings.Repeat("a ", 61):   {2},
		"```\n" + long + "\n```\n|" + long + "\n": nil,
	} {
		if got := longLines(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// longLines returns the numbers of the lines that are too long. Rows of tables and lines of code blocks cannot be
// broken and are left out.
func longLines(text string) (numbers []int) {
	fenced, number := false, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		breakable := !fenced && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ")
		if breakable && utf8.RuneCountInString(line) > maxColumns {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// markdownFiles lists the Markdown files of the repository, relative to its root.
func markdownFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "_output" || name == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md"):
			files = append(files, strings.TrimPrefix(filepath.ToSlash(path), root))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(files, "docs/adr/0001-stock-managers-own-brain.md") {
		t.Fatalf("found only %q", files)
	}
	return files
}
