package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/util/jsonpath"
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
		text, err := yamlOf(value)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(text)
		return err
	}
	return writePath(o.Out, strings.TrimPrefix(o.output, jsonpathFormat), value)
}

// isHidden reports a character that is invisible or changes the direction of writing, other than those below U+0020,
// which encoders of JSON and YAML escape.
func isHidden(r rune) bool { return r > '~' && !strconv.IsPrint(r) }

// yamlOf returns a value as YAML without hidden characters, with the fields of its JSON in their order. Only
// double-quoted strings can have escapes, so that strings with hidden characters become some.
func yamlOf(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	// JSON is YAML, if its strings have no raw control characters.
	var document yaml.Node
	if err := yaml.Unmarshal(escapedAs(text, yamlEscape), &document); err != nil {
		return nil, err
	}
	useBlocks(&document)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return nil, err
	}
	return escapedAs(out.Bytes(), yamlEscape), nil
}

// useBlocks has objects and lists written as blocks, and quotes only strings that need it. The encoder does not quote
// those that mean something else only in YAML 1.1, as kubectl reads it.
func useBlocks(n *yaml.Node) {
	isText := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
	n.Style = 0
	if isText && (strings.ContainsFunc(n.Value, isHidden) || otherwiseInYAML11.MatchString(n.Value)) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		useBlocks(child)
	}
}

// otherwiseInYAML11 matches booleans, the key that merges, and numbers to base 60.
var otherwiseInYAML11 = regexp.MustCompile(
	`^(y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|<<|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$`)

// escaped returns JSON without hidden characters: inside strings, where alone they may be, they are escaped.
func escaped(text []byte) []byte { return escapedAs(text, jsonEscape) }

// escapedAs escapes hidden characters; beyond is for those beyond U+FFFF.
func escapedAs(text []byte, beyond func([]byte, rune) []byte) []byte {
	safe := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case !isHidden(r):
			safe = utf8.AppendRune(safe, r)
		case r > 0xffff:
			safe = beyond(safe, r)
		default:
			safe = fmt.Appendf(safe, "\\u%04x", r)
		}
	}
	return safe
}

func jsonEscape(text []byte, r rune) []byte {
	first, second := utf16.EncodeRune(r)
	return fmt.Appendf(text, "\\u%04x\\u%04x", first, second)
}

func yamlEscape(text []byte, r rune) []byte { return fmt.Appendf(text, "\\U%08x", r) }

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
	j, err := parsePath(template)
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := j.Execute(&out, generic); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err = fmt.Fprintln(w, plainLines(out.String()))
	return err
}

// parsePath parses the template of --output.
func parsePath(template string) (*jsonpath.JSONPath, error) {
	j := jsonpath.New("output").AllowMissingKeys(true)
	if template == "" {
		return nil, errors.New("--output: the template is missing: jsonpath={.items[*].node} for example")
	}
	if err := j.Parse(template); err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return j, nil
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
