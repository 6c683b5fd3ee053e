package server

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// logQuery is a query for the logs of services, or for one file.
type logQuery struct {
	services []string
	files    []string
	options  logOptions
}

// logOptions filter the log of a service; nil and empty options do not filter.
type logOptions struct {
	since, until *time.Time
	// tail is the number of lines from the end.
	tail *int
	// boot counts back from the current boot, which is 0.
	boot *int
	// pattern is a regular expression that a line must match.
	pattern string
}

// parseLogQuery parses the parameters of a request. For a request without parameters it returns nil and no error.
func parseLogQuery(values url.Values) (*logQuery, field.ErrorList) {
	p := &queryParser{values: values}
	query := logQuery{options: logOptions{
		since:   p.time("sinceTime"),
		until:   p.time("untilTime"),
		boot:    p.number("boot"),
		tail:    p.number("tailLines"),
		pattern: values.Get("pattern"),
	}}
	query.services, query.files = splitQueries(values["query"])
	named := len(query.services) + len(query.files)
	if values.Has("query") && named == 0 {
		p.addError("query", values["query"], "may not be empty")
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	if named == 0 && query.options == (logOptions{}) {
		return nil, nil
	}
	return &query, nil
}

// splitQueries separates services from files, which have a slash or a backslash.
func splitQueries(queries []string) (services, files []string) {
	for _, query := range queries {
		switch {
		case strings.ContainsAny(query, `/\`):
			files = append(files, query)
		case strings.TrimSpace(query) != "":
			services = append(services, query)
		}
	}
	return services, files
}

// queryParser collects the errors of all parameters.
type queryParser struct {
	values url.Values
	errs   field.ErrorList
}

func (p *queryParser) time(name string) *time.Time {
	raw := p.values.Get(name)
	if raw == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, raw)
	if err != nil {
		p.addError(name, raw, "invalid time format")
		return nil
	}
	return &t
}

func (p *queryParser) number(name string) *int {
	raw := p.values.Get(name)
	if raw == "" {
		return nil
	}
	n, err := strconv.Atoi(raw)
	if err != nil {
		p.addError(name, raw, err.Error())
		return nil
	}
	return &n
}

func (p *queryParser) addError(name string, value any, detail string) {
	p.errs = append(p.errs, field.Invalid(field.NewPath(name), value, detail))
}
