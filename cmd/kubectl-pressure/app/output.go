package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// isTable reports whether the output is for people; wide adds columns.
func (o *options) isTable() (table, wide bool) {
	return o.output == "table" || o.output == "wide", o.output == "wide"
}

// write writes a value as json, yaml or jsonpath=TEMPLATE, which --output is if it is not a table.
func (o *options) write(value any) error {
	switch o.output {
	case "json":
		text, err := json.MarshalIndent(value, "", "    ")
		if err != nil {
			return err
		}
		_, err = o.Out.Write(append(escaped(text), '\n'))
		return err
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(text)
		return err
	}
	return writePath(o.Out, strings.TrimPrefix(o.output, jsonpathFormat), value)
}

// escaped returns JSON without invisible characters: inside strings, where alone they may be, they are escaped. Package
// json escapes those below U+0020 only.
func escaped(text []byte) []byte {
	safe := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r <= '~' || strconv.IsPrint(r):
			safe = utf8.AppendRune(safe, r)
		case r > 0xffff:
			first, second := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, "\\u%04x\\u%04x", first, second)
		default:
			safe = fmt.Appendf(safe, "\\u%04x", r)
		}
	}
	return safe
}

// writePath writes what a template finds in a value. Text that it finds is quoted if it could change the terminal.
func writePath(w io.Writer, template string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var generic any
	if err := json.Unmarshal(text, &generic); err != nil {
		return err
	}
	j := jsonpath.New("output").AllowMissingKeys(true)
	if err := j.Parse(template); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	var out strings.Builder
	if err := j.Execute(&out, generic); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err = fmt.Fprintln(w, plainLines(out.String()))
	return err
}

// table writes rows with aligned columns.
type table struct{ out *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	t.row(columns...)
	return t
}

// row writes a row. Cells are made plain, and an empty one is shown as "-".
func (t *table) row(cells ...string) {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		if shown[i] = plain(cell); cell == "" {
			shown[i] = "-"
		}
	}
	fmt.Fprintln(t.out, strings.Join(shown, "\t"))
}

func (t *table) end() error { return t.out.Flush() }
