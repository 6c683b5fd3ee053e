package server

import (
	"net/http"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// systemLogs serves the files of a log directory and, with queries, the logs of services in the journal (KEP-2258).
type systemLogs struct {
	dir     string
	files   http.Handler
	journal journal
}

// NewSystemLogs serves the files of dir below /logs/, including targets of symbolic links in dir, as stock does.
// queries enables log queries (feature gate NodeLogQuery and enableSystemLogQuery); otherwise such a request is one for
// a file.
func NewSystemLogs(dir string, queries bool) http.Handler {
	logs := &systemLogs{dir: dir, files: http.FileServer(http.Dir(dir)), journal: systemJournal{}}
	if !queries {
		return http.StripPrefix("/logs/", logs.files)
	}
	return http.StripPrefix("/logs/", logs)
}

// ServeHTTP serves a query or a file.
func (s *systemLogs) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	query, errs := parseLogQuery(req.URL.Query())
	if len(errs) > 0 {
		writeErrors(w, errs, http.StatusBadRequest)
		return
	}
	if query == nil {
		s.files.ServeHTTP(w, req)
		return
	}
	s.serveQuery(w, req, query)
}

func (s *systemLogs) serveQuery(w http.ResponseWriter, req *http.Request, query *logQuery) {
	if path := req.URL.Path; path != "" && path != "/" {
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return
	}
	if errs := query.validate(s.dir); len(errs) > 0 {
		writeErrors(w, errs, http.StatusNotAcceptable)
		return
	}
	if len(query.services) > 0 {
		s.writeServices(w, req, query)
		return
	}
	// A valid query without services has exactly one file.
	req.URL.Path = filepath.ToSlash(query.files[0])
	s.files.ServeHTTP(w, req)
}

func writeErrors(w http.ResponseWriter, errs field.ErrorList, code int) {
	http.Error(w, errs.ToAggregate().Error(), code)
}
