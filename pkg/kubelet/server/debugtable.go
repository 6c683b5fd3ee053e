package server

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes rows with aligned columns.
type table struct{ out *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

// row writes a row; an empty cell is shown as "-".
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.out, strings.Join(cells, "\t"))
}

// end ends the table. It adds the number of rows that are left out, if there are any.
func (t *table) end(omitted int) error {
	if omitted > 0 {
		fmt.Fprintf(t.out, "and %d more\n", omitted)
	}
	return t.out.Flush()
}

func age(t, now time.Time) string { return now.Sub(t).Round(time.Second).String() }

// plain quotes a text of a client or of the runtime that could break the table or the terminal.
func plain(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
